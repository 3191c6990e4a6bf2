"""A gang of which only a part was bound is undone, and asked again where that was refused."""

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import BindDone, EvictDone, PodGone
from central.scheduler import containment
from central.scheduler.cycle import due, schedule_once
from central.scheduler.partial_gangs import UNDO_AFTER_S
from central.scheduler.scheduler import Scheduler
from tests.central import factories


def partly_bound(pods: int, confirmed: int) -> Scheduler:
    """At 1.0 the last pod is gone; of the others so many bindings were confirmed."""
    scheduler = new_scheduler(factories.LEVELS)
    members = [factories.pod(f"g-{rank}", 8, "g") for rank in range(pods)]
    nodes = [factories.node(f"n{rank}") for rank in range(pods)]
    bound = schedule_once(scheduler, [*nodes, factories.gang("g", pods), *members], 0.0)
    where = {each.pod: each.node for each in bound if isinstance(each, Bind)}
    answers = [
        fact
        for each in members[:confirmed]
        for fact in (
            BindDone(each.uid, where[each.uid]),
            factories.pod(each.name, 8, "g", node=where[each.uid]),
        )
    ]
    schedule_once(scheduler, [*answers, PodGone(members[-1].uid)], 1.0)
    return scheduler


def evicted(decisions: list[Decision]) -> list[str]:
    return [each.name for each in decisions if isinstance(each, Evict)]


def test_a_binding_without_an_answer_is_not_evicted_yet() -> None:
    scheduler = partly_bound(4, confirmed=2)
    assert due(scheduler, 1.0) == 1.0 + UNDO_AFTER_S
    assert evicted(schedule_once(scheduler, [], 1.0 + UNDO_AFTER_S)) == ["g-0", "g-1"]


def test_a_refused_eviction_is_asked_again_after_the_same_time() -> None:
    scheduler = partly_bound(2, confirmed=1)
    first = 1.0 + UNDO_AFTER_S
    assert evicted(schedule_once(scheduler, [], first)) == ["g-0"]
    refused = EvictDone("uid-g-0", "a PodDisruptionBudget forbids the eviction")
    assert evicted(schedule_once(scheduler, [refused], first + 1.0)) == []
    assert evicted(schedule_once(scheduler, [], first + UNDO_AFTER_S - 0.5)) == []
    assert evicted(schedule_once(scheduler, [], first + UNDO_AFTER_S)) == ["g-0"]
    assert evicted(schedule_once(scheduler, [], first + 2 * UNDO_AFTER_S)) == [], "it is leaving"


def test_a_gang_that_is_whole_again_in_time_keeps_its_pods() -> None:
    scheduler = partly_bound(2, confirmed=1)
    again = factories.pod("g-9", 8, "g")
    decisions = schedule_once(scheduler, [again], UNDO_AFTER_S)
    assert [each.name for each in decisions if isinstance(each, Bind)] == ["g-9"]
    assert evicted(schedule_once(scheduler, [], 1.0 + UNDO_AFTER_S)) == []


def test_a_gang_that_is_set_aside_has_no_cycle_due_before_it_is_tried_again() -> None:
    scheduler = partly_bound(2, confirmed=1)
    gang = scheduler.state.gangs["ns", "g", True]
    containment.set_gang_aside(scheduler, gang, ValueError("a bug"))
    now = 2.0 + UNDO_AFTER_S
    for _ in range(2):
        assert evicted(schedule_once(scheduler, [], now)) == []
    again = due(scheduler, now)
    assert again is not None
    assert again > now
    assert evicted(schedule_once(scheduler, [], again)) == ["g-0"]
