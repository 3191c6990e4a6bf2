"""Findings of a migration from kube-scheduler with NVIDIA's device plugin."""

from collections.abc import Iterator

from central.cli.migrate.cluster_objects import ClusterObjects
from central.cli.migrate.finding import Finding, about, name_of, running, spec_of
from central.model.json_types import Json
from protos.names import BLOCK, GPU, RACK

PLUGIN_IMAGES = ("k8s-device-plugin", "nvidia-gpu-device-plugin")
ENDED = ("Succeeded", "Failed")


def findings(cluster: ClusterObjects) -> Iterator[Finding]:
    for each in running(cluster.of("DaemonSet"), ""):
        if any(plugin in image for plugin in PLUGIN_IMAGES for image in _images(each)):
            why = f"remove it from the nodes of Lockstep's agent: one device plugin serves {GPU} on a node"
            yield Finding("stop", f"DaemonSet {name_of(each)}", why)
    pods = [each for each in cluster.of("Pod") if _by_default_scheduler(each)]
    if pods:
        why = "use GPUs without Lockstep: it counts them while they run; give their successors schedulerName lockstep"
        yield Finding("change", about("pod", pods), why)
    nodes = [each for each in cluster.of("Node") if _gpus(each) and not _rack(each)]
    if nodes:
        why = f"label them with {RACK} and {BLOCK} where that is known"
        yield Finding("note", about("GPU node", nodes), why)


def _images(workload: Json) -> list[str]:
    template = spec_of(workload).get("template") or {}
    return [str(each.get("image") or "") for each in spec_of(template).get("containers") or ()]


def _by_default_scheduler(pod: Json) -> bool:
    spec = spec_of(pod)
    ended = (pod.get("status") or {}).get("phase") in ENDED
    name = spec.get("schedulerName") or "default-scheduler"
    return (
        not ended and name == "default-scheduler" and any(map(_asks, spec.get("containers") or ()))
    )


def _asks(container: Json) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return str(limits.get(GPU, "0")) != "0"


def _rack(node: Json) -> str:
    return str(((node.get("metadata") or {}).get("labels") or {}).get(RACK, ""))


def _gpus(node: Json) -> bool:
    capacity = (node.get("status") or {}).get("capacity") or {}
    return str(capacity.get(GPU, "0")) != "0"
