"""What is counted of a claim from the decision until its gang starts."""

import pytest

from central.model.facts import QueueSeen
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.queues import quota
from central.scheduler.queues.claim_in_flight import ClaimsInFlight, InFlight
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Account, Gang, GangKey
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def counted(world: World) -> tuple[dict[str, float], dict[str, float]]:
    """What victims still use and what claims will take, in GPUs by queue."""
    queues = world.cluster.queues

    def gpus(sums: InFlight) -> dict[str, float]:
        return {
            queue.name: each[GPU_EQUIVALENTS] / GPU_UNITS
            for queue, each in sums.items()
            if isinstance(queue, Queue)
        }

    leaving = queues.in_flight.leaving(queues.by_name)
    needs = queues.in_flight.needs_of_others(Gang(("ns", "other", False)), queues.by_name)
    return gpus(leaving), gpus(needs)


def check_sums(world: World) -> None:
    """What is kept up to date, for each gang with a claim and for one without, is what a recount gives."""
    queues, kept = world.cluster.queues, world.cluster.queues.in_flight
    gangs = [Gang(("ns", "other", False)), *(claim.gang for claim in queues.claims.values())]
    for gang in gangs:
        recount = ClaimsInFlight()
        for claim in queues.claims.values():
            if claim.gang is not gang:
                recount.add(claim)
        assert kept.needs_of_others(gang, queues.by_name) == recount.needs_of_others(
            gang, queues.by_name
        )
    every = ClaimsInFlight()
    for claim in queues.claims.values():
        every.add(claim)
    assert kept.leaving(queues.by_name) == every.leaving(queues.by_name)


@pytest.mark.long
def test_the_sums_that_are_kept_follow_claims_and_facts() -> None:
    """Each claim has two victims, of which one goes first."""
    world = World(*(factories.node(f"n{number}", gpus=2) for number in range(8)))
    halves = ((GPU, 8),)
    world.step(0.0, QueueSeen("ours", deserved=halves), QueueSeen("theirs", deserved=halves))
    for number in range(16):
        world.step(1.0, *job(f"t{number}", 1, 1, queue="theirs", created=float(number)))
    sizes = []
    for number in range(12):
        now = 10.0 + number
        if number < 4:
            world.step(now, *job(f"mine{number}", 1, 2, queue="ours", created=now))
        else:
            world.step(now)
        check_sums(world)
        for place, pod in enumerate(world.evicted):
            if f"uid-{pod}" in world.leaving:
                world.leaving[f"uid-{pod}"] = 15.0 + place
        sizes.append(len(world.cluster.queues.claims))
    assert max(sizes) > 2
    assert sizes != sorted(sizes), "claims have ended in between"


def test_the_next_pass_counts_again_what_bindings_change() -> None:
    world = World(factories.node("a"), QueueSeen("q"))
    world.step(1.0, *job("t", 1, gpus=2, queue="q"))
    queues = world.cluster.queues
    queues.in_flight.start_pass()
    counted(world)
    queues.in_flight.start_pass()
    assert not queues.in_flight.outdated, "no fact came, and no usage changed"
    queues.forget(world.cluster.state.gangs["ns", "t", True])
    assert not queues.in_flight.outdated, "within a pass the sums hold"
    queues.in_flight.start_pass()
    assert queues.in_flight.outdated


def test_victims_count_until_they_are_gone_and_needs_until_the_gang_starts() -> None:
    world = World(
        factories.node("a"), QueueSeen("ours"), QueueSeen("theirs", parent="org"), half_life_s=0.0
    )
    world.step(0.0, QueueSeen("org"))
    for number in range(4):
        world.step(1.0, *job(f"t{number}", 1, gpus=2, queue="theirs", created=float(number)))
    world.step(10.0, *job("mine", 1, gpus=4, queue="ours", created=10.0))
    assert sorted(world.evicted) == ["t2-0", "t3-0"]
    use, need = {"theirs": 4, "org": 4, "root": 4}, {"ours": 4, "root": 4}
    assert counted(world) == (use, need)
    world.leaving["uid-t2-0"] = 12.0
    world.step(12.0)
    half = {"theirs": 2, "org": 2, "root": 2}
    assert counted(world) == (half, need)
    assert world.step(15.0) == ["mine-0"]
    assert counted(world) == ({}, {})


def test_a_pod_and_a_gang_of_one_name_leave_the_claims_of_their_own_queues() -> None:
    """Claims of less urgent gangs of the own queue do not count. The pod without a gang has the name of the gang."""
    world = World(factories.node("a"), factories.node("b"))
    world.step(0.0, QueueSeen("left"), QueueSeen("right"))
    queues, spec = world.cluster.queues, factories.spec(8)
    for name in ("left", "right"):
        claimant = counted_in(name, (name, "claimant", True))
        queues.add_claim(claimant, [(spec, 1)])
    for name, is_gang in (("left", True), ("right", False)):
        gang = counted_in(name, ("ns", "x", is_gang))
        gang.class_priority = 5
        for other in ("left", "right"):
            kept = quota.in_flight(queues, gang, queues.by_name[other], GPU)
            assert kept == (0 if other == name else 8)


def counted_in(queue: str, key: GangKey) -> Gang:
    gang = Gang(key)
    gang.account = Account(queue, {}, {})
    return gang
