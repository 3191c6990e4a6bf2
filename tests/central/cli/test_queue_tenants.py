"""`lockstep queue view`: limits of namespaces and users, and what they use."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.central.cli.run_cli import Lockstep
from tests.central.cli.test_default_queue import QUEUES, scheduler

__all__ = ["scheduler"]  # a fixture
Json = dict[str, Any]
LIMITS = {
    "perNamespace": {"maxRunningGangs": 4, "resources": {"nvidia.com/gpu": 16}},
    "perUser": {"resources": {"nvidia.com/gpu": 8}},
}


@pytest.mark.usefixtures("scheduler")
def test_who_uses_what(lockstep: Lockstep, put: Callable[[str, Json], Json]) -> None:
    put(QUEUES, {"metadata": {"name": "research"}, "spec": LIMITS})
    shown = lockstep("queue", "view", "research")
    assert "Namespaces:   each at most 4 running gangs and nvidia.com/gpu=16" in shown
    assert "Users:        each at most nvidia.com/gpu=8" in shown
    rows = [line.split() for line in shown.splitlines() if " of " in line]
    assert rows == [
        ["namespace", "default", "2", "of", "4", "12", "of", "16"],
        ["user", "jane", "1", "8", "of", "8"],
        ["namespace", "team-b", "1", "of", "4", "2.5", "of", "16"],
        ["user", "bob", "1", "2", "of", "8"],
        ["namespace", "team-b", "(pods", "without", "a", "user)", "1", "0.5", "of", "8"],
    ]


def test_limits_need_no_scheduler(
    lockstep: Lockstep, put: Callable[[str, Json], Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Volcano's own CRD drops the fields, they are in an annotation."""
    monkeypatch.delenv("LOCKSTEP_SERVER", raising=False)
    notes = {"lockstep.dev/queue-policy": json.dumps({"perUser": {"maxRunningGangs": 1}})}
    put(QUEUES, {"metadata": {"name": "q", "annotations": notes}, "spec": {}})
    shown = lockstep("queue", "view", "q")
    assert "Users:        each at most 1 running gang\n" in shown
    assert "not shown: name the scheduler with --server" in shown


def test_a_queue_without_limits_says_nothing_of_them(
    lockstep: Lockstep, put: Callable[[str, Json], Json]
) -> None:
    put(QUEUES, {"metadata": {"name": "q"}, "spec": {"weight": 2}})
    assert "each at most" not in (shown := lockstep("queue", "view", "q"))
    assert "Used by each" not in shown
