"""Nodes that are being drained under an elastic Job: no pods may come to them any more, and somebody deletes a member
there.

`kubectl drain` cordons a node and then evicts its pods, one by one where a disruption budget asks for it; node
autoscalers taint a node before they empty it. The members on such a node leave by one plan, before each of them is
taken by itself: they stop at an agreed step, and policies for lost pods do not apply.

Design: docs/design/members.md
"""

from central.controllers.job.job import Job
from central.scheduler.state.cluster_state import ClusterState

# Taints of node autoscalers on nodes that they are about to empty.
_EMPTIED = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption")


def record(job: Job, state: ClusterState) -> None:
    """Sets the drained nodes of an elastic Job before it is reconciled."""
    nodes = {job.lost_from.get(name, "") for name in job.lost if name not in job.by_scheduler}
    job.drained = frozenset(name for name in nodes if _is_closed(state, name))


def _is_closed(state: ClusterState, name: str) -> bool:
    node = state.nodes.get(name)
    if node is None or node.seen is None:
        return False
    return node.seen.unschedulable or any(taint.key in _EMPTIED for taint in node.seen.taints)
