"""The coordinator under load over TLS. Noise decides no figure here: bounds are a multiple of what is measured, and
what grows with the number of leases would exceed them many times."""

from pathlib import Path

import pytest

from tests.benchmarks import coordinator_requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MIB = 1 << 20


def test_512_members_with_a_task_each(tmp_path: Path) -> None:
    found = coordinator_requests.measure(tmp_path, 512, 2, leased=1)
    assert found.mean_us < 1500, found
    assert found.memory <= 64 * MIB, found


def test_512_members_with_64_tasks_each(tmp_path: Path) -> None:
    """What a request costs does not depend on the leases of the others. When each write stored all of them, `done` cost
    2.5 times as much, and the process took 104 MiB."""
    found = coordinator_requests.measure(tmp_path, 512, 4, leased=64)
    assert found.us["lease"] < 2500, found
    assert found.us["done"] < 5000, found
    assert found.memory <= 64 * MIB, found
