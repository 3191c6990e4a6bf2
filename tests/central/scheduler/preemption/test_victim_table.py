"""The table of possible victims is read in portions, before anybody preempts."""

import itertools
import random

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import Fact, PodGone
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption.victim_table import (
    FEW_ROWS,
    LEFT_UNREAD,
    READ_BUSY,
    READ_QUIET,
    STAYS,
    VictimTable,
)
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

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


@pytest.mark.long
def test_a_cycle_reads_no_more_than_a_portion() -> None:
    made = full()
    unread = [len(table(made)._unread)]
    while unread[-1]:
        schedule_once(made, [], 10_000.0)
        unread.append(len(table(made)._unread))
    assert unread[0] >= PODS - READ_QUIET
    assert all(before - after <= READ_QUIET for before, after in itertools.pairwise(unread))
    check_invariants(made)


@pytest.mark.long
def test_a_cluster_in_which_every_cycle_decides_something_is_read_too() -> None:
    made = full()
    before = len(table(made)._unread)
    assert before > READ_BUSY
    for number in range(PODS // READ_BUSY + 1):
        newcomer, unread = factories.pod(f"new-{number}", 0), len(table(made)._unread)
        assert schedule_once(made, [newcomer], 10_000.0)
        assert unread - len(table(made)._unread) <= READ_BUSY, "it has something else to do"
    assert 0 < len(table(made)._unread) <= LEFT_UNREAD
    schedule_once(made, [], 10_001.0)
    assert len(table(made)._unread) == 0


@pytest.mark.long
def test_a_claimant_does_not_wait_for_the_portions() -> None:
    """The youngest goes, whether it was read or not."""
    made = full()
    assert len(table(made)._unread)
    decisions = schedule_once(made, [factories.pod("urgent", 1, priority=10)], 10_000.0)
    evicted = [each.name for each in decisions if isinstance(each, Evict)]
    assert evicted == [f"s-{PODS - 1}"]
    check_invariants(made)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [3, FEW_ROWS, FEW_ROWS + 1, NODES])
@pytest.mark.parametrize("built", [True, False])
def test_what_is_looked_up_by_row_is_what_a_look_at_all_entries_gives(
    seed: int, most: int, built: bool
) -> None:
    """After pods have gone, come and moved to other entries."""
    dice, made = random.Random(seed), full()
    for number in dice.sample(range(PODS), 300):
        apply(made, PodGone(f"uid-s-{number}"))
    schedule_once(made, [factories.pod(f"new-{number}", 1) for number in range(200)], 10_001.0)
    leaving = [
        factories.pod(f"s-{number}", 1, node=f"n{number // 8:03}", phase="Running", deleting=True)
        for number in dice.sample(range(PODS), 50)
        if f"uid-s-{number}" in made.state.pods
    ]
    schedule_once(made, leaving, 10_002.0)
    table(made).built = built  # False: a read failed, so that all is read again
    found, columns = table(made).refresh(), made.state.snapshot.columns
    entries = found.entries
    rows = np.zeros(len(columns.names), dtype=np.bool_)
    rows[dice.sample(range(NODES), most)] = True
    allowed = np.array([dice.random() < 0.8 for _ in found.gangs])
    here = rows[entries.row]
    assert found.entries_on(np.flatnonzero(rows)).tolist() == np.flatnonzero(here).tolist()
    near = here & (entries.state == STAYS) & allowed[entries.slot]
    assert found.candidates_on(rows, allowed) == np.count_nonzero(near)
    assert found.slots_on(rows, allowed).tolist() == np.unique(entries.slot[near]).tolist()
    slots = np.unique(entries.slot[near])[:most]
    staying = np.isin(entries.slot, slots) & (entries.state == STAYS)
    assert found.staying_of(slots).tolist() == np.flatnonzero(staying).tolist()
    members, index = found.members_of(slots)
    assert members.tolist() == sorted(members.tolist(), key=lambda entry: entries.slot[entry])
    assert sorted(members.tolist()) == found.staying_of(slots).tolist()
    assert slots[index].tolist() == entries.slot[members].tolist()
    pods = {pod.seen.uid for pod in found.leaving(rows)}
    away = {fact.uid: columns.row[fact.node] for fact in leaving}
    assert pods == {uid for uid, row in away.items() if rows[row]}
