"""A node filter whose refusal begins and ends at a time: results are kept until then, and gangs that wait are tried
then."""

from dataclasses import replace
from math import inf

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, NodeSeen, PodSpec, Toleration
from central.scheduler import cycle, rebuild
from central.scheduler.filters import node_filters
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

SHY = Toleration("shy", "Exists", "", "")
NODES: list[Fact] = [
    factories.node("a", labels={"shut": "100-200"}),
    factories.node("b", labels={"shut": "0-150"}),
    factories.node("c", labels={"shut": "0-inf"}),
]


def shut(spec: PodSpec, node: NodeSeen) -> str:
    return "shut" if SHY in spec.tolerations and "shut" in node.labels else ""


def shut_period(spec: PodSpec, node: NodeSeen) -> tuple[float, float]:
    begin, end = node.labels["shut"].split("-")
    return float(begin), float(end)


@pytest.fixture(autouse=True)
def filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_filters, "REFUSALS", (*node_filters.REFUSALS, shut))
    monkeypatch.setattr(node_filters, "PERIODS", {shut: shut_period})


@pytest.fixture
def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    step(made, 1.0, *NODES, *(factories.report(name) for name in "abc"))
    return made


def shy(name: str, gpus: int = 8) -> Fact:
    return replace(pod := factories.pod(name, gpus), spec=replace(pod.spec, tolerations=(SHY,)))


def step(scheduler: Scheduler, now: float, *facts: Fact) -> dict[str, str]:
    """The node of each pod that is bound now."""
    decided: list[Decision] = cycle.schedule_once(scheduler, facts, now)
    check_invariants(scheduler)
    return {each.name: each.node for each in decided if isinstance(each, Bind)}


def due(scheduler: Scheduler, now: float) -> float | None:
    """Once all that can be decided now is decided."""
    while (at := cycle.due(scheduler, now)) is not None and at <= now:
        assert step(scheduler, now) == {}
    return at


def reason(scheduler: Scheduler, name: str) -> str:
    [gang] = (gang for gang in scheduler.state.gangs.values() if gang.name == name)
    return gang.attempt.reason


def test_the_first_refusal_that_holds_is_the_reason() -> None:
    a = factories.node("a", labels={"shut": "100-200"})
    spec = factories.spec(1, tolerations=(SHY,))
    found = [node_filters.result(spec, a, now) for now in (99.0, 100.0, 199.0, 200.0)]
    assert found == [("", 100.0), ("shut", 200.0), ("shut", 200.0), ("", inf)]
    assert node_filters.result(factories.spec(1), a, 150.0) == ("", inf)
    down = factories.node("a", labels={"shut": "100-200"}, ready=False)
    assert node_filters.result(spec, down, 150.0) == ("not ready", inf)


def test_a_gang_that_waits_is_tried_when_a_refusal_ends(scheduler: Scheduler) -> None:
    assert step(scheduler, 10.0, shy("p"), shy("q")) == {"p": "a"}
    assert "2 nodes: shut" in reason(scheduler, "q")
    assert due(scheduler, 10.0) == 100.0
    assert step(scheduler, 100.0) == {}
    said = "2 nodes: shut; 1 node: shut, lacks 8 of 8 GPUs"
    assert said in reason(scheduler, "q"), "the sentence is renewed when one begins"
    assert due(scheduler, 100.0) == 150.0
    assert step(scheduler, 149.0) == {}
    assert step(scheduler, 150.0) == {"q": "b"}


def test_a_pod_of_another_class_is_not_concerned(scheduler: Scheduler) -> None:
    assert len(step(scheduler, 120.0, *(factories.pod(name, 8) for name in "pqr"))) == 3
    assert due(scheduler, 120.0) is None


def test_a_refusal_begins_though_the_node_was_filtered_before(scheduler: Scheduler) -> None:
    assert step(scheduler, 10.0, shy("p", 1)) == {"p": "a"}
    assert step(scheduler, 100.0, shy("q", 1)) == {}
    assert step(scheduler, 200.0) == {"q": "a"}


def test_a_state_that_is_built_again_wakes_up_too(scheduler: Scheduler) -> None:
    step(scheduler, 110.0, shy("p"))
    rebuild.rebuild(scheduler)
    assert step(scheduler, 111.0) == {}
    assert due(scheduler, 111.0) == 150.0
    assert step(scheduler, 150.0) == {"p": "b"}
