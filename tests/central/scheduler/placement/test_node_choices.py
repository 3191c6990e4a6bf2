"""Which node the next pod of a gang gets, by the rule as it is written; and when what an earlier slice has found still holds."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.arrays import Ints
from central.model.facts import Fact, PodSeen, PodSpec
from central.model.pod_rules import Nearer, Port, Rules
from central.model.volumes import StorageClassSeen, VolumeRequest, Volumes, VolumeSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import node_choices
from central.scheduler.placement.node_choices import NodeChoices, best_row, choices_for, read_state
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import SearchProgress
from protos.names import BLOCK, RACK
from tests.central import factories

NODES = 9
APP = (("app", "x"),)
KINDS = {
    "plain": None,
    "even": factories.even("x", RACK, 9),
    "near": factories.near("x", RACK),
    "near others": factories.near("y", RACK),
    "prefers": Rules(nearer=(Nearer(factories.mates("y"), factories.HOST, 10),)),
    "even and near": replace(factories.even("x", RACK, 9), near=factories.near("x", BLOCK).near),
}


def cluster(
    dice: random.Random, *more: Fact, labels: tuple[tuple[str, str], ...] = APP, **fields: Any
) -> tuple[Scheduler, PodSpec]:
    """Nodes in racks of three with pods of both apps, and the class of pods that are pending there."""
    facts: list[Fact] = [
        factories.node(f"n{n}", gpus=dice.choice((4, 8)), rack=f"r{n // 3}", block=f"b{n // 6}")
        for n in range(NODES)
    ]
    for number in range(dice.randrange(4, 12)):
        of: dict[str, Any] = {
            "node": f"n{dice.randrange(NODES)}",
            "phase": "Running",
            "labels": (("app", dice.choice("xyz")),),
        }
        facts.append(factories.pod(f"old-{number}", dice.randrange(3), **of))
    made = new_scheduler(factories.LEVELS)
    waits = factories.pod("wait-0", 1, "wait", labels=labels, **fields)
    schedule_once(made, [*facts, *more, factories.gang("wait", 99), waits], 0.0)
    return made, made.state.pods["uid-wait-0"].spec


def by_rule(made: Scheduler, kind: str, left: int, rows: list[int], used: set[int]) -> int | None:
    """As best_row() says it."""
    snapshot, nodes = made.state.snapshot, made.state.nodes
    names = snapshot.columns.names
    spec = made.state.pods["uid-wait-0"].spec
    fits = snapshot.view(spec).refresh().by_row
    rows = [row for row in rows if fits[row] > 0]
    rack, block = [n // 3 for n in range(NODES)], [n // 6 for n in range(NODES)]
    apps = Counter(
        (int(pod.node[1:]), dict(pod.seen.labels)["app"])
        for pod in made.state.pods.values()
        if pod.node
    )
    number = {row: int(names[row][1:]) for row in rows}
    short_of = {"near": rack, "even and near": block}.get(kind)

    def key(row: int) -> tuple[float, ...]:
        mine = number[row]
        peers = (
            sum(apps[n, "x"] for n in range(NODES) if rack[n] == rack[mine])
            if "even" in kind
            else 0
        )
        short = 0
        if short_of is not None:
            there = sum(
                int(fits[other]) for other in rows if short_of[number[other]] == short_of[mine]
            )
            short = max(0, left - there)
        likes = apps[mine, "y"] if kind == "prefers" else 0
        return peers, short, row not in used, -likes, snapshot.columns.gpus.count[row], mine

    assert len(nodes) == NODES
    return min(rows, key=key, default=None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_pod_goes_where_the_rule_says(kind: str) -> None:
    chosen = Counter[int | None]()
    for seed in range(12):
        dice = random.Random(seed)
        made, spec = cluster(dice, rules=KINDS[kind])
        snapshot = made.state.snapshot
        for _ in range(8):
            rows = sorted(dice.sample(range(NODES), dice.randrange(1, NODES + 1)))
            used = {*dice.sample(range(NODES), dice.randrange(4))}
            mask = np.array([row in used for row in range(NODES)], dtype=np.bool_)
            left = dice.randrange(1, 20)
            found = best_row(snapshot, spec, left, np.array(rows, dtype=np.int64), mask)
            assert found == by_rule(made, kind, left, rows, used)
            chosen[found] += 1
    assert len(chosen) > 3


# --- what holds in the next slice ---------------------------------------------------------------------------

ROWS: Ints = np.arange(6)
VOLUMES: list[Fact] = [
    StorageClassSeen("local", "kubernetes.io/no-provisioner", waits=True),
    *(VolumeSeen(f"v{n}", size=1, storage_class="local", phase="Available") for n in range(3)),
]
SHAPES = factories.topology(8, ((0, 1, 2, 3), (4, 5, 6, 7)), shares=True, level="mps")


def running(name: str, node: str = "n1", gpus: int = 0, **fields: Any) -> PodSeen:
    return factories.pod(name, gpus, node=node, phase="Running", **fields)


def changes(
    made: Scheduler, spec: PodSpec, pods: int, fact: Fact | Callable[[Snapshot], object]
) -> bool:
    """Whether what was found for so many pods is out of date after the change."""
    snapshot = made.state.snapshot
    groups = ((spec, pods),)
    before = read_state(snapshot, groups, ROWS)
    assert before == read_state(snapshot, groups, ROWS)
    if callable(fact):
        fact(snapshot)
    else:
        schedule_once(made, [fact], 1.0)
    return before != read_state(snapshot, groups, ROWS)


AVOIDS = running("avoids", "n8", labels=(("app", "z"),), rules=factories.apart("x", factories.HOST))


def quiet(**fields: Any) -> tuple[Scheduler, PodSpec]:
    """Nothing runs on the rows, one of which has a GPU that is shared."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        replace(factories.node(f"n{n}", rack=f"r{n // 3}", shares=True), memory_level="mps")
        for n in range(NODES)
    ]
    facts += [
        factories.report(f"n{n}", factories.carded(SHAPES, 25, default=5)) for n in range(NODES)
    ]
    waits = fields.pop("pod", None) or factories.pod("wait-0", 1, "wait", labels=APP, **fields)
    schedule_once(made, [*facts, *VOLUMES, factories.gang("wait", 99), waits, AVOIDS], 0.0)
    gpu_shares.change(made.state.snapshot.columns.gpus, 2, 1, -20)
    return made, made.state.pods["uid-wait-0"].spec


PART = replace(factories.part("wait-0", 30), gang="wait", labels=APP)
ON_NIC = factories.wishing(factories.pod("wait-0", 1, "wait", labels=APP), 10)
ON_PORT = Rules(ports=(Port("TCP", 80),))
CLAIMS = Volumes(wants=((VolumeRequest("local", 1, ()), 1),))
ON_VOLUME = factories.pod("wait-0", 1, "wait", labels=APP)
ON_VOLUME = replace(ON_VOLUME, spec=replace(ON_VOLUME.spec, volumes=CLAIMS))


@pytest.mark.parametrize(
    ("pods", "fields", "fact"),
    [
        (1, {}, running("gpus", gpus=8)),
        (4, {"cpu": 1000}, running("cpu", cpu=61_000)),
        (1, {}, factories.report("n1", factories.topology(8, sick=(0,)), 2)),
        (1, {}, factories.node("n1", rack="r5")),
        (1, {}, lambda snapshot: snapshot.relevel((RACK,), lambda node: node.labels)),
        (1, {"pod": PART}, lambda snapshot: gpu_shares.change(snapshot.columns.gpus, 2, 1, -60)),
        (1, {"pod": ON_NIC}, factories.wishing(running("nic"), 10)),
        (1, {"rules": factories.even("x", RACK)}, running("mate", labels=APP)),
        (1, {"rules": factories.apart("x", factories.HOST)}, running("mate", labels=APP)),
        (1, {}, replace(AVOIDS, uid="uid-more", name="more", node="n1")),
        (1, {}, running("avoided", labels=APP)),
        (1, {"rules": ON_PORT}, running("port", rules=ON_PORT)),
        (1, {"rules": KINDS["prefers"]}, running("liked", labels=(("app", "y"),))),
        (
            1,
            {"pod": ON_VOLUME},
            VolumeSeen("v0", size=1, storage_class="local", phase="Bound", claim=("ns", "other")),
        ),
    ],
    ids=[
        "GPUs",
        "CPU",
        "sick GPU",
        "label",
        "levels",
        "share",
        "NIC",
        "spread",
        "apart",
        "avoiding",
        "avoided",
        "port",
        "preference",
        "volume",
    ],
)
def test_what_was_found_is_out_of_date_once_what_it_read_has_changed(
    pods: int, fields: dict[str, Any], fact: Any
) -> None:
    made, spec = quiet(**fields)
    assert changes(made, spec, pods, fact)


@pytest.mark.parametrize(
    ("pods", "fields", "fact"),
    [
        (4, {"cpu": 1000}, running("cpu", cpu=60_000)),
        (1, {}, running("elsewhere", "n7", gpus=8)),
        (1, {}, factories.wishing(running("nic"), 10)),
        (1, {}, running("other", labels=(("app", "z"),), rules=ON_PORT)),
        (
            1,
            {},
            VolumeSeen("v0", size=1, storage_class="local", phase="Bound", claim=("ns", "other")),
        ),
        (1, {"rules": factories.even("x", RACK)}, running("other", labels=(("app", "z"),))),
    ],
    ids=["enough CPU", "other node", "NIC", "port", "volume", "no peer"],
)
def test_what_was_found_holds_while_a_newcomer_takes_what_it_did_not_read(
    pods: int, fields: dict[str, Any], fact: Any
) -> None:
    made, spec = quiet(**fields)
    assert not changes(made, spec, pods, fact)


def test_other_rows_and_other_gpus_with_the_same_numbers_are_not_the_same() -> None:
    made, spec = quiet()
    snapshot, groups = made.state.snapshot, ((spec, 1),)
    assert read_state(snapshot, groups, ROWS) != read_state(snapshot, groups, ROWS + 1)
    snapshot.columns.gpus.free_mask[1] = 0b01111111
    before = read_state(snapshot, groups, ROWS)
    snapshot.columns.gpus.free_mask[1] = 0b11111110
    assert read_state(snapshot, groups, ROWS) != before


def test_a_slice_takes_the_choices_of_the_one_before_for_little_work() -> None:
    """While it is the same gang, in the same order and on the same GPUs."""
    made, spec = quiet(rules=factories.even("x", RACK))
    snapshot, groups = made.state.snapshot, ((spec, 3),)
    meter, used = snapshot.meter, np.zeros(NODES, dtype=np.bool_)
    progress = SearchProgress(0.0)

    def chosen(
        groups: PodCounts = groups,
        order: tuple[int, ...] = (0,),
        within: int = -1,
        rows: Ints = ROWS,
    ) -> tuple[NodeChoices, list[int | None], int]:
        choices = choices_for(snapshot, groups, order, rows, within)
        before = meter.used
        found = [choices.next_row(snapshot, spec, 3 - n, rows, used) for n in range(3)]
        return choices, found, meter.used - before

    assert chosen()[0] is not chosen()[0], "nothing is kept outside of a long attempt"
    meter.begin(progress=progress)
    first, found, work = chosen()
    assert progress.grew
    assert work == 3 * (node_choices.CHOICE_UNITS + len(ROWS) // node_choices.ROWS_PER_UNIT)
    meter.begin(progress=progress)
    again, same, less = chosen()
    assert (again, same, progress.grew) == (first, found, False)
    assert 0 < less <= work // 8
    for other in (
        chosen(((spec, 4),)),
        chosen(order=(0, 0)),
        chosen(within=0b1111),
        chosen(rows=ROWS[:5]),
    ):
        assert other[0] is not first
    many = np.repeat(ROWS, 160 // len(ROWS) + 1)[:160]
    assert chosen(rows=many)[2] == work + 3 * (160 // 16)
