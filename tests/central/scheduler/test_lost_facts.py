"""Facts that nobody repeats count although their handlers raise, and what is gone never comes back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, SetStatus
from central.model.facts import (
    Answered,
    BindFailed,
    EvictDone,
    Fact,
    HyperNodeSeen,
    NodeOffers,
    NodeSilent,
    PodGone,
    PodSeen,
    QueueSeen,
)
from central.scheduler import apply as apply_module
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.status.status_writes import FAILED_S
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job

Register = Callable[[type, bool], None]


@pytest.fixture(params=[False, True], ids=["before", "after"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the handler of a kind of fact raise, before or after it has changed the state."""

    def register(kind: type, late: bool = request.param) -> None:
        real = apply_module.HANDLERS[kind]

        def fails(scheduler: Scheduler, fact: Any) -> None:
            if late:
                real(scheduler, fact)
            raise KeyError("a handler's bug")

        monkeypatch.setitem(apply_module.HANDLERS, kind, fails)

    return register


def cycle(scheduler: Scheduler, now: float, *facts: Fact) -> list[Decision]:
    decisions = schedule_once(scheduler, facts, now)
    check_invariants(scheduler)
    return decisions


def bound(decisions: list[Decision]) -> list[Bind]:
    return [each for each in decisions if isinstance(each, Bind)]


def written(decisions: list[Decision], kind: str) -> list[str]:
    return [each.name for each in decisions if isinstance(each, SetStatus) and each.kind == kind]


def test_a_silent_agent_is_known_as_silent(broken: Callable[..., None]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    cycle(scheduler, 0.0, factories.node("a"), factories.report("a"))
    broken(NodeSilent)
    cycle(scheduler, 1.0, NodeSilent("a"))
    assert scheduler.state.nodes["a"].silent
    cycle(scheduler, 2.0, factories.report("a", generation=2))
    assert not scheduler.state.nodes["a"].silent


def test_a_restart_of_an_agent_is_known(broken: Callable[..., None]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    cycle(scheduler, 0.0, factories.node("a"), factories.report("a"))
    broken(NodeOffers)
    assert not bound(cycle(scheduler, 1.0, NodeOffers("a", offered=False), *job("j", 1)))
    assert len(bound(cycle(scheduler, 2.0, NodeOffers("a", offered=True)))) == 1


def test_a_binding_that_is_refused_for_good_is_not_repeated(broken: Callable[..., None]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    (bind,) = bound(cycle(scheduler, 0.0, factories.node("a"), *job("j", 1)))
    broken(BindFailed)
    decisions = cycle(scheduler, 1.0, BindFailed(bind.pod, bind.node, "it is gone", final=True))
    assert not bound(decisions)
    assert scheduler.state.pods[bind.pod].bind_error == "it is gone"


def test_an_eviction_that_is_refused_ends(broken: Callable[..., None]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    low = factories.pod("low", 8, node="a", phase="Running")
    decisions = cycle(scheduler, 0.0, factories.node("a"), low, *job("high", 1, priority=5))
    (evict,) = (each for each in decisions if isinstance(each, Evict))
    broken(EvictDone)
    cycle(scheduler, 1.0, EvictDone(evict.pod, "a budget forbids it", evict.trial))
    assert not scheduler.state.pods[low.uid].evicting


@pytest.mark.parametrize("kind", ["Queue", "HyperNode"])
def test_a_status_is_written_again(kind: str, broken: Callable[..., None]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    fact = QueueSeen("q", uid="u") if kind == "Queue" else HyperNodeSeen("q", 1, uid="u")
    assert "q" in written(cycle(scheduler, 0.0, factories.node("a"), fact), kind)
    broken(Answered)
    decisions = cycle(scheduler, 1.0, Answered("SetStatus", kind, "", "q", why="refused"))
    changed = replace(fact, **({"closed": True} if kind == "Queue" else {"tier": 2}))
    decisions += cycle(scheduler, 2.0, changed)
    decisions += cycle(scheduler, 2.0 + FAILED_S, factories.node("b"))
    assert "q" in written(decisions, kind)


def test_a_pod_that_is_gone_does_not_come_back(
    broken: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was set aside, its deletion fails, and a pod of its name has been created since."""
    scheduler = new_scheduler(factories.LEVELS)
    old = factories.pod("p", 1, node="a", phase="Running")
    cycle(scheduler, 0.0, factories.node("a"))
    with monkeypatch.context() as patch:
        patch.setitem(apply_module.HANDLERS, PodSeen, lambda *_: 1 / 0)
        cycle(scheduler, 1.0, old)
    broken(PodGone)
    cycle(scheduler, 100.0, replace(old, uid="uid-new", node="", phase="Pending"), PodGone(old.uid))
    cycle(scheduler, 1000.0)
    assert scheduler.state.pods.keys() == {"uid-new"}
    assert not scheduler.quarantine.set_asides


def test_an_object_that_is_created_again_and_again_costs_one_rebuild(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    real = apply_module.HANDLERS[PodSeen]

    def fails(scheduler: Scheduler, fact: PodSeen) -> None:
        if fact.namespace == "tenant":
            raise OverflowError
        real(scheduler, fact)

    monkeypatch.setitem(apply_module.HANDLERS, PodSeen, fails)
    cycle(scheduler, 0.0, factories.node("a"))
    for number in range(1, 20):
        poison = replace(factories.pod("p", 1), uid=f"uid-{number}", namespace="tenant")
        cycle(scheduler, float(number), poison)
        cycle(scheduler, number + 0.5, PodGone(poison.uid))
    assert bound(cycle(scheduler, 30.0, *job("other", 1)))
    assert scheduler.state.pending.wakeups["state rebuilt"] == 1
