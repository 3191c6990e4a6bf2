"""A pod whose replacement runs on the same node or nowhere (a DaemonSet's) is evicted after all that can move."""

import pytest

from central.model.facts import Fact, QueueSeen
from tests.central import factories
from tests.central.scheduler.small_cluster import World


def held(name: str, queue: str, *, tied: bool = False, priority: int = 0) -> Fact:
    placed = {"node": "n", "phase": "Running", "started": 0.0}
    return factories.pod(name, 1, tied=tied, priority=priority, queue=queue, **placed)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    ("queue", "victims"), [("", ("", "")), ("a", ("a", "a")), ("b", ("a", "a"))]
)
def test_pods_of_daemon_sets_are_evicted_last(
    gpus: int, queue: str, victims: tuple[str, str]
) -> None:
    """By priority, inside a queue and without any, and by fair share from another queue; also where the others have a
    higher priority."""
    world = World(
        factories.node("n", gpus=4),
        *([QueueSeen("a"), QueueSeen("b")] if queue else ()),
        half_life_s=0.0,
    )
    tied, other = victims
    facts = [held(f"daemon{n}", tied, tied=True) for n in range(2)]
    world.step(1.0, *facts, *(held(f"other{n}", other, priority=1) for n in range(2)))
    world.step(2.0, factories.pod("new", gpus, priority=5, queue=queue, created=2.0))
    assert len(world.evicted) == gpus
    assert not any(name.startswith("daemon") for name in world.evicted)


def test_where_nothing_else_suffices_they_are_evicted() -> None:
    world = World(factories.node("n", gpus=2))
    world.step(1.0, held("daemon", "", tied=True), held("other", "", priority=1))
    world.step(2.0, factories.pod("new", 2, priority=5, created=2.0))
    assert sorted(world.evicted) == ["daemon", "other"]
