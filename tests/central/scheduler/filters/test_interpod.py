"""Rules between pods, against the same rules written for one node at a time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model import wording
from central.model.facts import Fact, NodeSeen, PodSeen, Taint
from central.model.pod_rules import Apart, Near, Peers, Rules, Spread
from central.scheduler.apply import apply
from central.scheduler.filters.interpod import InterPodFilter
from tests.central import factories

KEYS = ("zone", "room")
DRAWS = 200


def _peers(random: Random, *, leaving: bool = True) -> Peers:
    return factories.mates(random.choice("xy"), leaving=leaving)


def _spread(random: Random) -> Spread:
    return Spread(
        _peers(random, leaving=False),
        random.choice(KEYS),
        random.randint(1, 2),
        random.randint(1, 3),
        affinity=random.random() < 0.5,
        taints=random.random() < 0.5,
    )


def _rules(random: Random) -> Rules:
    keys = random.choice((("zone",), ("room",), KEYS))
    return Rules(
        near=Near(_peers(random), keys) if random.random() < 0.5 else None,
        apart=tuple(
            Apart(_peers(random), random.choice(KEYS)) for _ in range(random.randint(0, 1))
        ),
        spread=tuple(_spread(random) for _ in range(random.randint(0, 2))),
    )


def _node(random: Random, name: str) -> NodeSeen:
    labels = {key: random.choice("012") for key in KEYS if random.random() < 0.9}
    labels["kind"] = random.choice("aab")
    taints = (Taint("kept", "", "NoSchedule"),) if random.random() < 0.2 else ()
    return factories.node(name, labels=labels, taints=taints)


def _placed(random: Random, name: str, node: NodeSeen) -> PodSeen:
    apart = (Apart(_peers(random), random.choice(KEYS)),) if random.random() < 0.2 else ()
    rules = Rules(apart=apart) if apart else None
    return factories.pod(name, rules=rules, node=node.name, labels=(("app", random.choice("xy")),))


def _refusals(
    pod: PodSeen, node: NodeSeen, nodes: Sequence[NodeSeen], placed: Sequence[PodSeen]
) -> Iterator[str]:
    """Every rule that the node violates, in the order of the filter."""
    rules = pod.spec.rules
    assert rules is not None
    by_name = {each.name: each for each in nodes}

    def matching(peers: Peers, key: str, among: Sequence[NodeSeen]) -> Counter[str]:
        return Counter(
            where.labels[key]
            for other in placed
            if (where := by_name[other.node]) in among and key in where.labels
            if peers.match("ns", dict(other.labels), {}, leaving=False)
        )

    lacking = [spread.key for spread in rules.spread if spread.key not in node.labels]
    if lacking:
        yield f"topology spread label {wording.some(set(lacking))} missing"
    uneven = set[str]()
    for spread in rules.spread:
        if spread.key in lacking:
            continue
        eligible = [
            each
            for each in nodes
            if all(other.key in each.labels for other in rules.spread)
            and not (spread.affinity and each.labels["kind"] != "a")
            and not (spread.taints and each.taints)
        ]
        counts = matching(spread.peers, spread.key, eligible)
        domains = {each.labels[spread.key] for each in eligible}
        fewest = min(counts[name] for name in domains) if len(domains) >= spread.domains else 0
        itself = spread.peers.match("ns", dict(pod.labels), {}, leaving=False)
        if counts[node.labels[spread.key]] + itself - fewest > spread.skew:
            uneven.add(spread.key)
    if uneven:
        yield f"topology spread over {wording.some(uneven)}"
    if (near := rules.near) is not None:
        found = [matching(near.peers, key, nodes) for key in near.keys]
        first = near.peers.match("ns", dict(pod.labels), {}, leaving=False) and not any(found)
        for key, counts in zip(near.keys, found, strict=True):
            if key not in node.labels or not (first or counts[node.labels[key]]):
                yield f"pod affinity to {_selected(near.peers)}"
    excluded = {
        _selected(apart.peers)
        for apart in rules.apart
        if matching(apart.peers, apart.key, nodes)[node.labels.get(apart.key, "")]
    }
    if excluded:
        yield f"pod anti-affinity to {wording.some(excluded)}"
    for other in placed:
        for apart in other.spec.rules.apart if other.spec.rules else ():
            value = by_name[other.node].labels.get(apart.key)
            there = value is not None and value == node.labels.get(apart.key)
            if there and apart.peers.match("ns", dict(pod.labels), {}, leaving=False):
                yield "anti-affinity of existing pods"


def _selected(peers: Peers) -> str:
    [selector] = peers.selectors
    return wording.labels(selector.labels or ())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_each_node_is_refused_by_all_rules_that_it_violates(seed: int) -> None:
    random, seen = Random(seed), Counter[str]()
    for _ in range(DRAWS):
        nodes = [_node(random, f"n{i}") for i in range(random.randint(1, 5))]
        placed = [
            _placed(random, f"p{i}", random.choice(nodes)) for i in range(random.randint(0, 5))
        ]
        pod = factories.pod("new", rules=_rules(random), labels=(("app", random.choice("xy")),))
        pod = replace(pod, spec=replace(pod.spec, node_selector=(("kind", "a"),)))
        cluster = new_scheduler(factories.LEVELS)
        facts: list[Fact] = [*nodes, *placed, pod]
        for fact in facts:
            apply(cluster, fact)
        state = cluster.state
        limits = InterPodFilter(
            state.snapshot.columns, state.snapshot.pod_counts, state.pods[pod.uid].spec
        )
        for node in nodes:
            row = state.snapshot.columns.row[node.name]
            expected = [*dict.fromkeys(_refusals(pod, node, nodes, placed))]
            assert limits.reasons(row) == expected, (pod.spec.rules, node, nodes, placed)
            assert (limits.limits()[row] > 0) == (not expected)
            seen.update(" ".join(each.split()[:3]) for each in expected or [""])
    assert len(seen) == 6
    assert min(seen.values()) > 20, seen
