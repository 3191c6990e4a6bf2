"""Expected fragmentation: the choice against the definition on small random clusters, and that neither
names nor the order of nodes matter."""

import random
from collections import Counter
from fractions import Fraction

from central.core.cluster import Cluster
from central.core.cycle import turn
from central.core.facts import PodGone, PodSpec
from central.core.fleet import fragments
from central.core.fleet.draft import DoesNotFit, Draft
from central.core.fleet.snapshot import Snapshot
from central.core.placement import Want, fit
from protos.closest import closest
from protos.names import GPU
from tests.central.core import build

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def cluster(dice: random.Random, names: list[str]) -> Snapshot:
    """Nodes with islands or without, of two sizes, some of them in use."""
    snapshot = Snapshot()
    islands = dice.random() < 0.5
    for name in names:
        size, used = dice.choice((4, 8)), dice.randint(0, 3)
        row = snapshot.put_node(build.node(name, gpus=size, cpu=dice.choice((16_000, 64_000))))
        if islands:
            shape = build.topology(size, HALVES[: size // 4]).shape()
            free = (1 << size) - 1 & ~sum(1 << i for i in dice.sample(range(size), used))
            snapshot.put_gpus(row, shape, free)
        if used:
            snapshot.take(row, build.spec(used, 1000 * used), 1, 0)
    for _ in range(dice.randint(5, 30)):
        snapshot.mix.came(build.spec(dice.choice((1, 1, 2, 4, 8)), dice.choice((500, 9000))))
    return snapshot


def lost(snapshot: Snapshot, row: int, mix: Counter[PodSpec]) -> Fraction:
    """Idle GPUs times the share of pods that could not use them there, by the definition."""
    gpus, shape = int(snapshot.gpus[row]), snapshot.shape[row]
    islands = shape.islands if shape is not None else ()
    largest = max((island.bit_count() for island in islands), default=0)
    most = max(((i & snapshot.free_mask[row]).bit_count() for i in islands), default=0)
    out = 0
    for kind, count in mix.items():
        asked = kind.request(GPU)
        close = asked > largest or asked <= most
        room = all(
            snapshot.free[row, snapshot.column[name]] >= amount for name, amount in kind.requests
        )
        out += count * (not (room and close and asked <= gpus))
    return Fraction(gpus * out, mix.total())


def harm(snapshot: Snapshot, row: int, spec: PodSpec, mix: Counter[PodSpec]) -> Fraction:
    before = lost(snapshot, row, mix)
    shape, gpus = snapshot.shape[row], 0
    if shape is not None and (asked := spec.request(GPU)):
        gpus = closest(shape, snapshot.free_mask[row], asked)
    snapshot.take(row, spec, 1, gpus)
    after = lost(snapshot, row, mix)
    idle = Fraction(int(snapshot.gpus[row]), int(snapshot.allocatable[:, 0].max()))
    cpu = snapshot.column["cpu"]
    idle += Fraction(int(snapshot.free[row, cpu]), int(snapshot.allocatable[:, cpu].max()))
    snapshot.give(row, spec, 1, gpus)
    return after - before + Fraction(fragments.IDLE) * idle


def test_the_node_with_the_least_harm_by_the_definition() -> None:
    chosen = Counter[bool]()
    for seed in range(400):
        dice = random.Random(seed)
        snapshot = cluster(dice, [f"n{i}" for i in range(5)])
        mix: Counter[PodSpec] = snapshot.mix._seen
        spec = build.spec(dice.choice((0, 1, 2, 4)), dice.choice((500, 9000)))
        draft = Draft(snapshot)
        try:
            seat = fit(draft, Want(((spec, 1),)))[0]
        except DoesNotFit:
            continue
        draft.undo()
        view, asked = snapshot.view(spec).refresh(), spec.request(GPU)
        rows = [row for row in snapshot.row.values() if view.cap[row]]
        inside = [row for row in rows if asked and snapshot.island[row] >= asked]
        harms = {row: harm(snapshot, row, spec, mix) for row in inside or rows}
        least = min(harms.values())
        assert seat.row in harms
        assert len(mix) < 2 or harms[seat.row] - least <= Fraction(1, fragments.PARTS), seed
        fullest = min(harms, key=lambda row: (snapshot.gpus[row], snapshot.names[row]))
        chosen[seat.row == fullest] += 1
    assert min(chosen.values()) > 50  # it is not what filling up alone would have chosen


def test_names_decide_nothing() -> None:
    """The same nodes under other names: the node that is chosen is in the same state."""
    for seed in range(100):
        states = set()
        for shuffled in range(4):
            dice = random.Random(seed)
            names = [f"n{i}" for i in range(6)]
            random.Random(shuffled).shuffle(names)
            snapshot = cluster(dice, names)
            spec = build.spec(dice.choice((1, 2)), 500)
            try:
                seat = fit(Draft(snapshot), Want(((spec, 1),)))[0]
            except DoesNotFit:
                continue
            row = seat.row
            states.add((tuple(snapshot.free[row].tolist()), int(snapshot.gpus[row])))
        assert len(states) <= 1, f"seed {seed}"


def test_what_is_kept_is_what_is_worked_out_anew() -> None:
    for seed in range(40):
        dice = random.Random(seed)
        snapshot = cluster(dice, [f"n{i}" for i in range(8)])
        loads = [((build.spec(gpus), 1),) for gpus in (0, 1, 2)]
        for _ in range(30):
            spec = build.spec(dice.choice((1, 2)))
            row = dice.choice(sorted(snapshot.row.values()))
            if snapshot.view(spec).refresh().cap[row]:
                Draft(snapshot).take(row, spec, 1)
            kept = snapshot.mix.harm(loads[dice.randint(0, 2)])
            if kept is None:
                continue
            for load in loads:
                kept = snapshot.mix.harm(load)
                assert kept is not None
                fresh = snapshot.mix.weigh(load, snapshot.name_rank() * 0 + range(len(kept)))
                assert (kept == fresh).all()


def test_one_kind_of_pod_leaves_nothing_to_choose() -> None:
    snapshot = Snapshot()
    snapshot.put_node(build.node("a"))
    for _ in range(10):
        snapshot.mix.came(build.spec(4))
    assert snapshot.mix.harm(((build.spec(4), 1),)) is None


def test_what_came_long_ago_counts_for_less() -> None:
    """First 8-GPU pods come, then pairs only: whole nodes are kept for a while, and then no more."""
    snapshot = Snapshot()
    snapshot.put_node(build.node("whole", gpus=8, cpu=64_000))
    row = snapshot.put_node(build.node("used", gpus=8, cpu=64_000))
    snapshot.take(row, build.spec(2), 1, 0)
    load = ((build.spec(2), 1),)

    def gap() -> int:
        found = snapshot.mix.harm(load)
        assert found is not None
        return int(found[snapshot.row["whole"]] - found[snapshot.row["used"]])

    for _ in range(100):
        snapshot.mix.came(build.spec(8))
        snapshot.mix.came(build.spec(2))
    early = gap()
    for _ in range(6 * fragments.MEMORY):
        snapshot.mix.came(build.spec(2))
    snapshot.mix.came(build.spec(8))
    assert early > 2 * gap() > 0


def test_a_big_pod_finds_room_that_filling_up_would_have_broken() -> None:
    """Pods of 4 GPUs come, and single ones: a single one goes where a 4 would not fit anyway."""
    made = Cluster()
    nodes = [build.node("five", gpus=5), build.node("six", gpus=6), build.node("four", gpus=4)]
    mixed = [build.pod(f"x{i}", 4 if i % 2 else 1) for i in range(8)]
    turn(made, [*mixed, *(PodGone(pod.uid) for pod in mixed)], 0.0)
    turn(made, [*nodes, build.pod("one", 1)], 1.0)
    assert made.pods["uid-one"].node in {"five", "six"}  # of which a 4 still fits beside it
    turn(made, [build.pod("two", 1), build.pod("big", 4), build.pod("large", 4)], 2.0)
    turn(made, [build.pod("more", 4)], 3.0)
    assert all(pod.node for pod in made.pods.values())
