"""Gangs that are not preemptable, and those that have not run for long enough yet."""

from dataclasses import replace

import pytest

from central.model.facts import Fact, GangSeen, PodSeen, QueueSeen
from central.scheduler.cycle import due
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def grouped(facts: list[Fact], *, preemptable: bool) -> list[Fact]:
    """The same with the setting on the PodGroup."""
    return [replace(f, preemptable=preemptable) if isinstance(f, GangSeen) else f for f in facts]


def urgent(now: float, **other: object) -> list[Fact]:
    return job("urgent", 1, created=now, priority=9, **other)  # type: ignore[arg-type]  # a test's shorthand


def test_what_is_not_preemptable_stays() -> None:
    for kept in (job("kept", 1, preemptable=False), grouped(job("kept", 1), preemptable=False)):
        world = World(factories.node("n"))
        world.step(0.0, *kept)
        world.step(100.0, *urgent(100.0))
        assert not world.evicted


def test_a_pod_says_more_than_its_group() -> None:
    world = World(factories.node("n"))
    world.step(0.0, *grouped(job("kept", 1, preemptable=True), preemptable=False))
    world.step(100.0, *urgent(100.0))
    assert world.evicted == ["kept-0"]


def test_members_above_the_minimum_go_where_others_are_not_preemptable() -> None:
    world = World(factories.node("a"), factories.node("b"))
    group, first, second = job("mixed", 2, least=1)
    assert isinstance(first, PodSeen)
    world.step(0.0, group, replace(first, preemptable=False), second)
    world.step(100.0, *urgent(100.0))
    assert world.evicted == ["mixed-1"]
    world.step(200.0, *job("more", 1, created=200.0, priority=9))
    assert world.evicted == ["mixed-1"]


def test_a_gang_runs_for_its_least_time() -> None:
    world = World(factories.node("n"), min_runtime_s=60.0)
    world.step(0.0, *job("young", 1))
    world.step(10.0, *urgent(10.0))
    world.step(59.0)
    assert not world.evicted
    assert 60.0 in world.cluster.state.pending.preemption_retry_at
    world.step(60.0)
    assert world.evicted == ["young-0"]


def test_the_time_of_members_that_have_ended_does_not_count() -> None:
    world = World(factories.node("n"), min_runtime_s=60.0)
    group, first, second = job("young", 2, 4, least=1)
    assert isinstance(first, PodSeen)
    ended = replace(first, node="n", phase="Succeeded", started=0.0)
    world.step(100.0, group, ended, second)
    world.step(110.0, *urgent(110.0))
    assert not world.evicted
    world.step(160.0)
    assert world.evicted == ["young-1"]


def test_members_above_the_minimum_go_at_any_time() -> None:
    world = World(factories.node("a"), factories.node("b"), min_runtime_s=60.0)
    world.step(0.0, *job("elastic", 2, least=1))
    world.step(1.0, *urgent(1.0))
    assert world.evicted == ["elastic-1"]


def test_the_nearest_queue_says_how_long() -> None:
    queues = [QueueSeen("org", min_runtime_s=50.0), QueueSeen("team", parent="org")]
    world = World(factories.node("n"), *queues, min_runtime_s=10.0)
    world.step(0.0, *job("young", 1, queue="team"))
    world.step(20.0, *urgent(20.0, queue="team"))
    assert not world.evicted
    world.step(21.0, replace(queues[1], min_runtime_s=20.0))
    world.step(24.0)
    assert world.evicted == ["young-0"]


def test_a_pods_cooldown_is_a_least_time_too() -> None:
    world = World(factories.node("n"))
    world.step(0.0, *job("young", 1, cooldown_s=30.0))
    world.step(20.0, *urgent(20.0))
    assert not world.evicted
    world.step(30.0)
    assert world.evicted == ["young-0"]


@pytest.mark.parametrize("cooldown_s", [0.0, 600.0])
def test_other_queues_wait_too(cooldown_s: float) -> None:
    """For the minimum run time of the queue, but for no cooldown of pods on what it has borrowed."""
    world = World(
        factories.node("n"),
        QueueSeen("ours"),
        QueueSeen("theirs", min_runtime_s=60.0),
        half_life_s=0.0,
    )
    for number in range(2):
        theirs = job(
            f"t{number}", 1, gpus=4, queue="theirs", created=float(number), cooldown_s=cooldown_s
        )
        world.step(0.0, *theirs)
    world.step(10.0, *job("mine", 1, gpus=4, queue="ours", created=10.0))
    now: float | None = 10.0
    while not world.evicted and now is not None:
        assert now < 60.0
        now = due(world.cluster, now)
        world.step(now or 0.0)
    assert now == 60.0
    assert world.evicted == ["t1-0"]


def deserving(gpus: int, name: str = "q", **other: object) -> QueueSeen:
    return QueueSeen(name, deserved=((GPU, gpus),), **other)  # type: ignore[arg-type]  # a test's shorthand


def test_what_is_never_evicted_runs_inside_what_its_queue_deserves() -> None:
    world = World(factories.node("a"), factories.node("b"), deserving(8))
    kept = job("kept", 1, queue="q", preemptable=False)
    more = job("more", 1, queue="q", preemptable=False, created=1.0)
    assert world.step(0.0, *kept, *more) == ["kept-0"]
    assert world.told["more"].startswith(
        "gangs that are not preemptable may use the deserved 8 GPUs of queue q, and use 8; 8 more are needed"
    )
    assert world.step(1.0, *job("free", 1, queue="q", created=2.0)) == ["free-0"]


def test_preemptable_gangs_do_not_count_against_it() -> None:
    world = World(factories.node("a"), factories.node("b"), deserving(8))
    assert world.step(0.0, *job("free", 1, queue="q")) == ["free-0"]
    assert world.step(1.0, *job("kept", 1, queue="q", preemptable=False)) == ["kept-0"]


def test_it_stays_inside_what_the_department_deserves() -> None:
    queues = [
        deserving(8, "org"),
        deserving(8, "team", parent="org"),
        QueueSeen("other", parent="org"),
    ]
    world = World(factories.node("a"), factories.node("b"), *queues)
    assert world.step(0.0, *job("k0", 1, queue="other", preemptable=False)) == ["k0-0"]
    assert world.step(1.0, *job("k1", 1, queue="team", preemptable=False, created=1.0)) == []
    assert "queue org (above team)" in world.told["k1"]


def test_a_queue_that_deserves_nothing_by_name_is_not_limited() -> None:
    world = World(factories.node("a"), QueueSeen("q"))
    assert world.step(0.0, *job("kept", 1, queue="q", preemptable=False)) == ["kept-0"]


def test_what_is_larger_than_the_deserved_amount_never_starts() -> None:
    world = World(factories.node("a"), deserving(4))
    world.step(0.0, *job("kept", 1, queue="q", preemptable=False))
    assert world.told["kept"].startswith("can never start: gangs that are not preemptable")
