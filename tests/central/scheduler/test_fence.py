"""An exception stops only the object that triggered it. It is tried again when it changes, and after a backoff."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.arrays import Ints
from central.model.decisions import Bind, Decision, EmitWarning, Evict, UpdateGangStatus
from central.model.event_reasons import SET_ASIDE
from central.model.facts import BindFailed, Fact, NodeSeen, PodGone, PodSeen, PodSpec, QueueSeen
from central.model.pod_rules import Requirement, Rules
from central.model.volumes import VolumeSeen
from central.scheduler import apply as apply_module
from central.scheduler.cycle import schedule_once
from central.scheduler.filters import node_filters
from central.scheduler.inventory.pods import BIND_FAILED
from central.scheduler.queues import quota
from central.scheduler.scheduler import Scheduler
from central.scheduler.scoring import preferences
from central.scheduler.scoring.preferences import PreferenceScore, Score
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job
from tests.central.scheduler.volumes.test_local_volumes import gang, racks, volume

PREFERS = Rules(nodes=((1, (Requirement("fast", "Exists", ()),)),))
NODES = [factories.node(name, labels={"poison": "yes"}) for name in ("a", "b")]


def bound(decisions: list[Decision]) -> set[str]:
    return {each.name for each in decisions if isinstance(each, Bind)}


def reason(decisions: list[Decision], gang: str) -> str:
    return next(
        each.reason
        for each in reversed(decisions)
        if isinstance(each, UpdateGangStatus) and each.gang == gang
    )


def poisoned(name: str) -> PodSeen:
    """Of a class of its own."""
    pod = factories.pod(name, 1, cpu=666)
    return replace(pod, spec=replace(pod.spec, node_selector=(("poison", "yes"),)))


def bad_filter(spec: PodSpec, node: NodeSeen) -> str:
    if spec.node_selector:
        raise TypeError("the filter can't read it")
    return ""


def raising_filter(spec: PodSpec, node: NodeSeen) -> str:
    raise TypeError("the filter can't read it")


def bad_policy(request: quota.StartRequest) -> str:
    if request.gang.name == "poison":
        raise KeyError("the policy")
    return ""


def bad_score(score: PreferenceScore) -> Ints | None:
    raise ZeroDivisionError


def with_filter(patch: pytest.MonkeyPatch) -> list[Fact]:
    patch.setattr(node_filters, "REFUSALS", (*node_filters.REFUSALS, bad_filter))
    return [poisoned("poison")]


def with_policy(patch: pytest.MonkeyPatch) -> list[Fact]:
    patch.setattr(quota, "QUEUE_POLICIES", (*quota.QUEUE_POLICIES, bad_policy))
    return [QueueSeen("default"), *job("poison", 1)]


def with_score(patch: pytest.MonkeyPatch) -> list[Fact]:
    patch.setattr(preferences, "SCORES", (*preferences.SCORES, Score(1, bad_score)))
    return [factories.pod("poison", 1, rules=PREFERS)]


@pytest.mark.parametrize("register", [with_filter, with_policy, with_score])
def test_a_row_of_a_table_that_raises_stops_one_gang(
    register: Callable[[pytest.MonkeyPatch], list[Fact]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are placed in the same cycle; the gang has the reason, and is placed once the bug is gone."""
    scheduler = new_scheduler(factories.LEVELS)
    with monkeypatch.context() as patch:
        facts = register(patch)
        decisions = schedule_once(scheduler, [*NODES, *facts, *job("other", 2, gpus=2)], 0.0)
        check_invariants(scheduler)
        assert bound(decisions) == {"other-0", "other-1"}
        assert "set aside after a failure of the scheduler (a bug)" in reason(decisions, "poison")
        assert scheduler.quarantine.counts() == {"gang": 1}
        assert len(scheduler.quarantine.take_failures()) == 1
        schedule_once(scheduler, [factories.node("c")], 1.0)
        assert not scheduler.quarantine.failures_to_log, "it did not change, so it is not tried"
    assert not bound(schedule_once(scheduler, [], 200.0))
    schedule_once(scheduler, [], 301.0)
    assert scheduler.quarantine.counts() == {"gang": 0}


def test_a_filter_that_always_raises_starts_nobody_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A filter says where pods must not run, so it is never left out. What runs stays, and once the filter is mended
    everybody is placed."""
    scheduler = new_scheduler(factories.LEVELS)
    assert bound(schedule_once(scheduler, [*NODES, *job("before", 2)], 0.0))
    with monkeypatch.context() as patch:
        patch.setattr(node_filters, "REFUSALS", (*node_filters.REFUSALS, raising_filter))
        changed = [replace(each, labels={"x": "y"}) for each in NODES]
        for number in range(3):
            facts = [*changed, *job(f"g{number}", 1)]
            decisions = schedule_once(scheduler, facts, 1.0 + number)
            check_invariants(scheduler)
            assert not any(isinstance(each, Bind | Evict) for each in decisions)
            assert reason(decisions, f"g{number}") == (
                "set aside after a failure of the scheduler (a bug): NodeFilterFailed: raising_filter on node a: "
                "TypeError: the filter can't read it; tried again when it changes"
            )
        assert scheduler.quarantine.counts() == {"gang": 3}
    schedule_once(scheduler, NODES, 310.0)
    assert scheduler.quarantine.counts() == {"gang": 0}


def test_a_gang_that_changes_is_tried_at_once_and_then_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    (pod,) = with_filter(monkeypatch)
    assert isinstance(pod, PodSeen)
    schedule_once(scheduler, [*NODES, pod], 0.0)
    tries = 0
    for second in range(1, 120):
        scheduler.quarantine.take_failures()
        schedule_once(scheduler, [replace(pod, priority=second)], float(second))
        tries += len(scheduler.quarantine.failures_to_log)
    assert 2 <= tries <= 4


class Handler:
    """Raises for facts about one object, before or after the state is changed."""

    def __init__(self, real: Callable[[Scheduler, Any], None], poison: Fact, late: bool) -> None:
        self._real, self._poison, self._late, self.calls = real, poison, late, 0

    def __call__(self, scheduler: Scheduler, fact: Any) -> None:
        if fact == self._poison:
            self.calls += 1
            if self._late:
                self._real(scheduler, fact)
            raise RecursionError("deep")
        self._real(scheduler, fact)


FACTS: list[Fact] = [
    factories.node("poison"),
    factories.pod("poison", 1),
    factories.gang("poison", 1),
    QueueSeen("poison"),
    factories.budget("poison", 1),
    factories.report("a"),
    PodGone("uid-old"),
]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("poison", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_handler_that_raises_stops_one_object(
    poison: Fact, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    old = factories.pod("old", 8, node="b", phase="Running")
    schedule_once(scheduler, [*NODES, old], 0.0)
    handlers = apply_module.HANDLERS
    real = handlers[type(poison)]
    handler = Handler(real, poison, late)
    with monkeypatch.context() as patch:
        patch.setitem(handlers, type(poison), handler)
        facts = [poison, *job("other", 1, gpus=2), factories.node("c")]
        decisions = schedule_once(scheduler, facts, 1.0)
        check_invariants(scheduler)
        assert bound(decisions) == {"other-0"}
        assert handler.calls
        for second in range(2, 10):
            schedule_once(scheduler, [], float(second))
        calls = handler.calls
    if not isinstance(poison, PodGone):
        assert sum(scheduler.quarantine.counts().values()) == 1
    schedule_once(scheduler, [], 302.0)
    check_invariants(scheduler)
    assert handler.calls == calls
    assert not sum(scheduler.quarantine.counts().values())
    if isinstance(poison, PodGone):
        assert "uid-old" not in scheduler.state.pods


def test_a_node_whose_report_was_lost_gets_no_pods_until_the_next_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor after further failures, of other objects: without the report its GPUs seem to be free."""
    scheduler, poison = new_scheduler(factories.LEVELS), factories.report("a")
    handlers = apply_module.HANDLERS
    broken = factories.pod("broken", 1)
    for fact in (poison, broken):
        monkeypatch.setitem(handlers, type(fact), Handler(handlers[type(fact)], fact, True))
    schedule_once(scheduler, [*NODES, poison], 0.0)
    decisions = schedule_once(scheduler, [broken, *job("full", 2, least=1)], 1.0)
    decisions += schedule_once(scheduler, [], 2.0)
    assert {each.node for each in decisions if isinstance(each, Bind)} == {"b"}
    decisions = schedule_once(scheduler, [factories.report("a", generation=2)], 3.0)
    assert {each.node for each in decisions if isinstance(each, Bind)} == {"a"}


def test_a_binding_that_failed_is_tried_again_after_a_failure_in_the_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(scheduler: Scheduler, fact: BindFailed) -> None:
        scheduler.state.pods[fact.pod].advance(BIND_FAILED)
        raise KeyError("between the stage and the node")

    scheduler = new_scheduler(factories.LEVELS)
    (bind,) = (d for d in schedule_once(scheduler, [*NODES, *job("j", 1)], 0.0) if type(d) is Bind)
    monkeypatch.setitem(apply_module.HANDLERS, BindFailed, half)
    decisions = schedule_once(scheduler, [BindFailed(bind.pod, bind.node, "no luck")], 1.0)
    check_invariants(scheduler)
    assert not bound(decisions), "the gang backs off, as after every failed binding"
    decisions = schedule_once(scheduler, [], 3.0)
    assert bound(decisions) == {"j-0"}


def test_an_object_that_is_set_aside_has_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, poison = new_scheduler(factories.LEVELS), factories.node("poison")
    handlers = apply_module.HANDLERS
    monkeypatch.setitem(handlers, NodeSeen, Handler(handlers[NodeSeen], poison, True))
    decisions = schedule_once(scheduler, [poison], 0.0)
    (event,) = (each for each in decisions if isinstance(each, EmitWarning))
    assert (event.kind, event.name, event.reason) == ("Node", "poison", SET_ASIDE)
    assert "RecursionError: deep" in event.why


@pytest.mark.parametrize("known", [False, True])
def test_a_running_pod_that_fails_keeps_its_gpus(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the scheduler knew it before or not: nobody else gets what it uses."""
    scheduler = new_scheduler(factories.LEVELS)
    before = factories.pod("runs", 6, node="a", phase="Running")
    schedule_once(scheduler, [factories.node("a"), *([before] if known else ())], 0.0)
    poison, handlers = replace(before, priority=3), apply_module.HANDLERS
    monkeypatch.setitem(handlers, PodSeen, Handler(handlers[PodSeen], poison, True))
    decisions = schedule_once(scheduler, [poison, *job("large", 1, 4), *job("small", 1, 2)], 1.0)
    check_invariants(scheduler)
    assert bound(decisions) == {"small-0"}


def test_a_running_pod_that_fails_keeps_its_share_of_a_nic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two NICs of 40 handles: it has 16 of one, so four others of 16 do not fit beside it."""
    scheduler, nics = new_scheduler(factories.LEVELS), factories.carded(factories.topology(8), 40)
    runs = factories.wishing(factories.pod("runs", 1, node="a", phase="Running"), 16)
    report = factories.report("a", nics, 1, (factories.grant_card("runs", 0),))
    schedule_once(scheduler, [factories.node("a"), report, runs], 0.0)
    poison, handlers = replace(runs, priority=3), apply_module.HANDLERS
    monkeypatch.setitem(handlers, PodSeen, Handler(handlers[PodSeen], poison, True))
    others = [factories.wishing(factories.pod(f"p{i}", 1, created=i), 16) for i in range(4)]
    decisions = schedule_once(scheduler, [poison, *others], 1.0)
    check_invariants(scheduler)
    assert bound(decisions) == {"p0", "p1", "p2"}


@pytest.mark.long
def test_many_objects_with_one_fault_cost_one_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, handlers = new_scheduler(factories.LEVELS), apply_module.HANDLERS
    real = handlers[PodSeen]

    def fails(scheduler: Scheduler, fact: PodSeen) -> None:
        if fact.spec.node_selector:
            raise OverflowError
        real(scheduler, fact)

    monkeypatch.setitem(handlers, PodSeen, fails)
    facts = [*NODES, *(poisoned(f"p{number}") for number in range(300)), *job("other", 1)]
    assert bound(schedule_once(scheduler, facts, 0.0)) == {"other-0"}
    assert scheduler.quarantine.counts() == {"Pod": 300}
    assert scheduler.state.pending.wakeups["state rebuilt"] == 1


def test_a_queue_on_which_the_tree_cannot_be_built_is_set_aside() -> None:
    """The tree is built once for all facts, so the queue is found by bisection."""
    bad = QueueSeen("bad", parent=["not a name"])  # type: ignore[arg-type]  # what a bug may let pass
    queues = [QueueSeen(f"q{i}") for i in range(5)]
    scheduler = new_scheduler(factories.LEVELS)
    pod = factories.pod("good", 1, queue="q4")
    decisions = schedule_once(scheduler, [*NODES, *queues[:3], bad, *queues[3:], pod], 1.0)
    assert bound(decisions) == {"good"}
    set_aside = {key.identity for key in scheduler.quarantine.set_asides if key.kind == "Queue"}
    assert len(set_aside) == 1
    assert "bad" in str(set_aside)
    assert {each.name for each in queues} <= scheduler.queues.by_name.keys()
    check_invariants(scheduler)


@pytest.mark.parametrize(("now", "given"), [("Bound", []), ("Available", [{"c0-0": "a1"}])])
def test_a_volume_whose_news_cannot_be_read_is_free_only_if_they_say_so(
    now: str, given: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = racks()
    schedule_once(scheduler, [volume("a1", "a")], 0.0)
    news, handlers = volume("a1", "a", phase=now, labels=(("x", "y"),)), apply_module.HANDLERS
    monkeypatch.setitem(handlers, VolumeSeen, Handler(handlers[VolumeSeen], news, False))
    decisions = schedule_once(scheduler, [news, *gang(1)], 1.0)
    check_invariants(scheduler)
    assert [dict(each.claims) for each in decisions if isinstance(each, Bind)] == given
