"""Nodes of a mixed day: what they have, and what happens to them."""

import random
from collections.abc import Collection
from dataclasses import replace

from central.model.facts import (
    Fact,
    HyperNodeGone,
    HyperNodeSeen,
    Member,
    NodeGone,
    NodeOffers,
    NodeReported,
    NodeSeen,
    NodeSilent,
    Taint,
)
from protos.topology import Grant, NodeTopology
from tests.central import factories

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))
SWITCHES = ((0, 1), (2, 3), (4, 5), (6, 7))
CARD, OWN = 16, 6
MODELS = ("test", "other 1")
TAINTS = tuple(
    Taint(key, "", effect)
    for key, effect in (
        ("job", "NoSchedule"),
        ("job", "NoExecute"),
        ("soft", "PreferNoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    )
)


class MixedNodes:
    def __init__(self, dice: random.Random, features: Collection[str], count: int) -> None:
        self.dice, self.features = dice, features
        self.names = [f"n{i}" for i in range(count)]
        self.up = {name: self._node(i) for i, name in enumerate(self.names)}
        self.away: set[str] = set()
        self.generation = 0
        self.sick: dict[str, tuple[int, ...]] = {}
        self.trees = 0

    def _node(self, index: int) -> NodeSeen:
        has, dice = self.features, self.dice
        rack = f"r{index // 2}" if index < len(self.names) - ("bare" in has) else ""
        return factories.node(
            f"n{index}",
            rack=rack,
            block=f"b{index // 4}" if rack else "",
            gpus=dice.choice((4, 8)) if "small" in has else 8,
            cpu=dice.choice((1_000, 64_000)) if "cpu" in has else 64_000,
            pods=dice.choice((3, 110)) if "cpu" in has else 110,
            shares="shares" in has,
            slices=7 * ("slices" in has),
        )

    def first(self) -> list[Fact]:
        facts: list[Fact] = [*self.up.values(), *self.hypernodes()]
        if "reports" in self.features:
            facts += [self.report(name, ()) for name in self.names]
        return facts

    def hypernodes(self) -> list[Fact]:
        if "trees" not in self.features:
            return []
        dice, names = self.dice, list(self.names)
        if self.trees and dice.random() < 0.3:
            return [HyperNodeGone(dice.choice(("s0", "s1", "top")))]
        self.trees += 1
        if self.trees > 1:
            dice.shuffle(names)
        cut = dice.randint(1, len(names) - 1)
        leaves = [
            HyperNodeSeen(f"s{i}", 1, tuple(Member("Node", each) for each in part), uid=f"s{i}")
            for i, part in enumerate((names[:cut], names[cut:]))
        ]
        above = tuple(Member("HyperNode", f"s{i}") for i in range(2))
        top = HyperNodeSeen("top", dice.choice((2, 2, 3)), above, uid="top")
        return [*leaves, top] if self.trees == 1 else [dice.choice([*leaves, top])]

    def topology(self, name: str) -> NodeTopology:
        has, gpus = self.features, self.up[name].allocatable.get("nvidia.com/gpu", 0)
        halves = HALVES if gpus == 8 else (tuple(range(gpus)),)
        parts = SWITCHES[: gpus // 2] if "switches" in has else ()
        model = MODELS[int(name[1:]) % 2] if "models" in has else "test"
        what = factories.topology(
            gpus,
            halves,
            self.sick.get(name, ()),
            shares="shares" in has,
            model=model,
            switches=parts,
        )
        if "switches" in has:
            half = max(1, gpus // 2)
            placed = tuple(replace(gpu, numa=gpu.index // half) for gpu in what.gpus)
            what = replace(what, gpus=placed)
        if "slices" in has:
            what = factories.sliced(what, 7)
        if "nics" in has:
            what = factories.carded(what, CARD, OWN)
            what = replace(what, rdma_exclusive="exclusive" in has and name != "n0")
        return what

    def report(self, name: str, grants: tuple[Grant, ...]) -> NodeReported:
        self.generation += 1
        return factories.report(name, self.topology(name), self.generation, grants)

    def weather(self) -> list[Fact]:
        """What happens to one node. Pods on a node that vanishes are lost by the caller: see lost()."""
        dice, has = self.dice, self.features
        name = dice.choice(self.names)
        node = self.up[name]
        if name in self.away:
            self.away.discard(name)
            return [node, *([self.report(name, ())] if "reports" in has else [])]
        kinds = [
            kind
            for kind in (
                "taints",
                "cordon",
                "vanish",
                "silent",
                "offers",
                "moves",
                "sick",
                "trees",
                "shrinks",
            )
            if kind in has
        ]
        if not kinds or dice.random() < 0.5:
            return []
        kind = dice.choice(kinds)
        if kind == "vanish":
            self.away.add(name)
            return [NodeGone(name)]
        if kind == "silent":
            return [NodeSilent(name)] if "reports" in has else []
        if kind == "offers":
            return [NodeOffers(name, dice.random() < 0.6)] if "reports" in has else []
        if kind == "sick":
            self.sick[name] = tuple(dice.sample(range(4), dice.choice((0, 0, 1, 3))))
            return [self.report(name, ())] if "reports" in has else []
        if kind == "trees":
            return self.hypernodes()
        changes: dict[str, object] = {}
        if kind == "taints":
            changes["taints"] = tuple(dice.sample(TAINTS, dice.choice((0, 0, 1, 2))))
        elif kind == "cordon":
            changes["unschedulable"] = dice.random() < 0.5
            changes["ready"] = dice.random() < 0.8
        elif kind == "shrinks":
            changes["allocatable"] = {**node.allocatable, "nvidia.com/gpu": dice.choice((4, 6, 8))}
        else:
            rack = dice.choice(("r0", "r1", "r2", ""))
            labels = factories.node(name, rack=rack, block=rack and f"b{int(rack[1]) // 2}")
            changes["labels"] = labels.labels
        self.up[name] = node = replace(node, **changes)  # type: ignore[arg-type]  # a test's shorthand
        facts: list[Fact] = [node]
        if kind == "shrinks" and "reports" in has and dice.random() < 0.7:
            facts.append(self.report(name, ()))
        return facts
