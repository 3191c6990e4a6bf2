"""What the queue default uses where it has no object: only the scheduler knows."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.central.cli.run_cli import AskedScheduler, Lockstep
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.fixture
def scheduler(asked_scheduler: AskedScheduler) -> None:
    asked_scheduler(CannedAnswers())


def row(text: str) -> list[str]:
    [found] = [line for line in text.splitlines() if "default" in line]
    return found.split()


@pytest.mark.usefixtures("scheduler")
def test_the_scheduler_says_what_it_uses(lockstep: Lockstep) -> None:
    assert row(lockstep("queue", "tree"))[:2] == ["default", "4.5"]
    assert "nvidia.com/gpu=4.5" in lockstep("queue", "list", "-o", "wide")


def test_without_the_scheduler_the_status_of_the_object_says_it(
    lockstep: Lockstep, put: Callable[[str, Json], Json]
) -> None:
    allocated = {"nvidia.com/gpu": "3", "lockstep.dev/gpu-share": "50", "cpu": "100m"}
    status = {"allocated": allocated, "running": 2, "pending": 1, "inqueue": 3}
    put(QUEUES, {"metadata": {"name": "default"}, "spec": {}, "status": status})
    assert row(lockstep("queue", "tree")) == [
        "default",
        "3.5",
        "-",
        "-",
        "-",
        "1",
        "2",
        "4",
        "Open",
    ]
    assert "2 running" in lockstep("queue", "view", "default")


def test_without_the_scheduler_it_is_unknown(
    lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row(lockstep("queue", "tree"))[:2] == ["default", "-"]
    monkeypatch.setenv("LOCKSTEP_SERVER", "127.0.0.1:1")
    assert row(lockstep("queue", "tree"))[:2] == ["default", "-"]
