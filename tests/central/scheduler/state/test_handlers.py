"""What facts change in the state, one by one."""

from dataclasses import replace
from typing import Any

import pytest

from central.model.facts import EvictDone, Fact, NodeGone, PodGone
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.pods import start_leaving
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import gang_members
from central.scheduler.state.handlers import (
    EVICTION_BACKOFF_MAX_S,
    EVICTION_BACKOFF_S,
    EVICTION_UNKNOWN_S,
)
from tests.central import factories
from tests.central.scheduler import recounts
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.queues.queued_gangs import played

RUNNING = factories.pod("p", 1, "g", node="a", phase="Running")


def running() -> Scheduler:
    scheduler, _ = played(factories.node("a"), factories.gang("g", 1), RUNNING)
    return scheduler


def test_a_pod_that_runs_already_is_timed_from_its_first_sight() -> None:
    scheduler = running()
    pod = scheduler.state.pods[RUNNING.uid]
    assert pod.since == 0.0
    schedule_once(scheduler, [replace(RUNNING, labels=(("a", "b"),))], 50.0)
    assert pod.since == 0.0
    waiting = factories.pod("later", 1, "g", node="a")
    schedule_once(scheduler, [waiting], 60.0)
    assert scheduler.state.pods[waiting.uid].since is None
    schedule_once(scheduler, [replace(waiting, phase="Running")], 70.0)
    assert scheduler.state.pods[waiting.uid].since == 70.0


def test_phases_that_change_are_counted_and_nothing_else() -> None:
    """Numbers in reasons depend on them: pods that are Pending use no disruption budget."""
    scheduler = running()
    before = scheduler.state.pending.budget_uses_changed
    schedule_once(scheduler, [replace(RUNNING, labels=(("a", "b"),))], 1.0)
    assert scheduler.state.pending.budget_uses_changed == before
    schedule_once(scheduler, [replace(RUNNING, phase="Succeeded")], 2.0)
    assert scheduler.state.pending.budget_uses_changed == before + 1


@pytest.mark.parametrize("ours", [True, False])
def test_some_pod_leaves_while_one_is_terminating_on_a_node(ours: bool) -> None:
    scheduler = running()
    state = scheduler.state
    other = factories.pod("q", 1, "h" if ours else "", node="a", phase="Running", ours=ours)
    story: list[tuple[Fact, bool]] = [
        (other, False),
        (replace(other, deleting=True), True),
        (replace(other, deleting=True, labels=(("a", "b"),)), True),
        (PodGone(other.uid), False),
        (factories.pod("r", 99, "h" if ours else "", ours=ours, deleting=True), False),
    ]
    for number, (fact, leaves) in enumerate(story):
        schedule_once(scheduler, [fact], float(number))
        assert state.some_pod_leaves() == leaves, fact
        check_invariants(scheduler)


def test_a_pod_whose_eviction_is_refused_leaves_no_more() -> None:
    scheduler = running()
    pod = scheduler.state.pods[RUNNING.uid]
    start_leaving([pod])
    gang_members.touch(scheduler.state, pod)
    assert scheduler.state.some_pod_leaves()
    schedule_once(scheduler, [], 1.0)
    assert scheduler.state.some_pod_leaves()
    schedule_once(scheduler, [EvictDone(RUNNING.uid, "no")], 2.0)
    assert not scheduler.state.some_pod_leaves()
    start_leaving([pod])
    with pytest.raises(AssertionError, match="leave, which was not noted"):
        recounts.check_leaving(scheduler.state.pending, scheduler.state.gangs.values())


def refuse(scheduler: Scheduler, now: float, *, unknown: bool = False) -> float:
    """Asks for the pod's eviction, which is refused. Until when it is not asked again, from then."""
    pod = scheduler.state.pods[RUNNING.uid]
    start_leaving([pod])
    schedule_once(scheduler, [EvictDone(RUNNING.uid, "no", unknown=unknown)], now)
    assert not pod.evicting
    assert pod.evict_backoff.not_before in scheduler.state.pending.preemption_retry_at
    return pod.evict_backoff.not_before - now


def test_each_refusal_of_an_eviction_doubles_its_backoff() -> None:
    scheduler, now, waits = running(), 1.0, []
    for _ in range(8):
        waits.append(refuse(scheduler, now))
        now += waits[-1]
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]
    assert (waits[0], waits[-1]) == (EVICTION_BACKOFF_S, EVICTION_BACKOFF_MAX_S)


def test_an_eviction_without_an_answer_is_asked_again_soon_and_doubles_nothing() -> None:
    scheduler = running()
    assert refuse(scheduler, 1.0) == EVICTION_BACKOFF_S
    assert refuse(scheduler, 100.0, unknown=True) == pytest.approx(EVICTION_UNKNOWN_S)
    assert refuse(scheduler, 200.0) == 2 * EVICTION_BACKOFF_S


def test_a_refusal_that_is_reported_twice_counts_once() -> None:
    scheduler = running()
    refuse(scheduler, 1.0)
    schedule_once(scheduler, [EvictDone(RUNNING.uid, "no"), EvictDone("uid-nobody", "no")], 2.0)
    assert scheduler.state.pods[RUNNING.uid].evict_backoff == (1, 61.0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_pod_has_its_gpus_still_when_its_node_is_deleted_and_added_again(whole: bool) -> None:
    """The kubelet does so, and the first report of the agent may be older than the pod's devices there."""
    topology = factories.topology(4, shares=not whole)
    fields: dict[str, Any] = {"gang": "g", "node": "a", "phase": "Running"}
    pod = factories.pod("p", 2, **fields) if whole else factories.part("p", 50, **fields)
    grant = factories.grant("p", 2, 3) if whole else factories.grant_part("p", 3, 50)
    mask = 0b1100 if whole else 0b1000
    node = factories.node("a", gpus=4, shares=not whole)
    report = factories.report("a", topology, 1, (grant,))
    scheduler, _ = played(node, factories.gang("g", 1), pod, report)
    assert scheduler.state.pods[pod.uid].gpus == mask
    schedule_once(scheduler, [NodeGone("a")], 50.0)
    check_invariants(scheduler)
    schedule_once(scheduler, [node, factories.report("a", topology, 2)], 60.0)
    check_invariants(scheduler)
    assert scheduler.state.pods[pod.uid].gpus == mask
    assert scheduler.state.nodes["a"].free() == 0b1111 & ~mask
