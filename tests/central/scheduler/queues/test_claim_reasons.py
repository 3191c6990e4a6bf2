"""Whoever waits reads why no victims: whose share, which level, which rule."""

import pytest

from central.model.decisions import UpdateGangStatus
from central.model.facts import Fact, QueueSeen
from central.scheduler.refusal_reasons import EXAMINED_MOST
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
    world = World(*facts, half_life_s=0.0)
    world.step(1.0)
    return world


def test_its_own_queue_would_be_above_its_share() -> None:
    world = full(queue("a", 4), queue("b", 4), user="b", size=4)
    world.step(10.0, *job("new", 1, 8, queue="a", created=10.0))
    assert why(world, "new") == (
        "a (uses 0 of 4 GPUs of its fair share; it may not reclaim from other queues: queue a would use 8 GPUs, and "
        "its fair share is 4; its queue runs no gang of priority below 0)"
    )


def test_the_level_is_named() -> None:
    lab, team = queue("lab", 4), queue("team", 8, "lab")
    world = full(lab, team, queue("shop", 4), user="shop", size=4)
    world.step(10.0, *job("new", 1, 6, queue="team", created=10.0))
    assert "queue lab (above team) would use 6 GPUs, and its fair share is 4" in why(world, "new")


def test_a_nearer_level_is_named_where_its_siblings_use_enough() -> None:
    """A claim inside the department would do, but the team is at its own share."""
    lab, team, other = queue("lab"), queue("team", 4, "lab"), queue("other", 4, "lab")
    world = full(lab, team, other, user="other", size=4)
    world.step(10.0, *job("new", 1, 6, queue="team", created=10.0))
    assert "queue team would use 6 GPUs, and its fair share is 4" in why(world, "new")


def test_the_other_queue_is_not_reclaimable() -> None:
    world = full(queue("a", 4), queue("b", 4, reclaimable=False), user="b")
    world.step(10.0, *job("new", 1, 2, queue="a", created=10.0))
    expected = "queue b uses 8 GPUs, above its fair share of 6, and is not reclaimable"
    assert expected in why(world, "new")


def test_a_giver_whose_gangs_must_stay() -> None:
    world = full(queue("a", 4), queue("b", 4, min_runtime_s=600.0), user="b")
    world.step(10.0, *job("new", 1, 2, queue="a", created=10.0))
    assert "queue b uses 8 GPUs, above its fair share of 6, but evicting every gang that" in why(
        world, "new"
    )


def test_nobody_is_above_its_share() -> None:
    world = full(queue("a"), user="a")
    world.step(10.0, *job("new", 1, 1, queue="a", priority=3, created=10.0))
    world.step(20.0)
    assert "old" in "".join(world.evicted)


@pytest.mark.parametrize(
    ("own", "others", "clause"),
    [
        (
            None,
            0,
            "fair share of 4, but evicting every member above a minimum that may be evicted would not",
        ),
        (
            4,
            0,
            "fair share of 2, but evicting every member above a minimum that may be evicted would not",
        ),
        (0, 4, "queue a would use 4 GPUs, and its fair share is 2"),
    ],
)
def test_growth(own: int | None, others: int, clause: str) -> None:
    world = full(queue("a", own), queue("b", others), user="b", size=2)
    world.step(10.0, *job("new", 3, 2, least=1, queue="a", created=10.0))
    for now in range(20, 80, 10):
        world.step(float(now))
    found = explain(world.cluster, "ns", "new")
    assert found is not None
    assert clause in found.queue


def test_the_status_says_it_too() -> None:
    """So do Events and the PodGroup's condition, which have the status's reason."""
    world = full(queue("a", 4), queue("b", 4), user="b", size=4)
    world.step(10.0, *job("new", 1, 8, queue="a", created=10.0))
    clause = "; no victims: queue a would use 8 GPUs, and its fair share is 4"
    assert world.told["new"].endswith(clause)
    world.step(11.0, *job("other", 1, 2, queue="a", created=11.0))
    assert "no victims" not in world.told["other"], "its victims terminate"
    world.step(20.0)
    world.step(22.0)
    assert "queue a would use 10 GPUs, and its fair share is 4" in world.told["new"]


def test_what_goes_without_saying_is_not_said() -> None:
    world = full(queue("a"), queue("b"), user="a")
    world.step(10.0, *job("new", 1, 1, queue="a", created=10.0))
    assert "no victims" not in world.told["new"], "no other queue has anything"
    world.step(11.0, *job("urgent", 1, 9, queue="a", created=11.0, priority=5))
    assert "no victims" not in world.told["urgent"], "no node is that large"


def test_what_is_less_urgent_frees_too_little_beside_what_is_more_urgent() -> None:
    world = World(factories.node("n"), queue("a"))
    for name, priority in (("low", 0), ("high", 9)):
        world.step(1.0, *job(name, 1, 4, queue="a", priority=priority))
    world.step(10.0, *job("new", 1, 8, queue="a", priority=5, created=10.0))
    assert (
        "evicting all gangs of its queue with priority below 5 would not free enough"
        in world.told["new"]
    )


@pytest.mark.long
def test_a_cycle_tells_only_some_of_many() -> None:
    """Each arrival changes fair shares, and with them the reasons of all that wait."""
    world = full(queue("a"), queue("b"), queue("c"), user="b", size=4)
    many = [fact for n in range(250) for fact in job(f"new{n}", 1, 8, queue="a", created=10.0 + n)]
    world.step(300.0, *many)
    for now in range(301, 306):
        world.step(float(now))
    known = len(world.decisions)
    assert "its fair share is 4" in world.told["new0"]
    world.step(310.0, *job("third", 1, 8, queue="c", created=310.0))
    told = [each for each in world.decisions[known:] if isinstance(each, UpdateGangStatus)]
    assert 50 < len(told) <= EXAMINED_MOST + 5
    assert (
        "its fair share is 3" in world.told["new0"] or "its fair share is 4" in world.told["new0"]
    )
