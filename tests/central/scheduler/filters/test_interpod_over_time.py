"""Rules between pods while nodes and pods come, go and change: what a filter has kept is what holds."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen, PodSpec
from central.model.pod_rules import NodeTerms, Port, Requirement, Rules
from central.model.volumes import AVAILABLE, AttachLimits, ClaimSeen, StorageClassSeen, VolumeSeen
from central.scheduler.apply import apply
from central.scheduler.filters.interpod import MANY, InterPodFilter
from central.scheduler.volumes.provisioners import NO_PROVISIONER
from tests.central import factories
from tests.central.scheduler.filters.test_interpod import _node, _placed, _refusals, _rules

PORTS = (Port("TCP", 80), Port("TCP", 80, "10.0.0.1"), Port("UDP", 80))
# alone: for one pod at a time; far: its volume is in two zones; only the first pod has a local claim.
CLAIMS = ("c0", "c1", "c2", "alone", "far")
LOCAL = {"free0": ("0",), "free1": ("0", "1"), "free2": ("1",)}  # volumes and their zones
LIMIT = 2  # volumes of a node


def in_zones(*zones: str) -> tuple[NodeTerms, ...]:
    return (((Requirement("zone", "In", zones),),),)


def storage() -> list[Fact]:
    found: list[Fact] = [
        VolumeSeen(f"v-{name}", in_zones("0", "1") if name == "far" else (), driver="csi")
        for name in CLAIMS
    ]
    found.append(StorageClassSeen("local", NO_PROVISIONER[0], waits=True))
    found.append(ClaimSeen("ns", "local", storage_class="local", size=2**30))
    found += [
        VolumeSeen(name, in_zones(*zones), "", "local", 2**30, phase=AVAILABLE)
        for name, zones in LOCAL.items()
    ]
    found += [
        ClaimSeen("ns", name, f"v-{name}", bound=True, one_pod=name == "alone") for name in CLAIMS
    ]
    return [*found, *(AttachLimits(f"n{number}", (("csi", LIMIT),)) for number in range(4))]


def with_more(random: Random, pod: PodSeen) -> PodSeen:
    """With host ports and claims too."""
    ports = tuple(random.sample(PORTS, random.choice((0, 0, 1))))
    rules = replace(pod.spec.rules or Rules(), ports=ports)
    claims = tuple(random.sample(CLAIMS, random.choice((0, 0, 1, 2))))
    return replace(pod, spec=replace(pod.spec, rules=rules), claims=claims)


class Plain:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeSeen] = {}
        self.pods: dict[str, PodSeen] = {}  # by uid

    def reasons(self, pod: PodSeen, node: NodeSeen) -> list[str]:
        """The rules that the node violates, in the order of the filter."""
        return [*dict.fromkeys(self._reasons(pod, node))]

    def _reasons(self, pod: PodSeen, node: NodeSeen) -> Iterator[str]:
        placed = [each for each in self.pods.values() if each.node]
        beside = [each for each in placed if each.node == node.name]
        rules = pod.spec.rules
        assert rules is not None
        for other in beside:
            theirs = other.spec.rules.ports if other.spec.rules else ()
            if any(one.conflicts(port) for one in theirs for port in rules.ports):
                yield "host port 80 in use"
        if "alone" in pod.claims and any("alone" in each.claims for each in placed):
            yield "ReadWriteOncePod claim in use"
        attached = {claim for each in beside for claim in each.claims}
        if bound_claims(pod) and len(attached | bound_claims(pod)) > LIMIT:
            yield "volume attach limit"
        nodes, zone = [*self.nodes.values()], node.labels.get("zone")
        if "far" in pod.claims and zone not in ("0", "1"):
            there = [each.name for each in nodes if each.labels.get("zone") in ("0", "1")]
            yield f"volumes only on node {there[0]}" if len(there) == 1 else "volumes not reachable"
        if "local" in pod.claims and not self.local(node):
            yield "no free volumes (1 of class local with 1Gi)"
        yield from _refusals(pod, node, nodes, placed)

    def local(self, node: NodeSeen) -> int:
        return sum(node.labels.get("zone") in zones for zones in LOCAL.values())

    def most(self, pod: PodSeen, node: NodeSeen) -> int:
        """How many such pods the rules leave room for, of which the node violates none."""
        rules = pod.spec.rules
        assert rules is not None
        limits = [int(MANY)]
        if rules.ports or "alone" in pod.claims:
            limits.append(1)
        others = {claim for each in self.pods.values() if each is not pod for claim in each.claims}
        attached = {c for each in self.pods.values() if each.node == node.name for c in each.claims}
        if own := bound_claims(pod) - others:
            taken = attached | (bound_claims(pod) & others)
            limits.append((LIMIT - len(taken)) // len(own))
        if "local" in pod.claims:
            limits.append(self.local(node))
        for apart in rules.apart:
            itself = apart.peers.match("ns", dict(pod.labels), {}, leaving=False)
            if itself and apart.key in node.labels:
                limits.append(1)
        return min(limits)


def bound_claims(pod: PodSeen) -> set[str]:
    return {*pod.claims} - {"local"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_is_what_holds(seed: int) -> None:
    random, cluster, plain = Random(seed), new_scheduler(factories.LEVELS), Plain()
    state, seen = cluster.state, Counter[tuple[str, ...]]()
    kept: dict[str, tuple[PodSpec, InterPodFilter]] = {}
    for stored in storage():
        apply(cluster, stored)
    for number in range(3):
        pod = factories.pod(
            f"new{number}", rules=_rules(random), labels=(("app", "xy"[number % 2]),)
        )
        pod = with_more(
            random, replace(pod, spec=replace(pod.spec, node_selector=(("kind", "a"),)))
        )
        if not number and random.random() < 0.5:
            pod = replace(pod, claims=(*pod.claims, "local"))
        apply(cluster, pod)
        plain.pods[pod.uid] = pod
    for step in range(60):
        change = random.random()
        fact: Fact | None = None
        names = sorted(plain.nodes)
        if change < 0.3 or not names:
            node = _node(random, f"n{random.randrange(4)}")
            plain.nodes[node.name] = fact = node
        elif change < 0.75:
            placed = _placed(random, f"p{step}", plain.nodes[random.choice(names)])
            fact = plain.pods[placed.uid] = with_more(random, placed)
        elif change < 0.95 and (running := [p for p in plain.pods.values() if p.node]):
            gone = random.choice(running).uid
            del plain.pods[gone]
            fact = PodGone(gone)
        elif not any(pod.node == names[0] for pod in plain.pods.values()):
            fact = NodeGone(names[0])
            del plain.nodes[names[0]]
        if fact is None:
            continue
        apply(cluster, fact)
        columns, counts = state.snapshot.columns, state.snapshot.pod_counts
        for number in range(3):
            pod, spec = plain.pods[f"uid-new{number}"], state.pods[f"uid-new{number}"].spec
            if pod.uid not in kept or kept[pod.uid][0] is not spec:
                kept[pod.uid] = spec, InterPodFilter(columns, counts, spec)
            found = kept[pod.uid][1]
            fresh = InterPodFilter(columns, counts, spec)
            assert found.limits().tolist() == fresh.limits().tolist()
            assert found.limits() is found.limits()
            for node in plain.nodes.values():
                row, expected = columns.row[node.name], plain.reasons(pod, node)
                assert found.reasons(row) == expected
                limit = found.limits()[row]
                assert limit == (0 if expected else plain.most(pod, node))
                seen[tuple(expected)] += 1
                if random.random() < 0.2 and 0 < limit < MANY:
                    counts.count(row, spec, int(limit))
                    assert found.limits()[row] == 0, "no more than so many"
                    counts.count(row, spec, -int(limit))
    assert len(seen) >= 4, seen
