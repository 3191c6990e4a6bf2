"""What must be true of every cycle's bindings and evictions, whatever happened before. Computed again
from the facts, with the naive filters and plain loops: it shares no code with what it checks."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from central.model.decisions import Bind, Decision, Evict
from central.model.facts import PodSeen, SubGroups
from central.model.json_types import Json
from central.model.pod_rules import Apart, Expression, Requirement
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import ISLAND, NODE, NUMA, PCIE_SWITCH
from protos.topology import RdmaLimit, indices_of
from tests.central.kube import naive_filters

DEVICES = re.compile(r"nvidia\.com/(gpu|mig-)|lockstep\.dev/(gpu-share|rdma|rail-)")


def assert_sound(scheduler: Scheduler, decisions: Sequence[Decision]) -> None:
    binds = [decision for decision in decisions if isinstance(decision, Bind)]
    bound = {bind.pod for bind in binds}
    _assert_nics_suffice(scheduler, bound)
    _assert_volumes_fit(scheduler, binds)
    _assert_filters_pass(scheduler, bound)
    _assert_devices_offered(scheduler, bound)
    gangs = {}
    for uid in bound:
        gang = scheduler.state.gang_of(scheduler.state.pods[uid])
        assert gang is not None
        gangs[gang.key] = gang
    for gang in gangs.values():
        assert not gang.missing(), f"{gang.name} is bound in part"
        fresh = [pod for pod in gang.counts.placed if pod.seen.uid in bound]
        if len(fresh) == len(gang.counts.placed):
            tier = gang.object.required_tier if gang.object is not None else None
            _assert_close(scheduler, gang.name, fresh, gang.required, tier)
        for level, pods in _bundles(gang).values():
            if all(pod.seen.uid in bound for pod in pods):
                _assert_close(scheduler, gang.name, pods, level, None)
        for policy, pods in _groups(gang).values():
            if any(pod.seen.uid in bound for pod in pods):
                assert len(pods) >= policy.size, f"a group of {gang.name} is bound in part"
                # Others may have been there before the tree was as it is.
                if all(pod.seen.uid in bound for pod in pods):
                    _assert_close(scheduler, gang.name, pods, policy.required, policy.tier)


def _assert_devices_offered(scheduler: Scheduler, bound: set[str]) -> None:
    """A pod whose devices the kubelet does not have in that moment fails for ever."""
    for pod in (scheduler.state.pods[uid] for uid in bound):
        if DEVICES.search(" ".join(name for name, amount in pod.spec.requests if amount)):
            assert scheduler.state.nodes[pod.node].offered, f"{pod.seen.name}: {pod.node} restarts"


# --- NICs ---------------------------------------------------------------------------------


def _assert_nics_suffice(scheduler: Scheduler, bound: set[str]) -> None:
    """The limits of all pods on each NIC of a bound pod fit below the NIC's own."""
    for uid in bound:
        pod = scheduler.state.pods[uid]
        node = scheduler.state.nodes[pod.node] if pod.node else None
        if node is None or node.reported.nics is None or not pod.spec.rdma_containers:
            continue
        if pod.charged_spec is None:
            continue
        mine = _nics(node)[pod.seen.namespace, pod.seen.name]
        assert mine, f"{pod.seen.name} has no NICs"
        full = sorted(set(mine) & _overcommitted(node))
        assert not full, f"{pod.seen.name} exceeds the limits of {full} on {pod.node}"


def _nics(node: ClusterNode) -> dict[tuple[str, str], Counter[str]]:
    """By pod: how many shares it holds or is planned to hold of each NIC."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for (namespace, pod, _), names in {**node.planned_nics, **node.reported.held_nics}.items():
        found.setdefault((namespace, pod), Counter()).update(names)
    return found


def _overcommitted(node: ClusterNode) -> set[str]:
    assert node.report is not None
    topology = node.report.topology
    pods = {(pod.seen.namespace, pod.seen.name): pod for pod in node.pods.values()}
    handles, objects, shares = Counter[str](), Counter[str](), Counter[str]()
    for name, held in _nics(node).items():
        pod = pods.get(name)
        if pod is not None and not pod.alive:
            continue
        requested = dict(pod.spec.rdma_limits) if pod is not None else {}
        for nic, count in held.items():
            default = topology.rdma_default
            handles[nic] += max(0, requested.get("hca_handle", default.hca_handle))
            objects[nic] += max(0, requested.get("hca_object", default.hca_object))
            shares[nic] += count
    limits = dict(topology.rdma_cgroup or ())
    over = set()
    for hca in topology.hcas:
        limit = limits.get(hca.name, RdmaLimit())
        sums = ((handles, limit.hca_handle), (objects, limit.hca_object))
        if shares[hca.name] > hca.shares or any(s[hca.name] > most >= 0 for s, most in sums):
            over.add(hca.name)
    return over


# --- filters --------------------------------------------------------------------------------


def _assert_volumes_fit(scheduler: Scheduler, binds: Iterable[Bind]) -> None:
    """A volume belongs to one claim, and is usable on the node of the claim's pods."""
    owners: dict[str, tuple[str, str]] = {}
    for bind in binds:
        for claim, name in bind.claims:
            volume = scheduler.state.podclasses.storage._volumes.get(name)
            if volume is None:
                continue
            labels = _node(scheduler.state.nodes[bind.node])["metadata"]["labels"]
            for terms in volume.places:
                usable = any(
                    naive_filters.expressions(_requirements(term), labels) for term in terms
                )
                assert usable, f"{name} can't be used on {bind.node}"
            mine = (bind.namespace, claim)
            assert owners.setdefault(name, mine) == mine, f"{name} is given to two claims"
            assert volume.claim in (None, mine), f"{name} is {volume.claim}'s"


def _assert_filters_pass(scheduler: Scheduler, bound: set[str]) -> None:
    """Filters whose answer does not depend on the order of bindings: those of the node alone, host
    ports and anti-affinity in both directions."""
    if not bound:
        return
    nodes = {name: _node(node) for name, node in scheduler.state.nodes.items() if node.seen}
    pods = {
        uid: _pod(pod.seen, pod.node)
        for uid, pod in scheduler.state.pods.items()
        if pod.node in nodes and pod.alive
    }
    for uid in bound & pods.keys():
        others = {other: pod for other, pod in pods.items() if other != uid}
        world = naive_filters.World(nodes, others)
        mine, node = pods[uid], nodes[pods[uid]["spec"]["nodeName"]]
        assert not node["spec"]["unschedulable"], f"{uid} is on a cordoned node"
        assert naive_filters.taints_tolerated(mine, node), f"{uid} does not tolerate a taint"
        assert naive_filters.node_affine(mine, node), f"{uid} selects other nodes"
        for passes in (naive_filters.ports, naive_filters.apart, naive_filters.avoided):
            assert passes(world, mine, node), f"{uid} breaks {passes.__name__}"


def _node(node: ClusterNode) -> Json:
    seen = node.seen
    assert seen is not None
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in seen.taints]
    spec = {"unschedulable": seen.unschedulable, "taints": taints}
    return {"metadata": {"name": seen.name, "labels": seen.labels}, "spec": spec}


def _pod(seen: PodSeen, node: str) -> Json:
    rules = seen.spec.rules
    ports = [
        {"hostPort": port.number, "protocol": port.protocol, "hostIP": port.address}
        for port in (rules.ports if rules else ())
    ]
    affinity: Json = {}
    if rules and rules.apart:
        affinity["podAntiAffinity"] = {naive_filters.REQUIRED: [_term(r) for r in rules.apart]}
    if seen.spec.node_terms is not None:
        terms = [{"matchExpressions": _requirements(term)} for term in seen.spec.node_terms]
        affinity["nodeAffinity"] = {naive_filters.REQUIRED: {"nodeSelectorTerms": terms}}
    tolerations = [
        {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
        for t in seen.spec.tolerations
    ]
    return {
        "metadata": {"name": seen.name, "namespace": seen.namespace, "labels": dict(seen.labels)},
        "spec": {
            "nodeName": node,
            "nodeSelector": dict(seen.spec.node_selector),
            "tolerations": tolerations,
            "affinity": affinity,
            "containers": [{"ports": ports}],
        },
        "status": {"phase": seen.phase},
    }


def _term(rule: Apart) -> Json:
    (selector,) = rule.peers.selectors
    assert selector.namespace_labels is None
    labels = (
        None if selector.labels is None else {"matchExpressions": _expressions(selector.labels)}
    )
    return {
        "topologyKey": rule.key,
        "namespaces": list(selector.namespaces),
        "labelSelector": labels,
    }


def _requirements(term: Iterable[Requirement]) -> list[Json]:
    return [{"key": r.key, "operator": r.operator, "values": list(r.values)} for r in term]


def _expressions(every: Iterable[Expression]) -> list[Json]:
    return [{"key": e.key, "operator": e.operator, "values": list(e.values)} for e in every]


# --- closeness --------------------------------------------------------------------------------


def _groups(gang: Gang) -> dict[tuple[str, ...], tuple[SubGroups, list[Pod]]]:
    """The placed members by the first policy that selects them, and the values of its labels."""
    found: dict[tuple[str, ...], tuple[SubGroups, list[Pod]]] = {}
    for pod in gang.counts.placed:
        labels = dict(pod.seen.labels)
        for policy in gang.object.subgroups if gang.object is not None else ():
            values = tuple(labels.get(key, "") for key in policy.keys)
            if all(values) and naive_filters.expressions(_expressions(policy.labels), labels):
                found.setdefault((policy.name, *values), (policy, []))[1].append(pod)
                break
    return found


def _bundles(gang: Gang) -> dict[tuple[object, ...], tuple[str, list[Pod]]]:
    """The placed members of groups that share a domain, and its level."""
    found: dict[tuple[object, ...], tuple[str, list[Pod]]] = {}
    for (name, *values), (policy, pods) in _groups(gang).items():
        for layer in policy.layers:
            known = dict(zip(policy.keys, values, strict=True))
            key = (name, layer, *(known[each] for each in layer.keys))
            found.setdefault(key, (layer.required, []))[1].extend(pods)
    return found


def _assert_close(
    scheduler: Scheduler, name: str, pods: Sequence[Pod], level: str, tier: int | None
) -> None:
    """The pods are in one domain of the level or, where no level is named, of the tier."""
    nodes = {pod.node for pod in pods}
    labelled = () if scheduler.state.network.hypernodes else scheduler.levels
    if not level and tier is not None:
        if tier and not labelled:
            assert _in_one_hypernode(scheduler, nodes, tier), f"{name} is wider than tier {tier}"
            return
        level = NODE if not tier else labelled[-tier] if tier <= len(labelled) else ""
    inside = (ISLAND, NUMA, PCIE_SWITCH)
    assert len(nodes) == 1 or level not in (*inside, NODE), f"{name} is on {nodes}"
    if level in inside:
        parts = _parts(scheduler.state.nodes[nodes.pop()], level)
        gpus = {gpu for pod in pods for gpu in indices_of(pod.gpus)}
        assert any(gpus <= part for part in parts), f"{name} is in no {level}"
    elif level in labelled:
        above = labelled[: labelled.index(level) + 1]
        found = set()
        for node in nodes:
            seen = scheduler.state.nodes[node].seen
            assert seen is not None
            found.add(tuple(seen.labels.get(key, "") for key in above))
        assert len(found) == 1, f"{name} spans {level} {found}"
        # What is on one node is in one domain, even if nobody knows in which.
        assert found.pop()[-1] or len(nodes) == 1, f"{name} is outside of every {level}"


def _parts(node: ClusterNode, level: str) -> list[set[int]]:
    """The GPUs of each island, NUMA node or PCIe switch."""
    assert node.report is not None
    topology = node.report.topology
    if level == ISLAND:
        return [set(island) for island in topology.islands]
    if level == PCIE_SWITCH:
        return [set(switch) for switch in topology.pcie_switches]
    return [
        {gpu.index for gpu in topology.gpus if gpu.numa == numa}
        for numa in {gpu.numa for gpu in topology.gpus}
    ]


def _in_one_hypernode(scheduler: Scheduler, nodes: set[str], tier: int) -> bool:
    """One node is close to itself, whatever HyperNodes there are."""
    hypernodes = scheduler.state.network.hypernodes
    if tier > max(seen.tier for seen in hypernodes.values()):
        return True  # wider than any: no limit

    def held(name: str, path: tuple[str, ...] = ()) -> set[str]:
        found: set[str] = set()
        for member in hypernodes[name].members if name in hypernodes and name not in path else ():
            assert member.exact, "the stories name members exactly"
            inner = member.kind == "HyperNode"
            found |= held(member.exact, (*path, name)) if inner else {member.exact}
        return found

    return len(nodes) == 1 or any(
        nodes <= held(name) for name, seen in hypernodes.items() if seen.tier <= tier
    )


# --- evictions --------------------------------------------------------------------------------


def assert_the_ended_stay(scheduler: Scheduler, decisions: Iterable[Decision]) -> None:
    """No pod that has ended is evicted: its capacity is free already, and its result would be deleted."""
    for each in decisions:
        if isinstance(each, Evict):
            assert scheduler.state.pods[each.pod].seen.phase not in ("Succeeded", "Failed"), each


def assert_within_budgets(scheduler: Scheduler, decisions: Iterable[Decision]) -> None:
    """Preemption evicts no more pods than their disruption budgets allow. Members of a gang that
    cannot be completed are evicted one by one, as the API server lets them go."""
    spent: Counter[tuple[str, str]] = Counter()
    for each in decisions:
        if not isinstance(each, Evict) or each.beyond_budgets:
            continue
        pod = scheduler.state.pods[each.pod]
        gang = scheduler.state.gang_of(pod)
        if gang is not None and gang.attempt.partial_since is not None:
            continue
        if pod.seen.phase == "Pending" or pod.seen.deleting or not pod.alive:
            continue
        for key, budget in scheduler.budgets.seen.items():
            expressions = None if budget.selector is None else _expressions(budget.selector)
            if expressions is None or budget.namespace != pod.seen.namespace:
                continue
            if naive_filters.expressions(expressions, dict(pod.seen.labels)):
                spent[key] += 1
    for key, count in spent.items():
        budget = scheduler.budgets.seen[key]
        assert count <= budget.allowed, f"{count} are evicted, {budget} allows fewer"
