"""Whoever waits reads why nobody gives way: whose share, which level, which rule."""

import pytest

from central.model.facts import Fact, QueueSeen
from central.server.queries import explain
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def queue(name: str, deserved: int | None = None, parent: str = "", **more: object) -> QueueSeen:
    amounts = () if deserved is None else ((GPU, deserved),)
    return QueueSeen(name, parent=parent, deserved=amounts, **more)  # type: ignore[arg-type]  # a test's shorthand


def why(world: World, name: str) -> str:
    found = explain(world.cluster, "ns", name)
    assert found is not None
    assert found.phase == "Pending"
    return found.queue


def full(*queues: QueueSeen, user: str, size: int = 1) -> World:
    """A node of 8 GPUs, all of them in use by gangs of one queue."""
    facts: list[Fact] = [factories.node("n"), *queues]
    for i in range(8 // size):
        facts += job(f"old{i}", 1, size, queue=user)
    world = World(*facts)
    world.step(1.0)
    return world


def test_its_own_queue_would_be_above_its_share() -> None:
    world = full(queue("a", 4), queue("b", 4), user="b", size=4)
    world.step(10.0, *job("new", 1, 8, queue="a", created=10.0))
    assert why(world, "new") == (
        "a (uses 0 of 4 GPUs of its fair share; it may claim nothing from other queues: queue a would use 8 GPUs, and "
        "its fair share is 4; nothing in its queue is less urgent than priority 0)"
    )


def test_the_level_is_named() -> None:
    lab, team = queue("lab", 4), queue("team", 8, "lab")
    world = full(lab, team, queue("shop", 4), user="shop", size=4)
    world.step(10.0, *job("new", 1, 6, queue="team", created=10.0))
    assert "queue lab (above team) would use 6 GPUs, and its fair share is 4" in why(world, "new")


def test_the_other_queue_is_not_reclaimable() -> None:
    world = full(queue("a", 4), queue("b", 4, reclaimable=False), user="b")
    world.step(10.0, *job("new", 1, 2, queue="a", created=10.0))
    expected = "queue b uses 8 GPUs, above its fair share of 6, and is not reclaimable"
    assert expected in why(world, "new")


def test_a_giver_whose_gangs_must_stay() -> None:
    world = full(queue("a", 4), queue("b", 4, min_runtime_s=600.0), user="b")
    world.step(10.0, *job("new", 1, 2, queue="a", created=10.0))
    assert "queue b uses 8 GPUs, above its fair share of 6, but gangs that may go" in why(
        world, "new"
    )


def test_nobody_is_above_its_share() -> None:
    world = full(queue("a"), user="a")
    world.step(10.0, *job("new", 1, 1, queue="a", priority=3, created=10.0))
    world.step(20.0)
    assert "old" in "".join(world.evicted)


@pytest.mark.parametrize(("deserved", "clause"), [(None, "deserves nothing"), (4, "would use")])
def test_growth(deserved: int | None, clause: str) -> None:
    world = full(queue("a", deserved), queue("b", 0), user="b", size=2)
    world.step(10.0, *job("new", 3, 2, least=1, queue="a", created=10.0))
    for now in range(20, 80, 10):
        world.step(float(now))
    found = explain(world.cluster, "ns", "new")
    assert found is not None
    assert clause in found.queue
