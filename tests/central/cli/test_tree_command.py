"""`lockstep queue tree`, and what commands say without a verb."""

from collections.abc import Callable
from typing import Any

import pytest

from central.cli.jobs.queue_listing import in_tree, of_objects
from tests.central.cli.run_cli import Lockstep
from tests.central.cli.test_completion import asked

Json = dict[str, Any]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


def queue(name: str, parent: str = "", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {**({"parent": parent} if parent else {}), **spec}}


def test_a_tree_with_gpus(
    lockstep: Lockstep, put: Callable[[str, Json], Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    put(QUEUES, queue("research", deserved={"nvidia.com/gpu": "160"}))
    put(QUEUES, {**queue("llm", "research"), "status": {"allocated": {"nvidia.com/gpu": "48"}}})
    put(QUEUES, queue("vision", "research"))
    lines = lockstep("queue", "tree").splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].split()[:2] == ["QUEUE", "USED"]
    shown = [line for line in lines if "research" in line or "─" in line]
    assert [line.split()[:4] for line in shown] == [
        ["research", "-", "160", "-"],
        ["├─", "llm", "48", "-"],
        ["└─", "vision", "-", "-"],
    ]
    assert "default" in "".join(lines)


def test_circles_and_orphans_are_shown_once() -> None:
    queues = [queue("a", "b"), queue("b", "a"), queue("c", "nothere"), queue("d", "d")]
    found = sorted(row["name"] for row, _ in in_tree(of_objects(queues)))
    assert found == ["a", "b", "c", "d", "default"]


@pytest.mark.parametrize("argv", [(), ("job",), ("queue",), ("group",)])
def test_without_a_verb_there_is_the_help(lockstep: Lockstep, argv: tuple[str, ...]) -> None:
    text = lockstep(*argv, code=2)
    assert "usage: " in text
    assert "--help" in text


def test_names_are_completed_and_never_local_files(
    lockstep: Lockstep, put: Callable[[str, Json], Json]
) -> None:
    put("/api/v1/nodes", {"metadata": {"name": "pyramid-1"}})
    assert asked("topology", "py") == ["pyramid-1"]  # not pyproject.toml
    assert asked("explain", "py") == []
    assert asked("job", "run", "x", "--plugin", "py") == ["pytorch"]
    assert asked("job", "run", "x", "--within", "lockstep.dev/r") == ["lockstep.dev/rack"]
    assert asked("queue", "view", "py") == []
