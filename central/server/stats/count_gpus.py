"""Counts the GPUs of a node, once for all who show them: console, history, metrics, `lockstep topology` and `top`.

    gpus = used + free + those that are neither

Neither used nor free are unhealthy GPUs, those of a node that takes no pods (not ready, cordoned, its agent or kubelet
restarts), those that are held by a pod that the API server does not list, and the rest of a GPU that has been cut into
MIG slices. A GPU of a claim is used by the claim's pods. A shared GPU counts as the hundredths that are used and
free, a MIG slice as its fraction of a GPU (central/scheduler/queues/gpu_currency.py).
"""

from central.model.gpu_count import GpuCount
from central.model.resources import GPU_UNITS
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.scheduler import Scheduler
from protos.names import GPU, GPU_SHARE
from protos.slicing import is_slice


def of_node(scheduler: Scheduler, node: ClusterNode) -> GpuCount:
    """Counts the GPUs of a node that the API server lists."""
    columns, currency = scheduler.state.snapshot.columns, scheduler.queues.currency
    row = columns.row[node.name]
    seen = columns.nodes[row]
    used, claimed = 0, 0
    for pod in node.pods.values():
        used += currency.worth(pod.spec.requests) if pod.alive else 0
        claimed |= scheduler.state.claimed_gpus(pod)
    used += claimed.bit_count() * GPU_UNITS
    offered = seen.allocatable if seen is not None else {}
    if node.report is None:
        units = currency.offered(offered)
    else:  # of other vendors' GPUs the kubelet knows alone
        units = len(node.report.topology.gpus) * GPU_UNITS
        units += currency.worth((name, offered.get(name, 0)) for name in currency.others)
    gpus = -(
        -max(units, used) // GPU_UNITS
    )  # the kubelet may have withdrawn GPUs that pods still use
    if seen is None or not seen.ready or seen.unschedulable or not node.offered:
        return GpuCount(gpus, used / GPU_UNITS)
    masks, whole = columns.gpus.free_mask, max(0, columns.gpus.count.item(row))
    if not node.reported.plugin:  # claims alone can have its GPUs
        whole = masks[row].bit_count()
    parts = [(GPU, whole), (GPU_SHARE, sum(columns.gpus.free_shares[row].values()))]
    parts += [
        (name, max(0, columns.free.item(row, column)))
        for name, column in columns.column.items()
        if is_slice(name) or name in currency.others
    ]
    free = min(currency.worth(parts), gpus * GPU_UNITS - used)
    return GpuCount(gpus, used / GPU_UNITS, free / GPU_UNITS, min(whole, free // GPU_UNITS))
