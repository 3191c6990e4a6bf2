"""Two results side by side: what is different for which gang, in numbers and in words."""

import pytest

from central.cli.what_if.comparison import (
    GangOutcome,
    as_json,
    differences,
    outcomes,
    sentence,
    totals,
)
from central.simulator.simulation_result import Evicted, Load, Pending, Placed, SimulationResult


def placed(pod: str, node: str, gang: str = "", at_s: float = 5.0, amount: float = 2.0) -> Placed:
    return Placed(at_s, "ns", pod, node, (), gang, 0.0, amount)


def evicted(pod: str) -> Evicted:
    return Evicted(1.0, "ns", pod, "n1", "preempted")


def test_outcomes_are_those_of_whole_gangs() -> None:
    result = SimulationResult(
        placed=[
            placed("a-0", "n1", "a"),
            placed("a-1", "n2", "a", 9.0),
            placed("a-2", "n1", "a"),
            placed("one", "n3"),
        ],
        waiting=[Pending("ns", "waits", "no room", 2), Pending("ns", "a", "more members", 1)],
        evicted=[evicted("old-0"), evicted("old-1"), evicted("a-1"), evicted("lone")],
    )
    found = outcomes(result, {("ns", "old-0"): "old", ("ns", "old-1"): "old"})
    gone = "evicted from n1: preempted"
    assert found == {
        ("ns", "a"): GangOutcome("waits", 5.0, ("n1", "n2"), 6.0, "more members", [f"a-1 {gone}"]),
        ("ns", "one"): GangOutcome("starts", 5.0, ("n3",), 2.0),
        ("ns", "waits"): GangOutcome("waits", reason="no room"),
        ("ns", "old"): GangOutcome(evicted=[f"old-0 {gone}", f"old-1 {gone}"]),
        ("ns", "lone"): GangOutcome(evicted=[f"lone {gone}"]),
    }


STARTS = GangOutcome("starts", 5.0, ("n1", "n2"), 4.0)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (GangOutcome("starts", 5.0, ("n1", "n2"), 4.0), False),
        (
            GangOutcome("starts", 5.0004, ("n2", "n1"), 8.0),
            False,
        ),  # in another order; of other shares
        (GangOutcome("starts", 5.002, ("n1", "n2"), 4.0), True),
        (GangOutcome("starts", 5.0, ("n1", "n3"), 4.0), True),
        (GangOutcome("waits", 5.0, ("n1", "n2"), 4.0), True),
        (GangOutcome("starts", 5.0, ("n1", "n2"), 4.0, "why"), True),
        (GangOutcome("starts", 5.0, ("n1", "n2"), 4.0, "", ["gone"]), True),
        (None, True),
    ],
)
def test_what_is_different(other: GangOutcome | None, differs: bool) -> None:
    then = {("ns", "g"): other} if other is not None else {}
    for before, after in (({("ns", "g"): STARTS}, then), (then, {("ns", "g"): STARTS})):
        found = differences(before, after)
        assert len(found) == differs
        for each in found:
            nothing = GangOutcome()
            assert (each.before, each.after) == (
                before.get(("ns", "g"), nothing),
                after.get(("ns", "g"), nothing),
            )


def test_differences_come_in_order_of_names() -> None:
    found = differences({("b", "x"): STARTS, ("a", "z"): STARTS}, {("a", "y"): STARTS})
    assert [(each.namespace, each.name) for each in found] == [("a", "y"), ("a", "z"), ("b", "x")]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (GangOutcome("starts", 0.9, ("n1",)), "starts at once on n1"),
        (
            GangOutcome("starts", 1.0, ("n1", "n2", "n3", "n4")),
            "starts after 1 s on n1, n2, n3, n4",
        ),
        (
            GangOutcome("starts", 0.0, ("n1", "n2", "n3", "n4", "n5", "n6")),
            "starts at once on n1, n2, n3, n4 and 2 more",
        ),
        (GangOutcome("waits", reason="no room"), "stays pending: no room"),
        (GangOutcome(evicted=["a", "b", "c"]), "a; b; c"),
        (
            GangOutcome("waits", reason="no", evicted=["a", "b", "c", "d", "e"]),
            "a; b; c; 2 more pods evicted; stays pending: no",
        ),
    ],
)
def test_sentences(outcome: GangOutcome, said: str) -> None:
    assert sentence(outcome, exists=True) == sentence(outcome, exists=False) == said


def test_a_gang_of_which_nothing_is_said() -> None:
    assert sentence(GangOutcome(), exists=True) == "keeps running"
    assert sentence(GangOutcome(), exists=False) == "does not exist"


def test_totals_and_json() -> None:
    before = SimulationResult(
        waiting=[Pending("ns", "a", "", 1)],
        evicted=[evicted("x"), evicted("y")],
        loads=[Load(0.0, 3.0, 0, 0), Load(9.0, 8.0, 0, 0)],
        gpu_seconds_lost=5400.0,
    )
    sums = totals(before, SimulationResult())
    assert sums == [
        ("GPUs in use now", 3.0, 0.0),
        ("gangs pending at the end", 1, 0),
        ("pods evicted", 2, 0),
        ("GPU-hours lost to evictions", 1.5, 0.0),
    ]
    found = differences({}, {("ns", "g"): STARTS})
    shown = as_json(found, sums[:1], 60.0)
    assert shown["horizon_s"] == 60.0
    assert shown["totals"] == [{"name": "GPUs in use now", "before": 3.0, "after": 0.0}]
    (gang,) = shown["gangs"]
    assert (gang["namespace"], gang["name"]) == ("ns", "g")
    assert (gang["before"]["state"], gang["before"]["nodes"]) == ("unchanged", [])
    assert (gang["after"]["state"], gang["after"]["nodes"], gang["after"]["at_s"]) == (
        "starts",
        ["n1", "n2"],
        5.0,
    )
