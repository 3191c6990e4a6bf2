"""The coordinator under load over TLS. Noise decides no figure here: bounds are a multiple of what is measured, and what grows with the
number of leases would exceed them many times."""

from pathlib import Path

import pytest

from tests.benchmarks import coordinator_requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MIB = 1 << 20


def test_512_members_with_a_task_each(tmp_path: Path) -> None:
    found = coordinator_requests.measure(tmp_path, 512, 2, leased=1)
    assert found.mean_us < 1500, found
    assert found.memory < 96 * MIB, found


def test_128_members_with_64_tasks_each(tmp_path: Path) -> None:
    """What a lease costs does not depend on the leases of the others: it was 3.7 ms with 64 of these members, and 20 with 512."""
    found = coordinator_requests.measure(tmp_path, 128, 2, leased=64)
    assert found.us["lease"] < 3500, found
    assert found.memory < 96 * MIB, found
