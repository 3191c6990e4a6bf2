"""What pods use of their network cards, and may use, as their agents say. Whoever is at a limit is told: the
kernel's refusal reaches a program as a call of its library that failed, and names no limit."""

from typing import TYPE_CHECKING

from central.model.decisions import Decision, EmitWarning
from central.model.event_reasons import RDMA_LIMIT_REACHED
from central.model.facts import RdmaUsed
from central.scheduler.inventory.pods import Pod
from protos.topology import RdmaUse

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster

AGAIN_S = 600.0  # who is warned is not warned again for so long


def learn(cluster: "Cluster", fact: RdmaUsed) -> None:
    node = cluster.nodes.get(fact.node)
    if node is None:
        return
    before = {(use.namespace, use.pod, use.card): use for use in node.rdma_use}
    for use in fact.pods:
        if _worse(before.get((use.namespace, use.pod, use.card)), use):
            cluster.at_limit[use.namespace, use.pod, use.card] = use
    node.rdma_use = fact.pods


def _worse(before: RdmaUse | None, use: RdmaUse) -> bool:
    """Whether it was refused more, or, where the kernel does not tell, has reached a limit."""
    if use.failures >= 0:
        return use.failures > (max(before.failures, 0) if before is not None else 0)
    return bool(_full(use)) and not (before is not None and _full(before))


def _full(use: RdmaUse) -> list[str]:
    """What it has all of that it may have."""
    pairs = (
        ("handles", use.current.hca_handle, use.limit.hca_handle),
        ("objects", use.current.hca_object, use.limit.hca_object),
    )
    return [f"{most} RDMA {what}" for what, have, most in pairs if 0 <= most <= have]


def decide(cluster: "Cluster", now: float) -> list[Decision]:
    decisions: list[Decision] = []
    told = cluster.at_limit_told
    for key in [key for key, at in told.items() if now - at >= AGAIN_S]:
        del told[key]
    for key, use in cluster.at_limit.items():
        pod = cluster.pods.get(cluster.uids.get(key[:2], ""))
        if pod is None or not pod.alive or not pod.node or key in told:
            continue
        told[key] = now
        gang = cluster.gang_of(pod)
        owner = gang.object.uid if gang is not None and gang.object is not None else ""
        name = gang.name if gang is not None and owner else ""
        seen = pod.seen
        why = _words(pod, use)
        decisions.append(
            EmitWarning(seen.namespace, name, owner, seen.uid, seen.name, why, RDMA_LIMIT_REACHED)
        )
    cluster.at_limit.clear()
    return decisions


def _words(pod: Pod, use: RdmaUse) -> str:
    where = f"of network card {use.card} on node {pod.node}"
    full = " and ".join(_full(use))
    if not full:
        return f"was refused RDMA resources {where}, at its limit or that of all pods"
    refused = f"; it was refused more {use.failures} times" if use.failures > 0 else ""
    return f"has all of the {full} that it may have {where}{refused}"
