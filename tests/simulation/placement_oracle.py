"""What must be true of every turn's bindings, whatever happened before: read off the cluster, not off
the code that decided."""

from collections.abc import Sequence

from central.model import selectors
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import SubGroups
from central.scheduler.inventory import hypernode_tree, nics
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot import island_masks
from central.scheduler.state.gangs import Gang
from protos.names import NODE


def judge(cluster: Scheduler, decisions: Sequence[Decision]) -> None:
    bound = {decision.pod for decision in decisions if isinstance(decision, Bind)}
    _carded(cluster, bound)
    _volumes(cluster, [decision for decision in decisions if isinstance(decision, Bind)])
    gangs = {}
    for uid in bound:
        gang = cluster.state.gang_of(cluster.state.pods[uid])
        assert gang is not None
        gangs[gang.key] = gang
    for gang in gangs.values():
        assert not gang.missing(), f"{gang.name} is bound in part"
        fresh = [pod for pod in gang.placed() if pod.seen.uid in bound]
        if len(fresh) == len(gang.placed()):
            _close(cluster, gang.name, fresh, _level(cluster, gang.required, _tier(gang)))
        for policy, pods in _groups(gang).values():
            if any(pod.seen.uid in bound for pod in pods):
                assert len(pods) >= policy.size, f"a group of {gang.name} is bound in part"
                # Others may have been there before the tree was as it is.
                if all(pod.seen.uid in bound for pod in pods):
                    level = _level(cluster, policy.required, policy.tier)
                    _close(cluster, gang.name, pods, level)


def _carded(cluster: Scheduler, bound: set[str]) -> None:
    """Who is bound finds room below the limits of some network cards, beside all who are there."""
    for uid in bound:
        pod = cluster.state.pods[uid]
        room = cluster.state.nodes[pod.node].nic_capacity() if pod.node else None
        if room is not None and pod.spec.rdma_containers and pod.charged_spec is not None:
            mine = nics.shares_of_pod(pod, cluster.state.nodes[pod.node].known_nics())
            full = [name for name in mine if min(room.nics[name]) < 0]
            assert mine, f"{pod.seen.name} has no cards"
            assert not full, f"{pod.seen.name} finds no room on {full} of {pod.node}"


def _volumes(cluster: Scheduler, binds: Sequence[Bind]) -> None:
    """A volume is one claim's, and can be used where the claim's pods are."""
    whose: dict[str, tuple[str, str]] = {}
    for bind in binds:
        for claim, name in bind.claims:
            volume = cluster.state.podclasses.storage.volume(name)
            if volume is None:
                continue
            node = cluster.state.nodes[bind.node].seen
            assert node is not None
            assert selectors.inside(volume.places, node), f"{name} can't be used on {bind.node}"
            mine = (bind.namespace, claim)
            assert whose.setdefault(name, mine) == mine, f"{name} is given to two claims"
            assert volume.claim in (None, mine), f"{name} is {volume.claim}'s"


def _tier(gang: Gang) -> int | None:
    return gang.object.required_tier if gang.object is not None else None


def _groups(gang: Gang) -> dict[tuple[str, ...], tuple[SubGroups, list[Pod]]]:
    """The placed members by the first policy that speaks of them, and the values of its labels."""
    found: dict[tuple[str, ...], tuple[SubGroups, list[Pod]]] = {}
    for pod in gang.placed():
        labels = dict(pod.seen.labels)
        for policy in gang.object.subgroups if gang.object is not None else ():
            values = tuple(labels.get(key, "") for key in policy.keys)
            if all(values) and all(e.matches(labels) for e in policy.labels):
                found.setdefault((policy.name, *values), (policy, []))[1].append(pod)
                break
    return found


def _level(cluster: Scheduler, required: str, tier: int | None) -> str:
    levels = cluster.state.snapshot.columns.domains.levels
    if required or tier is None:
        return required
    if tier and cluster.state.network.hypernodes:
        return hypernode_tree.widest_within(levels, tier) or NODE
    return NODE if not tier else levels[-tier] if tier <= len(levels) else ""


def _close(cluster: Scheduler, name: str, pods: Sequence[Pod], level: str) -> None:
    """They are in one domain of the level."""
    nodes = {pod.node for pod in pods}
    levels = cluster.state.snapshot.columns.domains.levels
    assert len(nodes) == 1 or level not in island_masks.ON_NODE, f"{name} is on {nodes}"
    if level in island_masks.PARTS:
        shape = cluster.state.nodes[nodes.pop()].shape
        gpus = 0
        for pod in pods:
            gpus |= pod.gpus
        parts = island_masks.masks(shape, level)
        assert any(not gpus & ~part for part in parts), f"{name} is in no {level}"
    elif level in levels:
        of = cluster.state.snapshot.columns.domains.of[levels.index(level)]
        found = {int(of[cluster.state.snapshot.columns.row[node]]) for node in nodes}
        assert len(found) == 1, f"{name} spans {level} {found}"
        assert -1 not in found, f"{name} is outside of every {level}"


def within_budgets(cluster: Scheduler, decisions: list[Decision]) -> None:
    """Nobody gives way to others beyond what the disruption budgets say."""
    going = [
        cluster.state.pods[each.pod]
        for each in decisions
        if isinstance(each, Evict) and each.why.startswith(("makes room", "is moved"))
    ]
    for name, spent in cluster.budgets.spends(going).items():
        budget = cluster.budgets.seen[name]
        assert spent <= budget.allowed, f"{spent} go, {budget} allows fewer"
