"""Whatever is set aside, its owner reads why: in the status of its PodGroup or pod, in an Event, in explain, in the
metric and the log. Nobody else waits, and nothing else is set aside."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.resource_paths import BY_KIND
from central.model.decisions import Create, Decision, EmitWarning, UpdateGangStatus
from central.model.event_reasons import SET_ASIDE
from central.model.facts import ElasticSeen, Fact, GangGone, OwnerSeen, PodSeen, QueueSeen
from central.model.jobspec import ElasticTask
from central.scheduler import apply as apply_module
from central.scheduler import containment
from central.scheduler.cycle import due, schedule_once
from central.scheduler.queues import quota
from central.scheduler.scheduler import Scheduler
from central.server.queries import SET_ASIDE_OF_CLUSTER, explain
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job
from tests.central.scheduler.whole_cycle import WholeCycle

WHY = "set aside after a failure of the scheduler (a bug): "
GROUP = factories.gang("poison", 2, queue="default")
PODS = job("poison", 2, gpus=0)[1:]
Order = list[list[Fact]]
ORDERS: dict[str, Order] = {
    "group first": [[GROUP], [], PODS],
    "pods first": [PODS, [], [GROUP]],
    "at once": [[GROUP, *PODS]],
    "one by one": [[GROUP], PODS[:1], PODS[1:]],
    "no pods": [[GROUP]],
}


def statuses(decisions: list[Decision], name: str) -> list[UpdateGangStatus]:
    return [each for each in decisions if isinstance(each, UpdateGangStatus) and each.gang == name]


def events(decisions: list[Decision], name: str) -> list[EmitWarning]:
    """About the object, its PodGroup or its pods."""
    found = [each for each in decisions if isinstance(each, EmitWarning)]
    return [e for e in found if e.reason == SET_ASIDE and (e.name + "-").startswith(f"{name}-")]


def assert_said(world: WholeCycle, bug: str) -> None:
    scheduler = world.scheduler
    said = [each for each in statuses(world.decisions, "poison") if each.has_object]
    assert said, "its PodGroup has no status"
    assert WHY in said[-1].reason
    assert bug in said[-1].reason
    waiting = {pod.name for pod in world.pods.values() if pod.gang == "poison" and not pod.node}
    written = [each for each in statuses(world.decisions, "poison") if bug in each.reason]
    assert waiting <= {name for each in written for name in each.pods}
    assert any(bug in each.why for each in events(world.decisions, "poison"))
    found = explain(scheduler, "ns", "poison")
    assert found is not None
    assert bug in found.reason
    assert {each.name for each in scheduler.quarantine.set_asides.values()} == {"poison"}
    assert scheduler.quarantine.counts() == {"gang": 1}
    assert any(each.name == "poison" for each in scheduler.quarantine.take_failures())


def refusing(request: quota.StartRequest) -> str:
    if request.gang.name == "poison":
        raise KeyError("a policy")
    return ""


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
def test_the_owner_of_a_podgroup_reads_why_its_gang_is_set_aside(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its turn fails or, as long as it has no pods, its admission."""
    monkeypatch.setattr(quota, "QUEUE_POLICIES", (*quota.QUEUE_POLICIES, refusing))
    world = WholeCycle()
    world.begin()
    world.decisions.clear()
    for number, facts in enumerate((*ORDERS[order], [], [])):
        probe = world.probe(f"probe-{number}")
        assert f"probe-{number}-0" in world.cycle(*facts, *probe), "somebody else waits"
        at = due(world.scheduler, world.now)
        assert at is None or at >= world.now, "a cycle is due for ever"
    assert_said(world, "KeyError: 'a policy'")


# --- facts that a handler fails on --------------------------------------------------

SIZED = ElasticSeen("JobSet", "ns", "sized", "uid-sized", "jobset/sized", ElasticTask("w", 1, 2), 1)
OBJECTS: list[tuple[Fact, str, str]] = [  # with the kind and the uid that the Event is about
    (factories.pod("bad", 1), "Pod", "uid-bad"),
    (factories.gang("bad", 1, uid="u"), "PodGroup", "u"),
    (factories.node("bad"), "Node", "bad"),
    (factories.report("bad"), "Node", "bad"),
    (QueueSeen("bad", uid="u"), "Queue", "u"),
    (factories.budget("bad", 1), "PodDisruptionBudget", ""),
    (SIZED, "JobSet", "uid-sized"),
]


def failing(monkeypatch: pytest.MonkeyPatch, *poison: Fact) -> None:
    """The handlers raise for these facts."""

    def handler(real: Callable[[Scheduler, Any], None]) -> Callable[[Scheduler, Any], None]:
        def handle(scheduler: Scheduler, fact: Any) -> None:
            if fact in poison:
                raise KeyError("a handler")
            real(scheduler, fact)

        return handle

    for kind in {type(fact) for fact in poison}:
        real = apply_module.HANDLERS[kind]
        monkeypatch.setitem(apply_module.HANDLERS, kind, handler(real))


@pytest.mark.parametrize(
    ("fact", "kind", "uid"), OBJECTS, ids=[type(fact).__name__ for fact, *_ in OBJECTS]
)
def test_the_owner_of_an_object_reads_why_it_is_set_aside(
    fact: Fact, kind: str, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, fact)
    scheduler = new_scheduler(factories.LEVELS)
    decisions = schedule_once(scheduler, [factories.node("a"), fact], 0.0)
    (aside,) = scheduler.quarantine.set_asides.values()
    if kind == "JobSet":
        (created,) = (each for each in decisions if isinstance(each, Create))
        about = created.body["involvedObject"]
        assert (about["kind"], about["name"], about["uid"]) == (kind, "sized", uid)
        assert created.body["reason"] == SET_ASIDE
    else:
        (event,) = events(decisions, aside.name)
        assert (event.namespace, event.kind, event.name, event.pod) == (
            *(aside.namespace, kind, aside.name, uid),
        )
        assert event.why == aside.why
        assert (event.gang, event.native_version) == ("", "")
    found = explain(scheduler, "ns", aside.name)
    assert found is not None
    assert found.reason == (aside.why if aside.namespace else SET_ASIDE_OF_CLUSTER)
    updates = statuses(decisions, "bad")
    assert {each.namespace for each in updates} <= {"ns"}
    if kind == "PodGroup":
        assert [(each.phase, each.reason, each.has_object) for each in updates] == [
            ("Unknown", aside.why, True)
        ]
    elif kind == "Pod":
        assert [(each.phase, each.reason, each.has_object, each.pods) for each in updates] == [
            ("Pending", aside.why, False, ("bad",))
        ]
    else:
        assert not updates


def test_a_pod_that_runs_or_is_of_another_scheduler_gets_no_condition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = factories.pod("runs", 1, node="a", phase="Running")
    other = factories.pod("other", 1, ours=False)
    failing(monkeypatch, runs, other)
    decisions = schedule_once(
        new_scheduler(factories.LEVELS), [factories.node("a"), runs, other], 0.0
    )
    assert len(events(decisions, "runs")) == len(events(decisions, "other")) == 1
    assert not [each for each in decisions if isinstance(each, UpdateGangStatus)]


def test_pods_of_a_podgroup_that_is_set_aside_have_one_status_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever comes first. It goes back to what it was when the PodGroup is read again."""
    failing(monkeypatch, GROUP)
    for order in ([GROUP], PODS), (PODS, [GROUP]):
        scheduler = new_scheduler(factories.LEVELS)
        decisions = schedule_once(scheduler, [factories.node("a"), *order[0]], 0.0)
        decisions += schedule_once(scheduler, order[1], 1.0)
        last = statuses(decisions, "poison")[-1]
        assert (last.has_object, last.pods) == (True, ("poison-0", "poison-1"))
        assert last.reason.startswith(f"PodGroup poison is {WHY}")
        assert events(decisions, "poison")
    mended = replace(GROUP, min_member=1)
    (last,) = statuses(schedule_once(scheduler, [mended], 2.0), "poison")
    assert (last.phase, last.reason) == ("Running", "2 of 2 pods placed on node a")


@pytest.mark.parametrize(("native", "declared"), [("v1alpha2", False), ("", True)])
def test_a_group_that_may_be_anothers_is_left_alone_until_it_has_pods(
    native: str, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler reads native PodGroups, too; there is no PodGroup for a gang that a controller's object
    declares."""
    name = "jobset/g" if declared else "poison"
    group = factories.gang(name, 2, native_version=native, declared=declared)
    failing(monkeypatch, group)
    scheduler = new_scheduler(factories.LEVELS)
    assert not schedule_once(scheduler, [factories.node("a"), group], 0.0)
    pods = [replace(pod, gang=name) for pod in PODS if isinstance(pod, PodSeen)]
    decisions = schedule_once(scheduler, pods, 1.0)
    assert len(decisions) == 1, "they do not start one by one"
    (update,) = statuses(decisions, name)
    assert (update.has_object, update.native_version) == (bool(native), native)
    assert WHY in update.reason


def test_a_gang_says_which_of_its_pods_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    group, *pods = job("g", 4, gpus=0)
    failing(monkeypatch, *pods[1:3])
    scheduler = new_scheduler(factories.LEVELS)
    decisions = schedule_once(scheduler, [factories.node("a"), group, pods[0], pods[3]], 0.0)
    assert statuses(decisions, "g")[-1].reason == "needs 4 pods to start, 2 exist"
    for number, said in ((2, "pod g-2 is"), (1, "pod g-1 and 1 other are")):
        decisions = schedule_once(scheduler, [pods[number]], float(number))
        reason = statuses(decisions, "g")[-1].reason
        assert reason.startswith(f"needs 4 pods to start, 2 exist; {said} {WHY}KeyError")
    mended = next(each for each in pods if isinstance(each, PodSeen) and each.name == "g-1")
    decisions = schedule_once(scheduler, [replace(mended, priority=1)], 3.0)
    reason = statuses(decisions, "g")[-1].reason
    assert reason.startswith(f"needs 4 pods to start, 3 exist; pod g-2 is {WHY}KeyError")


def test_of_many_pods_of_a_gang_the_first_ones_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the others would cost two writes, for which the reasons of other gangs wait."""
    group, *pods = job("g", 30, gpus=0)
    alone = factories.pod("alone", 0, "")
    failing(monkeypatch, *pods, alone)
    scheduler = new_scheduler(factories.LEVELS)
    decisions: list[Decision] = []
    turns: Order = [[group, *pods[:20]], pods[20:], [alone]]
    for at, facts in enumerate(turns):
        decisions += schedule_once(scheduler, facts, float(at))
    assert len(scheduler.quarantine.set_asides) == 31
    assert sum(scheduler.quarantine.total.values()) == 31, "a failure of the notices"
    told = [each.name for each in decisions if isinstance(each, EmitWarning)]
    assert told == [f"g-{number}" for number in range(8)] + ["alone"]
    conditions = [each.gang for each in decisions if isinstance(each, UpdateGangStatus)]
    assert [name for name in conditions if name != "g"] == told


def test_what_no_event_can_name_is_counted_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = OwnerSeen("o", "replicaset/o")
    failing(monkeypatch, owner)
    scheduler = new_scheduler(factories.LEVELS)
    assert not schedule_once(scheduler, [factories.node("a"), owner], 0.0)
    assert scheduler.quarantine.total == {"controller": 1}


def test_a_podgroup_that_was_fine_before_its_pods_came_says_that_its_change_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = replace(GROUP, min_member=1)
    failing(monkeypatch, changed)
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [factories.node("a"), GROUP], 0.0)
    decisions = schedule_once(scheduler, [changed], 1.0)
    decisions += schedule_once(scheduler, [], 2.0)
    last = statuses(decisions, "poison")[-1]
    assert (last.namespace, last.phase, last.has_object) == ("ns", "Unknown", True)
    assert last.reason.startswith(WHY)


# --- what is tried again ---------------------------------------------------------------


def aside_of(world: WholeCycle, *names: str) -> None:
    for name in names:
        gang = world.scheduler.state.gangs["ns", name, True]
        containment.set_gang_aside(world.scheduler, gang, KeyError("a bug"))
    world.decisions.clear()


def test_what_runs_and_a_podgroup_without_pods_say_so_until_they_are_tried_again() -> None:
    """Nobody schedules them, so they have no turn in which they could pass, and a cycle is not due for ever."""
    world = WholeCycle()
    world.begin()
    scheduler, names = world.scheduler, ("high", "planned")
    assert not scheduler.state.gangs["ns", "high", True].missing()
    aside_of(world, *names)
    world.cycle()
    assert due(scheduler, world.now) == world.now, "the statuses"
    world.cycle()
    for name, about in zip(names, (("Pod", "high-0"), ("PodGroup", "planned")), strict=True):
        (update,) = statuses(world.decisions, name)
        assert WHY in update.reason
        assert update.has_object
        (event,) = events(world.decisions, name)
        assert (event.kind, event.name) == about
    assert statuses(world.decisions, "planned")[0].reason.startswith(WHY), "not that it is admitted"
    at = min(scheduler.quarantine.retry_times())
    decisions = schedule_once(scheduler, [], at)
    decisions += schedule_once(scheduler, [], at)
    assert not scheduler.quarantine.set_asides
    assert [WHY in statuses(decisions, name)[-1].reason for name in names] == [False, False]
    later = due(scheduler, at)
    assert later is None or later > at
    check_invariants(scheduler)


def test_the_event_of_a_gang_is_about_its_first_pod() -> None:
    world = WholeCycle()
    world.begin()
    aside_of(world, "equal")
    world.cycle()
    assert [each.name for each in events(world.decisions, "equal")] == ["equal-0"]


def test_a_gang_that_is_gone_meanwhile_needs_no_notice() -> None:
    world = WholeCycle()
    world.begin()
    aside_of(world, "planned")
    world.cycle(GangGone("ns", "planned"))
    assert not events(world.decisions, "planned")
    quarantine = world.scheduler.quarantine
    assert not quarantine.set_asides
    assert [each.name for each in quarantine.take_failures()] == ["planned"], "and nothing failed"


def test_each_kind_that_an_event_names_is_known_to_the_api() -> None:
    assert BY_KIND.keys() >= containment.EVENT_KINDS
