"""The numbers and the table of a simulation's result, against what was noted in it."""

import io
from typing import Any

import pytest
from rich.console import Console

from central.simulator import sim_report
from central.simulator.sim_report import LONGEST_TABLE, percentile
from central.simulator.simulation_result import (
    Ended,
    Evicted,
    Load,
    Pending,
    Placed,
    Resized,
    SimulationResult,
)


def placed(
    pod: str,
    node: str,
    *,
    at_s: float = 1.0,
    waited_s: float = 0.0,
    gang: str = "",
    amount: float = 2.0,
) -> Placed:
    return Placed(at_s, "ns", pod, node, (0, 1), gang, waited_s, amount)


def printed(result: SimulationResult) -> str:
    out = io.StringIO()
    sim_report.table(result, Console(file=out, width=200))
    return out.getvalue()


def made(**more: Any) -> SimulationResult:
    result = SimulationResult(
        placed=[
            placed("a-0", "n1", gang="a", waited_s=4.0),
            placed("a-1", "n2", at_s=3.0, gang="a", waited_s=2.0),
            placed("b", "n1", at_s=60.0, amount=0.5),
        ],
        evicted=[Evicted(120.0, "ns", "b", "n1", "capacity is needed")],
        ended=[Ended(200.0, "ns", "a-0", "Pod", "Succeeded"), Ended(200.0, "ns", "a", "PodGroup", "Completed")],
        waiting=[Pending("ns", "c", "needs 16 GPUs", 3), Pending("ns", "d", "never", 2)],
        resized=[Resized(0.0, "ns", "e", 2, "starts"), Resized(9.0, "ns", "e", 1, "another needs it")],
        loads=[Load(0.0, 3.0, 0, 0)],
        turn_s=[0.004, 0.001, 0.002, 0.003],
        decide_s=0.5,
        gpus=8,
        gpu_seconds_there=7200.0,
        gpu_seconds_used=1800.0,
        gpu_seconds_lost=900.0,
        end_s=300.0,
        makespan_s=200.1234567,
    )  # fmt: skip
    for name, value in more.items():
        setattr(result, name, value)
    return result


def test_the_numbers() -> None:
    assert sim_report.metrics(made()) == {
        "makespan_s": 200.123457,
        "gpu_utilization": 0.25,
        "gpus": 8,
        "gpu_hours_used": 0.5,
        "gpu_hours_lost": 0.25,
        "pods_placed": 3,
        "pods_waiting": 5,
        "evictions": 1,
        "resizes": 1,  # without the first size
        "wait_s_mean": 2.0,
        "wait_s_p50": 2.0,
        "wait_s_p99": 4.0,
        "turns": 4,
        "turn_ms_p50": 3.0,
        "turn_ms_p99": 4.0,
        "decide_s_total": 0.5,
        "end_s": 300.0,
        "stopped": "",
    }
    empty = sim_report.metrics(SimulationResult())
    assert {value for name, value in empty.items() if name != "stopped"} == {0}


def test_of_a_moment_the_gpus_in_use_at_its_end() -> None:
    assert sim_report.metrics(made(gpu_seconds_there=0.0))["gpu_utilization"] == 3 / 8
    assert sim_report.metrics(made(gpu_seconds_there=0.0, loads=[]))["gpu_utilization"] == 0.0
    assert sim_report.metrics(made(gpu_seconds_there=0.0, gpus=0))["gpu_utilization"] == 0.0


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 3.0), (0.75, 4.0), (0.99, 4.0), (1.0, 4.0)])  # fmt: skip
def test_a_percentile(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == value
    assert percentile([], share) == 0.0


def test_the_table() -> None:
    lines = printed(made()).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["PLACED", "PODS", "GPUS", "AT", "WAITED", "NODES"],
        ["ns/a", "2", "4", "1", "s", "4", "s", "n1,", "n2"],
        ["ns/b", "1", "0.5", "60", "s", "0", "s", "n1"],
    ]
    assert lines[3:] == [
        "at 2 min: ns/b evicted from n1: capacity is needed",
        "at 9 s: ns/e resized to 1 member: another needs it",
        "ns/c is pending: needs 16 GPUs",
        "ns/d is pending: never",
        "3 pods placed, 1 ended, 1 evicted, 5 pending",
        "the last event was at 3 min; 25.0 % of 8 GPUs in use on average",
        "4 cycles, 3.00 ms each (99th percentile 4.00); 0.500 s spent deciding (6 pods/s)",
    ]
    last = printed(made(gpus=0, stopped="nothing happens", decide_s=0.0)).splitlines()[-3:]
    assert last[0] == "the last event was at 3 min"
    assert last[1].endswith("0.000 s spent deciding (0 pods/s)")
    assert last[2] == "stopped: nothing happens"


def test_of_many_nodes_four_are_named() -> None:
    for count, says in ((4, "n0, n1, n2, n3"), (5, "n0, n1, n2, n3 and 1 more"), (9, "n3 and 5 more")):  # fmt: skip
        pods = [placed(f"a-{number}", f"n{number}", gang="a") for number in range(count)]
        assert printed(made(placed=pods)).splitlines()[1].rstrip().endswith(says)


@pytest.mark.parametrize("count", [LONGEST_TABLE, LONGEST_TABLE + 1])
def test_long_lists_are_cut_and_say_so(count: int) -> None:
    numbers = range(count)
    result = made(
        placed=[placed(f"p{number}", "n") for number in numbers],
        evicted=[Evicted(1.0, "ns", f"p{number}", "n", "why") for number in numbers],
        waiting=[Pending("ns", f"w{number}", "why", 1) for number in numbers],
        resized=[Resized(0.0, "ns", "e", size, "why") for size in range(count + 1)],
    )
    text = printed(result)
    cut = (
        f"... only the first {LONGEST_TABLE}; -o json prints all",
        f"... {count} evictions in total",
        f"... {count} pending in total",
        f"... {count} changes of size in total",
    )
    assert [each in text for each in cut] == [count > LONGEST_TABLE] * 4
    assert [text.count(each) for each in ("evicted from", "is pending", "resized to")] == [LONGEST_TABLE] * 3  # fmt: skip


def test_as_json() -> None:
    found = sim_report.to_json(made())
    assert found["placements"][0] == {"namespace": "ns", "pod": "a-0", "node": "n1", "gpus": (0, 1), "at_s": 1.0}  # fmt: skip
    assert found["evictions"][0]["reason"] == "capacity is needed"
    assert [each["members"] for each in found["sizes"]] == [2, 1]
    assert found["waiting"][1] == {"namespace": "ns", "name": "d", "reason": "never", "pods": 2}
    assert [each["kind"] for each in found["ended"]] == ["Pod", "PodGroup"]


def test_what_jobs_hold_and_run() -> None:
    result = SimulationResult()
    result.note(1.0, "j", 2.0, 1)
    result.note(2.0, "j", 0.0, -1)
    assert result.ran == [(1.0, "j", 1), (2.0, "j", -1)]
    assert result.held == [(1.0, "j", 2.0)]


def test_what_objects_say_is_no_markup() -> None:
    waits = Pending("ns", "[/red]", "annotation x: [/dim] in [a, b]\x1b[2J\n", 1)
    text = printed(made(placed=[placed("[/p]", "[n]")], waiting=[waits]))
    assert "ns/[/red] is pending: annotation x: [/dim] in [a, b]?[2J?" in text
    assert "[/p]" in text
    assert all(line == line.rstrip() for line in text.splitlines() if "pending" in line)
