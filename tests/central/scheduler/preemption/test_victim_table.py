"""The table of possible victims is read in portions, before anybody preempts."""

import itertools

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from central.scheduler.preemption.victim_table import READ_BUSY, READ_QUIET, VictimTable
from central.scheduler.scheduler import Scheduler
from tests.central import factories

NODES = 600
PODS = 8 * NODES


def full() -> Scheduler:
    """Every GPU is held by a pod of its own. No cycle has begun since."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node(f"n{number:03}") for number in range(NODES)]
    facts += [
        factories.pod(f"s-{number}", 1, node=f"n{number // 8:03}", phase="Running", started=number)
        for number in range(PODS)
    ]
    schedule_once(made, facts, 10_000.0)
    return made


def table(made: Scheduler) -> VictimTable:
    return made.preemption.candidates.table


def test_a_cycle_reads_no_more_than_a_portion() -> None:
    made = full()
    unread = [table(made).unread]
    while unread[-1]:
        schedule_once(made, [], 10_000.0)
        unread.append(table(made).unread)
    assert unread[0] >= PODS - READ_QUIET
    assert all(before - after <= READ_QUIET for before, after in itertools.pairwise(unread))
    check_invariants(made)


def test_a_cluster_in_which_every_cycle_decides_something_is_read_too() -> None:
    made = full()
    before = table(made).unread
    assert before > READ_BUSY
    for number in range(PODS // READ_BUSY + 1):
        newcomer, unread = factories.pod(f"new-{number}", 0), table(made).unread
        assert schedule_once(made, [newcomer], 10_000.0)
        assert unread - table(made).unread <= READ_BUSY, "it has something else to do"
    assert table(made).unread == 0


def test_a_claimant_does_not_wait_for_the_portions() -> None:
    """The youngest goes, whether it was read or not."""
    made = full()
    assert table(made).unread
    decisions = schedule_once(made, [factories.pod("urgent", 1, priority=10)], 10_000.0)
    evicted = [each.name for each in decisions if isinstance(each, Evict)]
    assert evicted == [f"s-{PODS - 1}"]
    check_invariants(made)
