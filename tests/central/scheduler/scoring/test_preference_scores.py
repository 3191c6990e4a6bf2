"""Scores of soft rules, against plain loops over nodes and pods, while they come, go and change."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeSeen, PodGone, PodSeen, Taint, Toleration
from central.model.pod_rules import Nearer, Requirement, Rules, Spread
from central.scheduler.apply import apply
from protos.names import RACK
from tests.central import factories

WEIGHTS = {"affinity": 2, "taints": 3, "near": 2, "spread": 2}
DISKS = ("fast", "slow")


def node(dice: random.Random, name: str) -> NodeSeen:
    labels = {"disk": dice.choice(DISKS)} if dice.random() < 0.7 else {}
    taints = tuple(Taint(key, "", "PreferNoSchedule") for key in "xy" if dice.random() < 0.4)
    taints += (Taint("z", "", "NoSchedule"),) * (dice.random() < 0.2)
    return factories.node(name, rack=dice.choice(("r1", "r2", "")), labels=labels, taints=taints)


def pod(dice: random.Random, name: str, node: str) -> PodSeen:
    return factories.pod(name, node=node, phase="Running", labels=(("app", dice.choice("ab")),))


def rules(dice: random.Random) -> tuple[Rules, Any]:
    terms = tuple(
        (dice.choice((1, 5, 20)), (Requirement("disk", "In", (disk,)),))
        for disk in DISKS
        if dice.random() < 0.6
    )
    near = tuple(
        Nearer(
            factories.mates(app),
            dice.choice((RACK, factories.HOST, "zone")),
            dice.choice((-10, 3, 7)),
        )
        for app in "ab"
        if dice.random() < 0.6
    )
    even = tuple(
        Spread(factories.mates(app, leaving=False), dice.choice((RACK, factories.HOST, "zone")), 1)
        for app in "ab"
        if dice.random() < 0.4
    )
    return Rules(nodes=terms, nearer=near, even=even), (
        Toleration("x", "Exists", "", "PreferNoSchedule"),
    ) * dice.randrange(2)


def app_of(rule: Nearer | Spread) -> str:
    return "a" if rule.peers in (factories.mates("a"), factories.mates("a", leaving=False)) else "b"


def counts(
    rule: Nearer | Spread, nodes: Sequence[NodeSeen], pods: Sequence[PodSeen]
) -> dict[str, int]:
    """Matching pods by the value of the rule's key."""
    found = {node.labels[rule.key]: 0 for node in nodes if rule.key in node.labels}
    where = {node.name: node.labels.get(rule.key) for node in nodes}
    for each in pods:
        if dict(each.labels)["app"] == app_of(rule) and (value := where[each.node]) is not None:
            found[value] += 1
    return found


def scaled(values: list[int]) -> list[int]:
    """0 for the least, 100 for the most."""
    least, most = min(values), max(values)
    return [(value - least) * 100 // (most - least) if most > least else 0 for value in values]


def by_rule(own: PodSeen, nodes: Sequence[NodeSeen], pods: Sequence[PodSeen]) -> list[int]:
    soft, total = own.spec.rules or Rules(), [0] * len(nodes)
    tolerated = {each.key for each in own.spec.tolerations}
    values: dict[str, list[int]] = {kind: [0] * len(nodes) for kind in WEIGHTS}
    for index, each in enumerate(nodes):
        for weight, ((disk,),) in ((w, tuple(r.values for r in term)) for w, term in soft.nodes):
            values["affinity"][index] += weight * (each.labels.get("disk") == disk)
        values["taints"][index] = -sum(
            t.effect == "PreferNoSchedule" and t.key not in tolerated for t in each.taints
        )
        for near in soft.nearer:
            values["near"][index] += near.weight * counts(near, nodes, pods).get(
                each.labels.get(near.key, "-"), 0
            )
        for even in soft.even:
            there = counts(even, nodes, pods)
            nowhere = max(there.values(), default=0) + 1
            values["spread"][index] -= there.get(each.labels.get(even.key, "-"), nowhere)
    for kind, weight in WEIGHTS.items():
        total = [
            sum_ + weight * value for sum_, value in zip(total, scaled(values[kind]), strict=True)
        ]
    return total


@pytest.mark.parametrize("seed", range(15))
def test_scores_are_those_of_the_rules(seed: int) -> None:
    dice, made = random.Random(seed), new_scheduler(factories.LEVELS)
    nodes = {name: node(dice, name) for name in ("n0", "n1", "n2", "n3", "n4")}
    pods: dict[str, PodSeen] = {}
    soft, tolerations = rules(dice)
    own = factories.pod("own", 1, "never", rules=soft)
    own = PodSeen(
        own.uid,
        own.namespace,
        own.name,
        factories.spec(1, rules=soft, tolerations=tolerations),
        gang="never",
    )
    facts: list[Fact] = [*nodes.values(), factories.gang("never", 9), own]
    for step in range(12):
        for fact in facts:
            apply(made, fact)
        names = sorted(nodes)
        seen = made.state.pods[own.uid].spec
        snapshot = made.state.snapshot
        found = snapshot.preference(((seen, 2),))
        expected = by_rule(own, [nodes[name] for name in names], list(pods.values()))
        if found is None:
            assert not any(expected)
        else:
            rows = [snapshot.columns.row[name] for name in names]
            assert found[rows].tolist() == [2 * each for each in expected], f"step {step}"
        name = dice.choice(names)
        match dice.randrange(3):
            case 0:
                nodes[name] = node(dice, name)
                facts = [nodes[name]]
            case 1 if pods:
                gone = pods.pop(dice.choice(sorted(pods)))
                facts = [PodGone(gone.uid)]
            case _:
                pods[f"p{step}"] = pod(dice, f"p{step}", name)
                facts = [pods[f"p{step}"]]
