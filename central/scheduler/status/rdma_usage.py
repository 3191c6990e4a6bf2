"""What pods use of their network cards, and may use, as their agents say. Whoever is at a limit is told: the
kernel's refusal reaches a program as a call of its library that failed, and names no limit."""

from central.model.decisions import Decision
from central.model.event_reasons import RDMA_LIMIT_REACHED
from central.model.facts import RdmaUsed
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.status.pod_warning import pod_warning
from protos.topology import RdmaUse

AGAIN_S = 600.0  # who is warned is not warned again for so long


class RdmaUsage:
    def __init__(self) -> None:
        # by namespace, pod and network card
        self._reported: dict[tuple[str, str, str], RdmaUse] = {}  # at a limit, since the last cycle
        self._warned: dict[tuple[str, str, str], float] = {}  # when

    def apply(self, state: ClusterState, fact: RdmaUsed) -> None:
        node = state.nodes.get(fact.node)
        if node is None:
            return
        before = {(use.namespace, use.pod, use.card): use for use in node.rdma_use}
        for use in fact.pods:
            if _worse(before.get((use.namespace, use.pod, use.card)), use):
                self._reported[use.namespace, use.pod, use.card] = use
        node.rdma_use = fact.pods

    def decide(self, state: ClusterState, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for key in [key for key, at in self._warned.items() if now - at >= AGAIN_S]:
            del self._warned[key]
        for key, use in self._reported.items():
            pod = state.pods.get(state.uids.get(key[:2], ""))
            if pod is None or not pod.alive or not pod.node or key in self._warned:
                continue
            self._warned[key] = now
            why = _message(pod, use)
            decisions.append(pod_warning(state.gang_of(pod), pod, why, RDMA_LIMIT_REACHED))
        self._reported.clear()
        return decisions


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


def _message(pod: Pod, use: RdmaUse) -> str:
    where = f"of network card {use.card} on node {pod.node}"
    full = " and ".join(_full(use))
    if not full:
        return f"was refused RDMA resources {where}, at its limit or that of all pods"
    refused = f"; it was refused more {use.failures} times" if use.failures > 0 else ""
    return f"has all of the {full} that it may have {where}{refused}"
