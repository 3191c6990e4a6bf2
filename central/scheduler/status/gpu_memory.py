"""Pods that use more memory of a shared GPU than their limit: warned first, evicted after a grace period."""

from dataclasses import dataclass, field

from central.model import wording
from central.model.decisions import GPU_MEMORY, Decision
from central.model.event_reasons import GPU_MEMORY_EXCEEDED
from central.model.facts import MemoryExceeded
from central.scheduler.inventory.pods import Pod, evict
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.status.pod_warning import pod_warning
from protos.topology import MemoryOver

WARN_INTERVAL_S = 60.0  # between two warnings about a pod


@dataclass(slots=True)
class GpuMemoryOveruse:
    _reported: dict[str, MemoryOver] = field(default_factory=dict)  # by uid, since the last cycle
    _warned: dict[str, float] = field(default_factory=dict)  # by uid, when

    def apply(self, state: ClusterState, fact: MemoryExceeded) -> None:
        """Ignores reports about pods that are terminating, gone or on another node."""
        for over in fact.pods:
            pod = state.pods.get(over.uid)
            if pod is not None and pod.node == fact.node and pod.alive and not pod.leaving:
                self._reported[over.uid] = over

    def decide(self, state: ClusterState, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for uid in [uid for uid, at in self._warned.items() if now - at >= WARN_INTERVAL_S]:
            del self._warned[uid]
        for uid, over in self._reported.items():
            pod = state.pods.get(uid)
            if pod is None or not pod.alive or pod.leaving:
                continue
            gang, why = state.gang_of(pod), _message(pod, over)
            if over.final and pod.seen.ours and pod.evict_backoff.not_before <= now:
                decisions += evict([pod], why, GPU_MEMORY)
                if gang is not None:
                    state.pending.touch(gang)
            elif not over.final and uid not in self._warned:
                self._warned[uid] = now
                decisions.append(pod_warning(gang, pod, why, GPU_MEMORY_EXCEEDED))
        self._reported.clear()
        return decisions


def _message(pod: Pod, over: MemoryOver) -> str:
    used, cap = wording.amount("memory", over.used), wording.amount("memory", over.cap)
    then = "" if over.final else "; it is evicted unless it frees some"
    return f"uses {used} of memory on GPU {over.gpu} of node {pod.node}, limit {cap}{then}"
