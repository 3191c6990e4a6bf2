"""Pods that have more of a shared GPU's memory than they may: told first, evicted when their grace is
over."""

from typing import TYPE_CHECKING

from central.model import wording
from central.model.decisions import Decision, EmitWarning, Evict
from central.model.event_reasons import GPU_MEMORY_EXCEEDED
from central.model.facts import MemoryExceeded
from central.scheduler.inventory.pods import EVICTED, Pod
from protos.topology import MemoryOver

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


AGAIN_S = 60.0  # who is warned is not warned again for so long


def learn(cluster: "Cluster", fact: MemoryExceeded) -> None:
    """Late news of a pod that is leaving, elsewhere or gone is none."""
    for over in fact.pods:
        pod = cluster.pods.get(over.uid)
        if pod is not None and pod.node == fact.node and pod.alive and not pod.leaving:
            cluster.overuse[over.uid] = over


def decide(cluster: "Cluster", now: float) -> list[Decision]:
    decisions: list[Decision] = []
    told = cluster.overuse_told
    for uid in [uid for uid, at in told.items() if now - at >= AGAIN_S]:
        del told[uid]
    for uid, over in cluster.overuse.items():
        pod = cluster.pods.get(uid)
        if pod is None or not pod.alive or pod.leaving:
            continue
        if over.final and pod.seen.ours and pod.evict_backoff.not_before <= now:
            pod.advance(EVICTED)
            seen = pod.seen
            decisions.append(Evict(uid, seen.namespace, seen.name, pod.node, _words(pod, over)))
        elif not over.final and uid not in told:
            told[uid] = now
            gang = cluster.gang_of(pod)
            owner = gang.object.uid if gang is not None and gang.object is not None else ""
            name = gang.name if gang is not None and owner else ""
            namespace, why = pod.seen.namespace, _words(pod, over)
            decisions.append(
                EmitWarning(namespace, name, owner, uid, pod.seen.name, why, GPU_MEMORY_EXCEEDED)
            )
    cluster.overuse.clear()
    return decisions


def _words(pod: Pod, over: MemoryOver) -> str:
    used, cap = wording.amount("memory", over.used), wording.amount("memory", over.cap)
    then = "" if over.final else "; it is evicted unless it gives some back"
    return f"has {used} of the memory of GPU {over.gpu} on node {pod.node} and may have {cap}{then}"
