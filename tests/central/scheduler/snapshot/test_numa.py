"""A NUMA node as the level that a gang requires: against the definition on random nodes."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict, UpdateGangStatus
from central.model.facts import SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import NUMA, RACK
from protos.topology import NodeTopology
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

LOW, HIGH = 0b00001111, 0b11110000


def sockets(islands: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3, 4, 5, 6, 7),)) -> NodeTopology:
    """Eight GPUs on two NUMA nodes; by default one island spans both."""
    made = factories.topology(8, islands)
    return replace(made, gpus=tuple(replace(g, numa=g.index // 4) for g in made.gpus))


def test_all_gpus_on_one_numa_node_or_none() -> None:
    answers = Counter[bool]()
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot = Snapshot((RACK,))
        for place in range(3):
            row = snapshot.put_node(factories.node(f"n{place}", rack="r"))
            free = dice.getrandbits(8)
            snapshot.take(row, factories.spec(8 - free.bit_count()), 1, 0)
            snapshot.put_gpus(row, sockets().shape(), free)
        gpus, count = dice.choice((1, 2)), dice.randint(1, 3)
        rooms = [
            (mask & part).bit_count()
            for mask in snapshot.columns.gpus.free_mask
            for part in (LOW, HIGH)
        ]
        possible = max(rooms) >= gpus * count
        answers[possible] += 1
        want = PlacementRequest(((factories.spec(gpus), count),), NUMA)
        if not possible:
            with pytest.raises(DoesNotFit, match="in one NUMA node"):
                fit(Draft(snapshot), want)
            continue
        (seat,) = fit(Draft(snapshot), want)
        assert seat.gpus.bit_count() == gpus * count
        assert not seat.gpus & ~LOW or not seat.gpus & ~HIGH
    assert not ALL_SEEDS or min(answers.values()) > 30


def test_the_sentence_says_how_many_fit() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    pods = [factories.pod(f"g-{i}", 1, "g") for i in range(5)]
    wish = factories.gang("g", 5, topology_required=NUMA)
    decisions = schedule_once(
        scheduler, [factories.node("a"), factories.report("a", sockets()), wish, *pods], 0.0
    )
    told = next(d.reason for d in decisions if isinstance(d, UpdateGangStatus))
    assert told.startswith("needs 5 pods x 1 GPU in one NUMA node; best candidate node a fits 4")


def test_groups_each_on_a_numa_node() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    pods = [factories.pod(f"g-{i}", 2, "g", labels=(("half", str(i % 2)),)) for i in range(4)]
    halves = (SubGroups("half", 2, keys=("half",), required=NUMA),)
    wish = factories.gang("g", 4, subgroups=halves)
    schedule_once(
        scheduler, [factories.node("a"), factories.report("a", sockets()), wish, *pods], 0.0
    )
    used = [0, 0]
    for pod in scheduler.state.pods.values():
        used[int(dict(pod.seen.labels)["half"])] |= pod.gpus
    assert sorted(used) == [LOW, HIGH]


def test_room_is_made_on_one_numa_node() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    node, report = factories.node("a"), factories.report("a", sockets())
    schedule_once(scheduler, [node, report, *(factories.pod(f"s{i}", 1) for i in range(8))], 0.0)
    wish = factories.gang("g", 4, topology_required=NUMA, priority=5)
    decisions = schedule_once(
        scheduler, [wish, *(factories.pod(f"g-{i}", 1, "g") for i in range(4))], 1.0
    )
    gone = [scheduler.state.pods[d.pod].gpus for d in decisions if isinstance(d, Evict)]
    assert sum(gone) in {LOW, HIGH}
