"""Prometheus metrics of shared GPUs and of the containers' shares."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from agent.node_state import NodeState
from agent.sharing.responses import ShareSettings
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of

GRANT = ("namespace", "pod", "container", "gpu", "enforcement")


def families(
    state: NodeState,
    settings: Mapping[tuple[str, ...], ShareSettings],
    used: Mapping[tuple[str, ...], int],
) -> Iterator[Metric]:
    """settings: of the holders; used: bytes, if the kernel counts them; both by share ids."""
    gpus = {gpu.uuid: gpu for gpu in state.topology.gpus if not gpu.mig}
    offered = GaugeMetricFamily(
        "lockstep_gpu_shares",
        "Shares of the GPU that are advertised, in hundredths",
        labels=("gpu", "uuid", "enforcement"),
    )
    for gpu in gpus.values():
        offered.add_metric((str(gpu.index), gpu.uuid, gpu.enforcement), gpu.shares)
    yield offered
    held = GaugeMetricFamily(
        "lockstep_grant_gpu_hundredths",
        "GPU shares of the container in hundredths, and the enforcement of its memory cap",
        labels=GRANT,
    )
    memory = GaugeMetricFamily(
        "lockstep_grant_gpu_share_memory_used_bytes",
        "Memory in use by the pod on the shared GPU, if the kernel counts it",
        labels=GRANT,
    )
    for grant in state.grants:
        holder = (grant.namespace, grant.pod, grant.container)
        ids = grant.device_ids
        if grant.resource == GPU:
            for uuid in [each for each in ids if each in gpus]:
                held.add_metric((*holder, str(gpus[uuid].index), "whole"), 100)
        elif grant.resource == GPU_SHARE and device_of(ids[0]) in gpus:
            level = settings[ids].level if ids in settings else ""
            labels = (*holder, str(gpus[device_of(ids[0])].index), level or "unknown")
            held.add_metric(labels, len(ids))
            if ids in used:
                memory.add_metric(labels, used[ids])
    yield held
    yield memory
