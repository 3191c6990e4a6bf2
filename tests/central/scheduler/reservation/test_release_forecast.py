"""The snapshot without some pods is that of the same cluster in which they never were."""

import random
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from central.model.arrays import Ints
from central.model.facts import Fact, PodSeen
from central.model.pod_rules import Port, Rules
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import ReleasablePods
from central.scheduler.scheduler import Scheduler
from protos.topology import Grant
from tests.central import factories
from tests.central.scheduler.small_cluster import World

NODES, GPUS = 4, 8
PORT = Rules(ports=(Port("TCP", 80),))
CLASSES = (
    factories.spec(1),
    factories.spec(2, cpu=9_000),
    factories.part("s", 30).spec,
    factories.sure(factories.part("s", 60), "mps").spec,
    factories.spec(0, rules=PORT),
    factories.spec(0, rules=factories.apart("x", factories.HOST)),
    factories.wishing(factories.pod("nics"), 10).spec,
)


class Cluster:
    """Pods that run on drawn GPUs, shares of GPUs and NICs of nodes, some of whose GPUs have failed or are shared no
    more."""

    def __init__(self, dice: random.Random) -> None:
        self.sick = [{*dice.sample(range(GPUS), dice.randrange(3))} for _ in range(NODES)]
        self.kept = [{*dice.sample(range(GPUS), dice.randrange(3))} for _ in range(NODES)]
        self.limited = [dice.random() < 0.6 for _ in range(NODES)]
        self.pods: dict[str, tuple[PodSeen, int, tuple[Grant, ...]]] = {}
        self.on: dict[str, tuple[int, int, int]] = {}  # of shares: node, GPU, hundredths
        for node in range(NODES):
            self._fill(dice, node)

    def _fill(self, dice: random.Random, node: int) -> None:
        left = list(range(GPUS))
        dice.shuffle(left)
        for number in range(dice.randrange(3, 7)):
            name = f"p{node}-{number}"
            running: dict[str, Any] = {"node": f"n{node}", "phase": "Running"}
            kind = dice.choice(("whole", "shares", "shares", "rules", "nics"))
            if kind == "whole":
                own = [left.pop() for _ in range(dice.choice((1, 2)))]
                pod = factories.pod(name, len(own), cpu=dice.choice((100, 300)), **running)
                self.pods[name] = pod, node, (factories.grant(name, *own),)
            elif kind == "shares":
                gpu = left.pop()
                for index, share in enumerate(dice.choice(((30,), (30, 60), (20, 20, 40), (100,)))):
                    one = f"{name}-{index}"
                    grant = factories.grant_part(one, gpu, share)
                    self.pods[one] = factories.part(one, share, **running), node, (grant,)
                    self.on[one] = node, gpu, share
            elif kind == "rules":
                pod = factories.pod(name, labels=(("app", "x"),), rules=PORT, **running)
                self.pods[name] = pod, node, ()
            else:
                plain = factories.wishing(factories.pod(name, **running), dice.choice((5, -1)))
                known = (factories.grant_card(name, dice.randrange(2), number),)
                self.pods[name] = plain, node, known

    @property
    def last(self) -> set[str]:
        """Of each GPU that is shared no more, one of its pods: it is not foreseen that it is whole again once all have
        gone."""
        found = {
            (node, gpu): name for name, (node, gpu, _) in self.on.items() if gpu in self.kept[node]
        }
        return {*found.values()}

    def made(self, without: frozenset[str] = frozenset()) -> Scheduler:
        facts: list[Fact] = []
        for node in range(NODES):
            name = f"n{node}"
            plain = factories.topology(GPUS, sick=(*self.sick[node],), shares=True, level="mps")
            gpus = [
                replace(gpu, shares=0) if gpu.index in self.kept[node] else gpu
                for gpu in plain.gpus
            ]
            plain = replace(plain, gpus=tuple(gpus))
            plain = factories.carded(plain, 25, default=5) if self.limited[node] else plain
            grants = [
                grant
                for each, (_, at, own) in self.pods.items()
                for grant in own
                if at == node and each not in without
            ]
            facts.append(replace(factories.node(name, shares=True), memory_level="mps"))
            facts.append(factories.report(name, plain, grants=tuple(grants)))
        world = World(*facts)
        world.step(1.0, *(pod for each, (pod, *_) in self.pods.items() if each not in without))
        return world.cluster

    def frees_whole(self, name: str, gone: frozenset[str]) -> bool:
        """Whether the pod is the only one with a share of its GPU, which may be shared again."""
        if name not in self.on:
            return False
        node, gpu, _ = self.on[name]
        here = [each for each, (at, on, _) in self.on.items() if (at, on) == (node, gpu)]
        return here == [name] and gpu not in self.sick[node] | self.kept[node]


def books(made: Scheduler) -> dict[str, object]:
    snapshot = made.state.snapshot
    columns, gpus = snapshot.columns, snapshot.columns.gpus
    rows = [columns.row[f"n{node}"] for node in range(NODES)]
    return {
        "free": {name: columns.free[rows, at].tolist() for name, at in columns.column.items()},
        "count": gpus.count[rows].tolist(),
        "island": gpus.island[rows].tolist(),
        "masks": [gpus.free_mask[row] for row in rows],
        "shares": [+Counter(gpus.free_shares[row]) for row in rows],
        "nics": [
            (deepcopy(columns.nics[row].nics), +columns.nics[row].unassigned)
            if row in columns.nics
            else None
            for row in rows
        ],
        "fits": [snapshot.view(spec).refresh().by_row[rows].tolist() for spec in CLASSES],
    }


@pytest.mark.parametrize("seed", range(12))
def test_it_is_as_if_they_had_never_been_there(seed: int) -> None:
    dice = random.Random(seed)
    cluster = Cluster(dice)
    made = cluster.made()
    whole = books(made)
    names = sorted(cluster.pods)
    for _ in range(3):
        chosen = [
            n for n in dice.sample(names, dice.randrange(len(names))) if n not in cluster.last
        ]
        order = dice.sample(names, len(names))
        pods = [made.state.pods[f"uid-{name}"] for name in names]
        releasable = ReleasablePods(made.state, pods)
        releasable.reordered(np.array([names.index(name) for name in order], dtype=np.int64))
        some: Ints = np.array([order.index(name) for name in chosen], dtype=np.int64)
        with releasable.without(some):
            found = books(made)
            assert made.state.snapshot.is_half_changed is False
        assert found == books(cluster.made(frozenset(chosen)))
        assert books(made) == whole
        with pytest.raises(ZeroDivisionError), releasable.without(some):
            raise ZeroDivisionError
        assert books(made) == whole
        alone = [cluster.frees_whole(name, frozenset()) for name in order]
        assert releasable.whole_gpus.tolist() == list(map(int, alone))
        assert releasable.have_shares == bool(cluster.on)


@pytest.mark.parametrize("seed", range(10))
def test_the_least_that_must_go_is_counted_by_sums(seed: int) -> None:
    """The number of the first pods without which each amount suffices, all nodes together; one more than all: never."""
    dice = random.Random(seed)
    cluster = Cluster(dice)
    made = cluster.made()
    pods = [
        made.state.pods[f"uid-{name}"]
        for name in dice.sample(sorted(cluster.pods), len(cluster.pods))
    ]
    releasable, columns = ReleasablePods(made.state, pods), made.state.snapshot.columns
    for count in (1, 5, 8, 12, 16, 24, 40):
        groups = (
            (factories.spec(1, cpu=dice.choice((100, 9_000))), count),
            (CLASSES[1], dice.randrange(1, 5)),
        )
        needed: Counter[str] = Counter()
        for spec, number in groups:
            needed.update({name: amount * number for name, amount in spec.requests})
        have = Counter(
            {
                name: int(np.maximum(columns.free[:, at], 0).sum())
                for name, at in columns.column.items()
            }
        )
        least = 0
        for pod in [*pods, None]:
            if all(have[name] >= amount for name, amount in needed.items()):
                break
            least += 1
            have.update(dict(pod.spec.requests) if pod is not None else {})
        assert releasable.min_released(PlacementRequest(groups)) == least


def test_without_pods_nothing_is_freed() -> None:
    made = Cluster(random.Random(0)).made()
    releasable = ReleasablePods(made.state, list(made.state.pods.values()))
    rows, amounts, masks = releasable.freed(np.zeros(0, dtype=np.int64))
    assert (len(rows), len(amounts), masks) == (0, 0, [])
