"""RDMA usage and limits of pods on NICs, from agents' reports. A pod at a limit gets a warning, because the
program itself sees only a failed library call that names no limit."""

from dataclasses import dataclass, field

from central.model.decisions import Decision
from central.model.event_reasons import RDMA_LIMIT_REACHED
from central.model.facts import RdmaUsed
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.status.pod_warning import pod_warning
from protos.topology import RdmaUse

WARN_INTERVAL_S = 600.0  # between two warnings about a pod and NIC


@dataclass(slots=True)
class RdmaUsage:
    # By namespace, pod and NIC: at a limit since the last cycle.
    _reported: dict[tuple[str, str, str], RdmaUse] = field(default_factory=dict)
    # By namespace, uid of the pod and NIC: the time of the last warning. Another pod may have the same name.
    _warned: dict[tuple[str, str, str], float] = field(default_factory=dict)

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
        for late in [late for late, at in self._warned.items() if now - at >= WARN_INTERVAL_S]:
            del self._warned[late]
        for key, use in self._reported.items():
            pod = state.pods.get(state.uids.get(key[:2], ""))
            if pod is None or not pod.alive or not pod.node:
                continue
            if (warned := (use.namespace, pod.seen.uid, use.card)) in self._warned:
                continue
            self._warned[warned] = now
            why = _message(pod, use)
            decisions.append(pod_warning(state.gang_of(pod), pod, why, RDMA_LIMIT_REACHED))
        self._reported.clear()
        return decisions


def _worse(before: RdmaUse | None, use: RdmaUse) -> bool:
    """Returns whether more requests failed; where these are not counted, whether the pod has newly reached a limit."""
    if use.failures >= 0:
        return use.failures > (max(before.failures, 0) if before is not None else 0)
    return bool(_full(use)) and not (before is not None and _full(before))


def _full(use: RdmaUse) -> list[str]:
    """The limits that the pod has used up."""
    pairs = (
        ("handles", use.current.hca_handle, use.limit.hca_handle),
        ("objects", use.current.hca_object, use.limit.hca_object),
    )
    return [f"{most} RDMA {what}" for what, have, most in pairs if 0 <= most <= have]


def _message(pod: Pod, use: RdmaUse) -> str:
    where = f"on NIC {use.card} of node {pod.node}"
    full = " and ".join(_full(use))
    if not full:
        return f"was refused RDMA resources {where}, by its own limit or the limit of all pods"
    refused = f"; more was refused {use.failures} times" if use.failures > 0 else ""
    return f"is at its limit of {full} {where}{refused}"
