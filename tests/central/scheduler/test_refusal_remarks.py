"""What a reason says beside what lacks: for whom capacity is kept and how to use it, and when nobody has to give
way."""

import re
from dataclasses import replace

import pytest

from central.model import wording
from central.model.facts import Fact, PodSeen, QueueSeen
from central.scheduler import refusal_reasons
from central.scheduler.apply import apply
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.simulation.reason_checker import assert_reasons_true

HINT = re.compile(r"a gang with lockstep.dev/runs-for of at most (\d+) min may use that before")


@pytest.mark.parametrize(
    ("patience_s", "known", "runs_for_s", "hint"),
    [
        (600.0, True, None, True),
        (600.0, True, 1000.0, True),  # it has said so, and it is too long
        (0.0, True, None, True),  # the reservation is strict
        (600.0, False, None, False),  # until when is not known
    ],
)
def test_who_may_not_use_reserved_capacity_reads_which_run_time_would_be_short_enough(
    patience_s: float, *, known: bool, runs_for_s: float | None, hint: bool
) -> None:
    """Half of the node is free, and kept for a gang that waits for the other half."""
    world = World(factories.node("n"), patience_s=patience_s)
    world.step(1.0, *job("rock", 1, 4, 500.0 if known else None))
    world.step(2.0, *job("head", 1, 8, created=2.0))
    assert world.step(3.0, *job("new", 1, 4, runs_for_s, created=3.0)) == []
    assert "reserved for ns/head" in world.told["new"]
    said = HINT.search(world.told["new"])
    assert bool(said) == hint
    assert_reasons_true(world.cluster)
    if said:
        assert world.step(4.0, *job("brief", 1, 4, 60.0 * int(said[1]), created=4.0)) == ["brief-0"]


def test_the_run_time_that_would_be_short_enough_shrinks_while_nothing_else_happens() -> None:
    world = World(factories.node("n"), patience_s=600.0)
    world.step(1.0, *job("rock", 1, 4, 500.0))
    world.step(2.0, *job("head", 1, 8, created=2.0))
    said = []
    for now in (3.0, 100.0, 200.0, 300.0):
        world.step(now, *(job("new", 1, 4, created=3.0) if now == 3.0 else ()))
        match = HINT.search(world.told["new"])
        assert match, world.told["new"]
        said.append(int(match[1]))
    assert said == [8, 6, 5, 3]


@pytest.mark.parametrize("queues", [(), (QueueSeen("q"), QueueSeen("p"))])
def test_who_waits_for_victims_does_not_read_that_nobody_gives_way(
    queues: tuple[QueueSeen, ...],
) -> None:
    """What else is there may not be evicted."""
    queue = queues[0].name if queues else ""
    world = World(factories.node("n"), *queues)
    world.step(1.0, *job("kept", 1, 4, queue=queue, preemptable=False))
    world.step(1.5, *job("low", 1, 4, queue=queue, created=1.5))
    world.step(2.0, *job("urgent", 1, 4, queue=queue, priority=5, created=2.0))
    assert world.evicted == ["low-0"]
    for now in (3.0, 4.0):
        world.step(now)
        assert "waiting for evicted pods to terminate" in world.told["urgent"]
        assert "no victims" not in world.told["urgent"]
        assert_reasons_true(world.cluster)
    assert world.step(7.0) == ["urgent-0"]


@pytest.mark.long
def test_who_asks_reads_what_is_free_now_though_others_with_the_same_refusal_were_asked_for() -> (
    None
):
    """The refusal of equal gangs is brought up to date once, and each of them has it as its reason."""
    world = World(factories.node("n"), *(factories.node(f"other{i}", gpus=1) for i in range(2)))
    names = [f"g{number}" for number in range(2 * refusal_reasons.EXAMINED_MOST)]
    facts: list[Fact] = [fact for name in names for fact in job(name, 2, 8, created=1.0)]
    world.step(1.0, *facts)
    gone = factories.pod("gone", 8, node="n", phase="Running")
    world.step(1.2, gone)
    world.step(1.5, replace(gone, phase="Succeeded"))
    world.step(2.0, *job("small", 1, 4, created=2.0))
    gangs = list(world.cluster.state.pending.waiting.values())
    stale = [gang for gang in gangs if "(8 of 8 GPUs free" in gang.attempt.reason]
    assert 0 < len(stale) < len(gangs)
    for gang in stale:
        refusal_reasons.refresh_one(world.cluster, gang)
    assert not [gang.name for gang in gangs if "(4 of 8 GPUs free" not in gang.attempt.reason]
    assert_reasons_true(world.cluster)


def test_a_question_gives_back_what_is_kept_for_others() -> None:
    """It counts without the capacity that is kept for the head. Before it, a pod of another scheduler has come."""
    world = World(factories.node("n"))
    world.step(1.0, *job("rock", 1, 4, 500.0))
    world.step(2.0, *job("head", 1, 8, created=2.0))
    world.step(3.0, *job("new", 1, 4, created=3.0))
    apply(world.cluster, factories.pod("theirs", 1, node="n", phase="Running", ours=False))
    snapshot = world.cluster.state.snapshot
    free = snapshot.columns.free.copy()
    (gang,) = (each for each in world.cluster.state.gangs.values() if each.name == "new")
    refusal_reasons.refresh_one(world.cluster, gang)
    assert "3 of 8 GPUs free" in gang.attempt.reason
    assert (snapshot.columns.free == free).all()


@pytest.mark.parametrize("first", ["large", "small"])
def test_what_never_fits_is_said_of_it_alone_where_a_queue_is_full(first: str) -> None:
    """No node has nine GPUs; four fit as soon as the queue may have more."""
    queue = QueueSeen("q", capability=((GPU, 16),))
    world = World(*(factories.node(f"n{i}") for i in range(3)), queue)
    world.step(1.0, *job("old", 2, 8, queue="q"))
    created = {"large": 2.0, "small": 2.0} | {first: 1.5}
    facts = [
        fact
        for name, gpus in (("large", 9), ("small", 4))
        for fact in job(name, 1, gpus, queue="q", created=created[name])
    ]
    world.step(2.0, *facts)
    assert wording.NEVER in world.told["large"]
    assert wording.NEVER not in world.told["small"]
    assert_reasons_true(world.cluster)


def test_who_lacks_quota_alone_reads_nothing_of_capacity_reserved_for_others() -> None:
    """In the cycle of the refusal, too: so many others were refused that its reason is not computed again at the
    end."""
    world = World(*_two_nodes(), QueueSeen("q", capability=((GPU, 2),)), QueueSeen("p"))
    world.step(2.0, *_wide_and_others())
    world.step(3.0, *job("urgent", 1, 2, queue="q", priority=5, created=3.0))
    assert world.evicted == ["slow", "low"]
    assert world.told["urgent"] == (
        "queue q uses 2 of its capability of 2 GPUs; 2 more are needed; reserved: node n1; "
        "waiting for evicted pods to terminate"
    )


def test_free_gpus_beside_a_guarantee_count_those_that_are_reserved_for_others() -> None:
    """As above. The claim that it tried was searched without them."""
    guaranteed = QueueSeen("g", guarantee=((GPU, 2),))
    world = World(*_two_nodes(), QueueSeen("q"), QueueSeen("p"), guaranteed)
    world.step(2.0, *_wide_and_others())
    gang, pod = job("urgent", 1, 8, queue="q", priority=5, created=3.0)
    assert isinstance(pod, PodSeen)
    there = replace(pod.spec, node_selector=(("kubernetes.io/hostname", "n0"),))
    world.step(3.0, gang, replace(pod, spec=there))
    assert world.evicted == ["slow"]
    assert "8 are free, of which 2 are guaranteed to queue g" in world.told["urgent"]
    assert "; the nodes that its pods may use have 2 GPUs free; " in world.told["urgent"]


def _two_nodes() -> list[Fact]:
    return [
        factories.node("n0"),
        factories.node("n1"),
        factories.pod("slow", 6, node="n0", queue="p", phase="Running"),
        factories.pod("low", 2, node="n1", queue="q", phase="Running"),
    ]


def _wide_and_others() -> list[Fact]:
    """One gang has node n0 reserved as soon as its victim there has gone. The others never fit, each differently."""
    others = range(refusal_reasons.RECOMPUTED_MOST)
    return [
        *job("wide", 1, 8, queue="p", priority=5, created=2.0),
        *(fact for i in others for fact in job(f"g{i}", 1, 9 + i, queue="p", created=3.0)),
    ]
