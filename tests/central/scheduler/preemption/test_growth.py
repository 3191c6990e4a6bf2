"""Preemption and reclaim take as much work for each claimant and each victim, however many there are.

Work is lines of Python that run, so that the speed of the machine does not matter; loops inside of a line count each
time.
"""

import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import Fact, QueueSeen
from central.scheduler import pending_cause
from central.scheduler.apply import apply
from central.scheduler.cycle import decide, schedule_once
from central.scheduler.queues import claim_in_flight, fair_share
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.counted_calls import calls

NOW = 1001.0
TIMES = 4  # more of something
LINEAR = 1.2  # for each of them at most, as a multiple of the work for each of fewer

Queues = Callable[[int], tuple[QueueSeen, ...]]
Case = Callable[[int], tuple[Scheduler, list[Fact]]]


def full(nodes: int, *queues: QueueSeen) -> Scheduler:
    """Every GPU is held by a pod of its own, in queue a if there is one."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node(f"n{number:04}") for number in range(nodes)]
    facts += queues
    facts += [
        factories.pod(
            f"s-{number}",
            1,
            node=f"n{number // 8:04}",
            phase="Running",
            queue="a" if queues else "",
            started=float(number % 977),
        )
        for number in range(8 * nodes)
    ]
    schedule_once(made, facts, 1000.0)
    while made.preemption.candidates.table._unread or made.state.pending.unpublished:
        schedule_once(made, [], 1000.0)
    return made


def owned(nodes: int) -> tuple[QueueSeen, QueueSeen]:
    """Two queues that deserve half of the nodes each."""
    half = ((GPU, 4 * nodes),)
    return QueueSeen("a", deserved=half), QueueSeen("b", deserved=half)


def limited(nodes: int) -> tuple[QueueSeen, QueueSeen]:
    """The first one may use no more than all nodes."""
    return QueueSeen("a", capability=((GPU, 8 * nodes),)), QueueSeen("b")


def pods(count: int, **settings: Any) -> list[Fact]:
    return [factories.pod(f"u-{n}", 1, created=float(n), **settings) for n in range(count)]


def gang(count: int, **settings: Any) -> list[Fact]:
    members = [factories.pod(f"u-{number}", 1, "u") for number in range(count)]
    return [factories.gang("u", count, **settings), *members]


def lines_run(work: Callable[[], object]) -> int:
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def work(made: Scheduler, facts: list[Fact], victims: int) -> int:
    """To evict so many."""
    for fact in facts:
        apply(made, fact)
    decisions: list[object] = []
    lines = lines_run(lambda: decisions.extend(decide(made, NOW)))
    assert sum(isinstance(each, Evict) for each in decisions) == victims
    check_invariants(made)
    return lines


CLAIMANTS: dict[str, Case] = {
    "urgent": lambda count: (full(120), pods(count, priority=10)),
    "urgent in a queue": lambda count: (
        full(120, *owned(120)),
        pods(count, priority=10, queue="a"),
    ),
    "below what its queue deserves": lambda count: (full(120, *owned(120)), pods(count, queue="b")),
    "urgent in a queue at its capability": lambda count: (
        full(120, *limited(120)),
        pods(count, priority=10, queue="a"),
    ),
}
VICTIMS: dict[str, Case] = {
    "urgent": lambda count: (full(count // 4), gang(count, priority=10)),
    "urgent in a queue": lambda count: (
        full(count // 4, *owned(count // 4)),
        gang(count, priority=10, queue="a"),
    ),
    "below what its queue deserves": lambda count: (
        full(count // 4, *owned(count // 4)),
        gang(count, queue="b"),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CLAIMANTS)
def test_the_last_of_many_claimants_takes_no_more_work_than_the_first(case: str) -> None:
    few, many = (work(*CLAIMANTS[case](count), count) for count in (25, 25 * TIMES))
    assert many <= few * TIMES * LINEAR


def withheld(made: Scheduler, facts: list[Fact]) -> int:
    """How often a reservation is taken out of the snapshot in the cycle that decides on them."""
    for fact in facts:
        apply(made, fact)
    return calls(lambda: decide(made, NOW), Reservation.note_withheld.__code__)


@pytest.mark.long
@pytest.mark.parametrize("case", CLAIMANTS)
def test_reservations_are_not_given_back_for_each_claimant(case: str) -> None:
    few, many = (withheld(*CLAIMANTS[case](count)) for count in (25, 25 * TIMES))
    assert many <= few * TIMES * LINEAR


def departments(nodes: int) -> list[QueueSeen]:
    """Queue a uses everything, and queues below others deserve a node each."""
    own = ((GPU, 8),)
    above = [QueueSeen(f"d{number}") for number in range(nodes // 5)]
    return [
        QueueSeen("a"),
        *above,
        *(QueueSeen(f"q{n}", parent=f"d{n // 5}", deserved=own) for n in range(nodes)),
    ]


@pytest.mark.long
@pytest.mark.parametrize("function", [fair_share.divide, claim_in_flight.pending_needs])
def test_claims_of_many_queues_leave_shares_and_earlier_claims_as_they_were_counted(
    function: FunctionType,
) -> None:
    """In rounds cut into slices of one claim: shares depend on what queues use and request, and no claim changes
    that."""

    def counted(claimants: int) -> int:
        made = full(40, *departments(40))
        for number in range(claimants):
            apply(made, factories.pod(f"u-{number}", 1, queue=f"q{number}", created=float(number)))
        decide(made, NOW, lambda: True)
        evicted: list[object] = []

        def rest() -> None:
            while made.state.pending.round is not None:
                evicted.extend(decide(made, NOW, lambda: True))

        count = calls(rest, function.__code__)
        assert sum(isinstance(each, Evict) for each in evicted) == claimants - 1
        return count

    few, many = counted(10), counted(40)
    assert many - few <= 30, "one for each claim at most"


@pytest.mark.long
@pytest.mark.parametrize("case", VICTIMS)
def test_each_of_many_victims_takes_no_more_work_than_each_of_few(case: str) -> None:
    few, many = (work(*VICTIMS[case](count), count) for count in (100, 100 * TIMES))
    assert many <= few * TIMES * LINEAR


@pytest.mark.long
@pytest.mark.parametrize("queues", [lambda _: (), owned, limited])
def test_a_claimant_does_not_look_at_every_running_pod(queues: Queues) -> None:
    few, many = (
        work(
            full(nodes, *queues(nodes)),
            pods(10, priority=10, queue="a" if queues(nodes) else ""),
            10,
        )
        for nodes in (25, 25 * TIMES)
    )
    assert many <= few * 1.5


@pytest.mark.long
def test_nominating_the_nodes_of_each_of_many_pods_takes_no_more_work_than_of_few() -> None:
    def counted(count: int) -> int:
        made = full(count // 8)
        work(made, gang(count, priority=10), count)
        claimant = made.state.gangs["ns", "u", True]
        lines = lines_run(lambda: pending_cause.nominations(made, claimant))
        assert len(pending_cause.nominations(made, claimant)) == count
        return lines

    few, many = counted(80), counted(80 * TIMES)
    assert many <= few * TIMES * LINEAR
