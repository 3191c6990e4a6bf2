"""Bounds of rows against plain loops: what fits, what would fit without those that may go, and that no choice of
victims on a row does less harm than its bound says."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.pods import EVICTED, NO_WORK, Pod
from central.scheduler.preemption import harm
from central.scheduler.preemption.surplus_members import surplus_count
from central.scheduler.preemption.victim_bounds import RowBounds, by_domain
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.preemption.test_narrowed_search import NOW, cluster
from tests.effort import examples

SOME, ALL = 1, 3  # who is less urgent than this may go
# Highest priority; of that priority: gangs broken, work lost, pods, capacity that they hold, run time, age.
Harm = tuple[int, ...]
PARTS = 7
Option = tuple[
    int, Gang, list[Pod], bool
]  # GPUs freed on the row, who goes, whether the gang breaks


def bounds_of(
    made: Scheduler, kept: RowBounds, below: int, closed: Sequence[int] = ()
) -> RowBounds:
    """closed: rows that may not be used."""
    table = made.preemption.candidates.table
    table.refresh()
    allowed = table.may_evict(lambda gang: gang.priority < below, by_group=False)
    usable = np.ones(len(made.state.snapshot.columns.names), dtype=np.bool_)
    usable[list(closed)] = False
    return kept.update(made.state.snapshot, table, allowed, usable, NOW)


def here(made: Scheduler, node: str) -> list[Pod]:
    return [pod for pod in made.state.pods.values() if pod.node == node and pod.alive]


def gpus(pod: Pod) -> int:
    return pod.spec.request(GPU)


def may_go(made: Scheduler, pod: Pod, below: int) -> bool:
    gang = made.state.gang_of(pod)
    return gang is not None and gang.priority < below and not pod.leaving


def options(made: Scheduler, node: str, below: int) -> Iterator[list[Option]]:
    """For each gang on the node: nobody goes, some above its minimum, or all of it."""
    pods = [pod for pod in here(made, node) if may_go(made, pod, below)]
    for gang in {id(g): g for pod in pods if (g := made.state.gang_of(pod))}.values():
        mine = [pod for pod in pods if made.state.gang_of(pod) is gang]
        staying = [pod for pod in gang.counts.placed if not pod.leaving]
        surplus = min(surplus_count(gang, staying), len(mine))
        some = [
            (sum(map(gpus, each)), gang, [*each], False)
            for count in range(surplus + 1)
            for each in combinations(mine, count)
        ]
        yield [*some, (sum(map(gpus, mine)), gang, staying, True)]


def harm_of(chosen: tuple[Option, ...]) -> Harm:
    going = [(gang, pods, breaks) for _, gang, pods, breaks in chosen if pods]
    highest = max(gang.priority for gang, _, _ in going)
    broken = sum(breaks for gang, _, breaks in going if gang.priority == highest)
    pods = [pod for gang, each, _ in going if gang.priority == highest for pod in each]
    sizes = [harm.gpus(pod.spec) for pod in pods]
    work = sum(size * _lost_s(pod) for size, pod in zip(sizes, pods, strict=True))
    ran = sum(int(NOW - (pod.seen.started or 0.0)) for pod in pods)
    age = sum(int(NOW - pod.seen.created) for pod in pods)
    return highest, broken * harm.BREAKS, work, len(pods), sum(sizes), ran, age


def _lost_s(pod: Pod) -> int:
    ran, saved = int(NOW - (pod.seen.started or 0.0)), pod.seen.checkpoint
    return ran if saved is None else min(ran, int(NOW - saved))


def least_harm(made: Scheduler, node: str, below: int, lack: int) -> Harm | None:
    choices = product(*options(made, node, below))
    enough = [each for each in choices if sum(freed for freed, *_ in each) >= lack]
    return min(map(harm_of, enough), default=None)


@pytest.mark.long
@pytest.mark.parametrize(("wanted", "pods"), [(1, 1), (2, 1), (5, 1), (8, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("below", [SOME, ALL])
def test_bounds_are_what_plain_loops_count(below: int, wanted: int, pods: int) -> None:
    dice = Random(below)
    made = cluster(dice)
    for pod in [*made.state.pods.values()]:
        if dice.random() < 0.3:
            saved = replace(pod.seen, checkpoint=dice.choice((NOW - 9.0, 1.0)))
            schedule_once(made, [saved], NOW)
        if dice.random() < 0.05:  # evicted, and not gone yet
            pod.advance(EVICTED)
            if (gang := made.state.gang_of(pod)) is not None:
                made.state.pending.changed(gang)
                gang.invalidate_counts()
    closed = made.state.nodes["n07"].seen
    assert closed is not None
    schedule_once(made, [replace(closed, unschedulable=True)], NOW)
    bounds = bounds_of(made, RowBounds(factories.pod("new", wanted).spec, pods), below)
    compared = 0
    for node, row in made.state.snapshot.columns.row.items():
        if node == "n07":
            assert (bounds.fits[row], bounds.most[row], bounds.possible[row]) == (0, 0, False)
            continue
        there = here(made, node)
        free = 8 - sum(gpus(pod) for pod in there if not pod.leaving)
        room = free + sum(gpus(pod) for pod in there if may_go(made, pod, below))
        assert bounds.fits[row] == free // wanted, node
        assert bounds.most[row] == room // wanted, node
        lack = pods * wanted - free
        if lack <= 0:
            continue
        assert bounds.possible[row] == (room >= pods * wanted), node
        least = least_harm(made, node, below, lack)
        assert (least is not None) == bool(bounds.possible[row]), node
        if least is not None:
            bound = bounds.bound[row].tolist()[:PARTS]
            assert bound <= list(least), node
            assert lack > 1 or bound == list(least), node  # the least harmful gang or member goes
            compared += 1
    assert compared > 4


@pytest.mark.parametrize("pods", [0, 1, 2])
def test_bounds_that_follow_changes_are_those_that_are_counted_anew(pods: int) -> None:
    dice = Random(pods)
    made = cluster(dice)
    spec = factories.pod("new", 2).spec
    kept = RowBounds(spec, pods)
    for turn in range(6):
        running = [pod for pod in made.state.pods.values() if pod.node]
        gone = [PodGone(pod.seen.uid) for pod in dice.sample(running, 5)]
        schedule_once(made, gone, NOW)
        below = ALL if turn in (2, 3) else SOME
        bounds_of(made, kept, below)
        fresh = bounds_of(made, RowBounds(spec, pods), below)
        assert (kept.fits == fresh.fits).all()
        assert (kept.most == fresh.most).all()
        assert (kept.possible == fresh.possible).all()
        # Parts of gangs are summed in another order.
        assert np.allclose(kept.bound[kept.possible], fresh.bound[fresh.possible], rtol=1e-12)
        if pods:
            assert [row for _, row in kept.cheapest()] == [row for _, row in fresh.cheapest()]


@pytest.mark.long
@pytest.mark.parametrize("pods", [1, 2])
def test_rows_are_counted_once_they_may_be_used(pods: int) -> None:
    """Claims come and go at one time; what changed on a closed row is seen when it is open again."""
    answers = 0
    for seed in range(examples(30)):
        dice, made = Random(seed), cluster(Random(seed))
        spec = factories.pod("w", 1).spec
        kept, rows = RowBounds(spec, pods), range(len(made.state.snapshot.columns.names))
        for _ in range(6):
            closed = dice.sample(rows, dice.randrange(len(rows)))
            running = [pod for pod in made.state.pods.values() if pod.node and pod.alive]
            if running:
                schedule_once(made, [PodGone(dice.choice(running).seen.uid)], NOW)
            found = [*bounds_of(made, kept, ALL, closed).cheapest()]
            assert found == [*bounds_of(made, RowBounds(spec, pods), ALL, closed).cheapest()]
            answers += len(found)
    assert answers > 100


@pytest.mark.parametrize("pods", [0, 1])
def test_bounds_of_domains_are_those_of_their_cheapest_rows(pods: int) -> None:
    dice = Random(7)
    made = cluster(dice)
    bounds = bounds_of(made, RowBounds(factories.pod("new", 2).spec, pods), ALL)
    rows = sorted(made.state.snapshot.columns.row.values())
    of = np.full(len(bounds.fits), -1, dtype=np.int64)
    of[rows] = [number // 6 for number in range(len(rows))]
    missing = np.array([dice.choice((0, 1, 2, 5, 40)) for _ in range(8)], dtype=np.int64)
    expected = {}
    for domain, wanted in enumerate(missing.tolist()):
        left, taken = wanted, []
        inside = [row for row in rows if of[row] == domain and bounds.possible[row]]
        for row in sorted(inside, key=lambda row: bounds.bound[row].tolist()):
            gain = max(0, int(bounds.most[row] - bounds.fits[row]))
            count = min(left, min(gain, 1) if pods else gain)
            taken += [(count, bounds.bound[row])] * (count > 0)
            left -= count
        if wanted and not left:
            highest = max(bound[0] for _, bound in taken)
            sums = sum(count * bound for count, bound in taken if bound[0] == highest)
            expected[domain] = [highest, *sums[1:].tolist()]
    found = {domain: bound for bound, domain in by_domain(bounds, of, missing)}
    assert found.keys() == expected.keys()
    assert 2 < len(found) < 8
    for domain, bound in found.items():
        assert np.allclose(bound, expected[domain], rtol=1e-12)
    assert [*found.values()] == sorted(found.values())


@pytest.mark.long
@pytest.mark.parametrize("pods", [0, 1, 2])
def test_where_nobody_may_go_nothing_is_possible_that_does_not_fit(pods: int) -> None:
    made = cluster(Random(pods))
    bounds = bounds_of(made, RowBounds(factories.pod("new", 8).spec, pods), -1)
    full = [row for row in made.state.snapshot.columns.row.values() if not bounds.fits[row]]
    assert full
    assert not bounds.possible[full].any()
    assert (bounds.most == bounds.fits).all()


def one_node(*running: PodSeen) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("n"), *running], NOW)
    return made


def test_bounds_that_add_up_count_half_of_a_victim_that_frees_two_places() -> None:
    running = [
        factories.pod(f"r{i}", 2, node="n", phase="Running", started=NOW - 100.0 * (i + 1))
        for i in range(4)
    ]
    made = one_node(*running)
    bounds = bounds_of(made, RowBounds(factories.pod("new", 1).spec, 0), ALL)
    row = made.state.snapshot.columns.row["n"]
    assert (bounds.fits[row], bounds.most[row]) == (0, 8)
    work = 2 * harm.gpus(factories.spec(1)) * 100 / 2
    assert bounds.bound[row].tolist()[:4] == [0, harm.BREAKS / 2, work, 0.5]


def test_a_victim_whose_start_is_unknown_has_lost_nothing() -> None:
    made = one_node(factories.pod("r", 8, node="n", phase="Pending"))
    made.state.pods["uid-r"].work = NO_WORK
    bounds = bounds_of(made, RowBounds(factories.pod("new", 8).spec, 1), ALL)
    bound = bounds.bound[made.state.snapshot.columns.row["n"]].tolist()
    assert bound[:4] == [0, harm.BREAKS, 0, 1]
    assert bound[5] == 0
