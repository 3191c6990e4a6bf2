"""Budgets, machines, and the agenda, each by itself."""

import pytest

from central.model.wording import format_duration
from central.simulator import machines
from central.simulator.documents import BadInput
from central.simulator.event_queue import EventQueue
from central.simulator.sim_budgets import DisruptionBudget
from tests.captures import machines as made


def budget(**spec: object) -> DisruptionBudget:
    raw = {"spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}
    return DisruptionBudget.read("ns", "b", raw, BadInput)


@pytest.mark.parametrize(
    ("spec", "pods", "running", "allowed"),
    [
        ({"minAvailable": 2}, 3, 3, True),
        ({"minAvailable": 3}, 3, 3, False),
        ({"minAvailable": "30%"}, 10, 4, True),
        ({"minAvailable": "30%"}, 10, 3, False),
        ({"maxUnavailable": 1}, 3, 3, True),
        ({"maxUnavailable": 1}, 3, 2, False),
        ({"maxUnavailable": "25%"}, 5, 5, True),
        ({"maxUnavailable": "25%"}, 5, 4, True),
        ({"maxUnavailable": 0}, 5, 5, False),
    ],
)
def test_budgets(spec: dict[str, object], pods: int, running: int, allowed: bool) -> None:
    found = budget(**spec)
    found.pods = {str(i) for i in range(pods)}
    found.running = {str(i) for i in range(running)}
    found.there = True
    assert found.allows() is allowed


def test_a_budget_covers_by_labels_and_expressions() -> None:
    assert budget(minAvailable=1).covers("ns", {"app": "web", "x": "y"})
    assert not budget(minAvailable=1).covers("other", {"app": "web"})
    rule = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}
    assert budget(minAvailable=1, selector=rule).covers("ns", {"tier": "b"})
    assert not budget(minAvailable=1, selector=rule).covers("ns", {"tier": "a"})


@pytest.mark.parametrize(
    "spec",
    [{}, {"minAvailable": 1, "maxUnavailable": 1}, {"minAvailable": "x"}, {"maxUnavailable": -1}],
)
def test_a_budget_that_says_nothing_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"^spec"):
        budget(**spec)


def test_the_machines_are_what_the_agent_makes_of_the_captures() -> None:
    """python -m tests.captures.machines writes them."""
    kept = {file.name: file.read_text() for file in machines.FOLDER.glob("*.json")}
    assert kept == made.made()


def test_every_machine_can_be_had_by_name() -> None:
    for name in machines.known():
        topology, has = machines.named(name)
        assert topology.gpus
        assert topology.shape().count == len(topology.gpus)
        assert set(has) <= {"cpu", "memory"}
    with pytest.raises(machines.Unknown, match="hgx-h100-8"):
        machines.named("abacus")


def test_the_agenda_keeps_order_at_one_moment() -> None:
    agenda: EventQueue[str] = EventQueue()
    for at, thing in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        agenda.note(at, thing)
    assert agenda.next_at() == 1.0
    assert agenda.take(1.0) == ["a", "b"]
    assert agenda.take(2.0) == ["c"]
    assert not len(agenda)


@pytest.mark.parametrize(
    ("span_s", "text"),
    [(0.5, "0.5 s"), (90, "90 s"), (3600, "60 min"), (9000, "2 h 30 min"), (200_000, "2 d 7 h")],
)
def test_spans_in_words(span_s: float, text: str) -> None:
    assert format_duration(span_s) == text
