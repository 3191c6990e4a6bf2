"""Expected fragmentation: the choice against the definition on small random clusters, and that neither
names nor the order of nodes matter."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import PodGone, PodSpec
from central.model.pod_rules import Requirement
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.gpu_shares import NOTHING
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.scoring import fragmentation, workload_mix
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_SHARE
from protos.topology import indices_of, mask_of
from tests.central import factories
from tests.central.scheduler import recounts
from tests.effort import examples

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def scheduler(dice: random.Random, names: list[str], *, shares: bool = False) -> Snapshot:
    """Nodes with islands or without, of two sizes, some of them in use, in shares too if so wished."""
    snapshot = Snapshot()
    islands = shares or dice.random() < 0.5
    for name in names:
        size, used = dice.choice((4, 8)), dice.randint(0, 3)
        cpu = dice.choice((16_000, 64_000))
        row = snapshot.put_node(factories.node(name, gpus=size, cpu=cpu, shares=shares))
        if islands:
            shape = factories.topology(size, HALVES[: size // 4]).shape()
            free = (1 << size) - 1 & ~sum(1 << i for i in dice.sample(range(size), used))
            open_ = [gpu for gpu in indices_of(free) if shares and dice.random() < 0.4]
            left = {gpu: dice.choice((0, 10, 25, 40, 50, 75, 90)) for gpu in open_}
            offered = (dice.choice((0b1111, -1)), *NOTHING[1:]) if shares else NOTHING
            left = {gpu: part * (offered[0] >> gpu & 1) for gpu, part in left.items()}
            snapshot.put_gpus(row, shape, free & ~mask_of(open_), offered, left)
        if used:
            snapshot.take(row, factories.spec(used, 1000 * used), 1, 0)
    for _ in range(dice.randint(5, 30)):
        snapshot.mix.observe(factories.spec(dice.choice((1, 1, 2, 4, 8)), dice.choice((500, 9000))))
        if shares and dice.random() < 0.7:
            snapshot.mix.observe(factories.part("p", dice.choice((10, 30, 50, 60, 80))).spec)
    return snapshot


def usable(snapshot: Snapshot, row: int, kinds: Counter[PodSpec]) -> Fraction:
    """The hundredths of idle GPUs that a pod of those that come could use there, by the definition."""
    shape, free = snapshot.columns.gpus.shape[row], snapshot.columns.gpus.free_mask[row]
    islands = shape.islands if shape is not None else ()
    largest = max((island.bit_count() for island in islands), default=0)
    most = max(((island & free).bit_count() for island in islands), default=0)
    whole, left = (
        int(snapshot.columns.gpus.count[row]),
        list(snapshot.columns.gpus.free_shares[row].values()),
    )
    open_to_shares = min(whole, (free & snapshot.columns.gpus.offered[row][0]).bit_count())
    total = Fraction(0)
    for kind, times in kinds.items():
        asked, part = kind.request(GPU), kind.request(GPU_SHARE)
        room = min(
            int(snapshot.columns.free[row, snapshot.columns.column[name]]) // amount
            for name, amount in kind.requests
        )
        if part:
            room = min(room, sum(n // part for n in [*left, *[WHOLE] * open_to_shares]))
            reach = sum(n for n in left if n >= part) + WHOLE * open_to_shares
            fill = room * part
        else:
            close = asked > largest or asked <= most
            room = min(room, whole // asked) if close else 0
            reach, fill = WHOLE * whole, room * asked * WHOLE
        total += times * Fraction(reach + fill, 2) * (room > 0)
    return total / kinds.total()


def harm(snapshot: Snapshot, row: int, spec: PodSpec, kinds: Counter[PodSpec]) -> Fraction:
    def idle() -> int:
        return WHOLE * int(snapshot.columns.gpus.count[row]) + sum(
            snapshot.columns.gpus.free_shares[row].values()
        )

    before = idle() - usable(snapshot, row, kinds)
    draft = Draft(snapshot)
    draft.take(row, spec, 1)
    after = idle() - usable(snapshot, row, kinds)
    unused = Fraction(idle(), WHOLE * int(snapshot.columns.allocatable[:, 0].max()))
    cpu = snapshot.columns.column["cpu"]
    unused += Fraction(
        int(snapshot.columns.free[row, cpu]), int(snapshot.columns.allocatable[:, cpu].max())
    )
    draft.undo()
    return (after - before) / WHOLE + Fraction(fragmentation.IDLE_WEIGHT) * unused


@pytest.mark.long
@pytest.mark.parametrize("shares", [False, True])
def test_the_node_with_the_least_harm_by_the_definition(shares: bool) -> None:
    chosen = Counter[bool]()
    for seed in range(examples(160)):
        dice = random.Random(seed)
        snapshot = scheduler(dice, [f"n{i}" for i in range(5)], shares=shares)
        kinds: Counter[PodSpec] = snapshot.mix._seen
        spec = factories.spec(dice.choice((0, 1, 2, 4)), dice.choice((500, 9000)))
        if shares and dice.random() < 0.7:
            spec = factories.part("p", dice.choice((10, 30, 60)), cpu=dice.choice((500, 9000))).spec
        draft = Draft(snapshot)
        try:
            seat = fit(draft, PlacementRequest(((spec, 1),)))[0]
        except DoesNotFit:
            continue
        draft.undo()
        view, asked = snapshot.view(spec).refresh(), spec.request(GPU)
        rows = [row for row in snapshot.columns.row.values() if view.by_row[row]]
        inside = [row for row in rows if asked and snapshot.columns.gpus.island[row] >= asked]
        harms = {row: harm(snapshot, row, spec, kinds) for row in inside or rows}
        least = min(harms.values())
        assert seat.row in harms
        assert len(kinds) < 2 or harms[seat.row] - least <= Fraction(2, fragmentation.UNIT), seed
        fullest = min(
            harms, key=lambda row: (snapshot.columns.gpus.count[row], snapshot.columns.names[row])
        )
        chosen[seat.row == fullest] += 1
    assert min(chosen.values()) > 5  # it is not what filling up alone would have chosen


@pytest.mark.long
def test_names_decide_nothing() -> None:
    """The same nodes under other names: the node that is chosen is in the same state."""
    for seed in range(examples(60)):
        states = set()
        for shuffled in range(4):
            dice = random.Random(seed)
            names = [f"n{i}" for i in range(6)]
            random.Random(shuffled).shuffle(names)
            snapshot = scheduler(dice, names)
            spec = factories.spec(dice.choice((1, 2)), 500)
            try:
                seat = fit(Draft(snapshot), PlacementRequest(((spec, 1),)))[0]
            except DoesNotFit:
                continue
            row = seat.row
            states.add(
                (tuple(snapshot.columns.free[row].tolist()), int(snapshot.columns.gpus.count[row]))
            )
        assert len(states) <= 1, f"seed {seed}"


@pytest.mark.long
def test_what_is_kept_is_what_is_worked_out_anew() -> None:
    for seed in range(examples(20)):
        dice = random.Random(seed)
        snapshot = scheduler(dice, [f"n{i}" for i in range(8)], shares=seed % 2 > 0)
        loads: list[PodCounts] = [((factories.spec(gpus), 1),) for gpus in (0, 1, 2)]
        loads.append(((factories.part("p", 30).spec, 2), (factories.part("q", 40).spec, 1)))
        for _ in range(30):
            spec = dice.choice((factories.spec(1), factories.spec(2), factories.part("p", 30).spec))
            row = dice.choice(sorted(snapshot.columns.row.values()))
            if snapshot.view(spec).refresh().by_row[row]:
                Draft(snapshot).take(row, spec, 1)
            rows = np.array(sorted(snapshot.columns.row.values()), dtype=np.int64)
            some = rows[: dice.randint(1, len(rows))]
            assert len(snapshot.mix.cost(loads[dice.randint(0, 2)], some)) == len(some)
            for load in loads:
                snapshot.mix.cost(load, rows)
            compared = list(recounts.costs(snapshot.mix))
            assert [len(kept) for kept, _ in compared].count(len(rows)) == len(loads) + 1
            assert all((kept == fresh).all() for kept, fresh in compared)


def test_one_kind_of_pod_leaves_nothing_to_choose() -> None:
    snapshot = Snapshot()
    snapshot.put_node(factories.node("a"))
    for _ in range(10):
        snapshot.mix.observe(factories.spec(4))
    assert not snapshot.mix.varied


@pytest.mark.long
def test_what_came_long_ago_counts_for_less() -> None:
    """First 8-GPU pods come, then pairs only: whole nodes are kept for a while, and then no more."""
    snapshot = Snapshot()
    snapshot.put_node(factories.node("whole", gpus=8, cpu=64_000))
    row = snapshot.put_node(factories.node("used", gpus=8, cpu=64_000))
    snapshot.take(row, factories.spec(2), 1, 0)
    load = ((factories.spec(2), 1),)

    def gap() -> int:
        rows = np.array(
            [snapshot.columns.row["whole"], snapshot.columns.row["used"]], dtype=np.int64
        )
        whole, used = snapshot.mix.cost(load, rows).tolist()
        return int(whole - used)

    for _ in range(100):
        snapshot.mix.observe(factories.spec(8))
        snapshot.mix.observe(factories.spec(2))
    early = gap()
    for _ in range(6 * workload_mix.HALVED_AT):
        snapshot.mix.observe(factories.spec(2))
    snapshot.mix.observe(factories.spec(8))
    assert early > 2 * gap() > 0


def test_a_class_that_no_node_takes_counts_as_often_as_it_came() -> None:
    """Its GPUs are not scarce for it: none would do."""
    made = new_scheduler()
    schedule_once(made, [factories.node("n0")], 0.0)
    frequent = [(factories.spec(1), 1), (factories.spec(2), 1), (factories.spec(4), 2)]
    typical = fragmentation.TypicalPods(made.state.snapshot.columns, frequent)
    typical.weigh_scarcity(np.array([8, 2, 0], dtype=np.int64))
    assert typical.weights.tolist() == [0.25, 1.0, 0.5]


def test_no_more_gpus_are_shared_than_the_api_server_counts() -> None:
    """Of three GPUs that may be shared one is allocatable: two halves and one whole pod fit."""
    made = new_scheduler()
    schedule_once(made, [factories.node("n0", shares=True)], 0.0)
    frequent = [(factories.part("p", 50).spec, 1), (factories.spec(1), 1)]
    typical = fragmentation.TypicalPods(made.state.snapshot.columns, frequent)
    for idle, fitting in ((1, [2, 1]), (0, [0, 0])):
        number = typical.number(fragmentation.GpuState(idle, offered=3))
        assert typical.capacity[number].tolist() == fitting


@pytest.mark.parametrize("rare_nodes", [1, 2, 6])
def test_gpus_that_are_asked_for_by_name_are_left_where_they_are_rare(rare_nodes: int) -> None:
    """A pod in ten names the model of most nodes, one in twenty that of few. Pods without a model leave the
    GPUs alone of which there are fewer for each that names them."""
    made = new_scheduler()
    nodes = [
        factories.node(f"n{i:02}", labels={"model": "rare" if i < rare_nodes else "common"})
        for i in range(12)
    ]
    asked = [("common",)] * 4 + [("rare",)] * 2 + [()] * 34
    mixed = [
        replace(factories.pod(f"x{i}"), spec=factories.spec(1, node_terms=_of_model(model)))
        for i, model in enumerate(asked)
    ]
    schedule_once(made, [*nodes, *mixed, *(PodGone(pod.uid) for pod in mixed)], 0.0)
    plain = [factories.pod(f"p{i}", 1) for i in range(8)]
    schedule_once(made, plain, 1.0)
    on_rare = {int(made.state.pods[pod.uid].node[1:]) < rare_nodes for pod in plain}
    assert on_rare == {rare_nodes > 4}


def _of_model(names: tuple[str, ...]) -> tuple[tuple[Requirement, ...], ...] | None:
    return ((Requirement("model", "In", names),),) if names else None


def test_a_big_pod_finds_room_that_filling_up_would_have_broken() -> None:
    """Pods of 4 GPUs come, and single ones: a single one goes where a 4 would not fit anyway."""
    made = new_scheduler()
    nodes = [
        factories.node("five", gpus=5),
        factories.node("six", gpus=6),
        factories.node("four", gpus=4),
    ]
    mixed = [factories.pod(f"x{i}", 4 if i % 2 else 1) for i in range(8)]
    schedule_once(made, [*mixed, *(PodGone(pod.uid) for pod in mixed)], 0.0)
    schedule_once(made, [*nodes, factories.pod("one", 1)], 1.0)
    assert made.state.pods["uid-one"].node in {"five", "six"}  # of which a 4 still fits beside it
    schedule_once(
        made, [factories.pod("two", 1), factories.pod("big", 4), factories.pod("large", 4)], 2.0
    )
    schedule_once(made, [factories.pod("more", 4)], 3.0)
    assert all(pod.node for pod in made.state.pods.values())
