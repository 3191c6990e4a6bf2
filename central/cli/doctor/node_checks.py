"""Checks of agents and nodes: each GPU node has an agent that is ready, and offers its GPUs."""

from collections.abc import Iterator
from typing import Literal

from central.cli.doctor.installation import Installation, meta
from central.model.json_types import Json
from protos.names import AGENT, AGENT_ACCOUNT, GPU

MOST_NODES = 20  # that are named one by one
GPU_LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
OTHER_PLUGINS = ("k8s-device-plugin", "nvidia-device-plugin", "gpu-device-plugin", "hami")
Problem = tuple[Literal["ok", "warn", "fail", "skip"], str]


def pod_problems(found: Installation, name: str) -> Iterator[str]:
    """Yields why pods of the installation with this label do not run, and what to do."""
    for pod in _pods(found, name):
        if why := _problem(pod, found.namespace):
            yield f"{meta(pod).get('name')}: {why}"


def agents(found: Installation) -> Iterator[Problem]:
    made = found.named("DaemonSet", AGENT_ACCOUNT)
    if made is None:
        yield (
            "fail",
            f"no DaemonSet {found.namespace}/{AGENT_ACCOUNT}; install it: kubectl apply -k daemonset",
        )
        return
    spec = ((made.get("spec") or {}).get("template") or {}).get("spec") or {}
    classes = {meta(each).get("name") for each in found.all("RuntimeClass")}
    if (runtime := spec.get("runtimeClassName")) and runtime not in classes:
        yield (
            "fail",
            f"their RuntimeClass {runtime} does not exist; create it, or remove runtimeClassName",
        )
    there = {(pod.get("spec") or {}).get("nodeName"): pod for pod in _pods(found, AGENT_ACCOUNT)}
    broken = list[str]()
    for node in _gpu_nodes(found):
        name = meta(node).get("name")
        if name not in there:
            broken.append(f"{name} has none; kubectl label node {name} {AGENT}=true")
        elif why := _problem(there[name], found.namespace):
            broken.append(f"{name}: {why}")
    yield from _bounded(broken, "fail")


def agents_good(found: Installation) -> str:
    return f"ready on all {len(_gpu_nodes(found))} GPU nodes"


def nodes(found: Installation) -> Iterator[Problem]:
    """Yields nodes that are not ready, offer no GPU though an agent runs there, or fewer than they have."""
    served = {(pod.get("spec") or {}).get("nodeName") for pod in _pods(found, AGENT_ACCOUNT)}
    if not _gpu_nodes(found):
        yield (
            "warn",
            f"no node has GPUs or a label of GPU nodes; kubectl label node NODE {AGENT}=true",
        )
    broken = []
    for node in _gpu_nodes(found):
        name, status = meta(node).get("name"), node.get("status") or {}
        has, offers = (_gpus(status.get(kind)) for kind in ("capacity", "allocatable"))
        conditions = {each.get("type"): each for each in status.get("conditions") or ()}
        ready = conditions.get("Ready") or {}
        if ready.get("status") not in ("True", None):
            broken.append(f"{name} is not ready: {ready.get('message')}")
        elif name in served and not has:
            broken.append(
                f"{name} offers no {GPU}; the agent's log says why "
                f"(kubectl -n {found.namespace} logs daemonset/{AGENT_ACCOUNT}): driver, or another kubelet folder"
            )
        elif offers < has:
            broken.append(
                f"{name}: {has - offers} of {has} GPUs are unhealthy; lockstep topology {name} says why"
            )
    yield from _bounded(broken, "warn")


def nodes_good(found: Installation) -> str:
    offered = [_gpus((node.get("status") or {}).get("allocatable")) for node in _gpu_nodes(found)]
    return f"{sum(offered)} GPUs on {len(offered)} nodes"


def other_plugins(found: Installation) -> Iterator[Problem]:
    for each in found.all("DaemonSet"):
        spec = ((each.get("spec") or {}).get("template") or {}).get("spec") or {}
        images = [str(one.get("image")) for one in spec.get("containers") or ()]
        runs = (each.get("status") or {}).get("desiredNumberScheduled", 1)
        if runs and any(word in image for image in images for word in OTHER_PLUGINS):
            name = f"{meta(each).get('namespace')}/{meta(each).get('name')}"
            yield (
                "fail",
                f"DaemonSet {name} serves {GPU} too, and one per node may; remove it from these nodes",
            )


def _bounded(broken: list[str], level: Literal["warn", "fail"]) -> Iterator[Problem]:
    yield from ((level, text) for text in broken[:MOST_NODES])
    if more := broken[MOST_NODES:]:
        yield level, f"and {len(more)} more nodes with such a problem"


def _gpu_nodes(found: Installation) -> list[Json]:
    return [node for node in found.all("Node") if _has_gpus(node)]


def _has_gpus(node: Json) -> bool:
    labels: Json = meta(node).get("labels") or {}
    if AGENT in labels:
        return str(labels[AGENT]) == "true"
    labelled = any(labels.get(label) == "true" for label in GPU_LABELS)
    return CONTROL_PLANE not in labels and (
        labelled or _gpus((node.get("status") or {}).get("capacity")) > 0
    )


def _gpus(amounts: object) -> int:
    text = str(amounts.get(GPU, "0")) if isinstance(amounts, dict) else "0"
    return int(text) if text.isdecimal() else 0


def _pods(found: Installation, name: str) -> list[Json]:
    label = "app.kubernetes.io/name"
    return [pod for pod in found.own("Pod") if (meta(pod).get("labels") or {}).get(label) == name]


def _problem(pod: Json, namespace: str) -> str:
    """Returns why the pod is not ready; empty if it is."""
    status = pod.get("status") or {}
    name = meta(pod).get("name")
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if "Image" in reason:
            return f"{reason} {container.get('image')}; push the image, or name its registry and pull secret"
        if reason == "CrashLoopBackOff":
            return (
                f"it ends again and again; kubectl -n {namespace} logs {name} --previous says why"
            )
        if reason and reason != "ContainerCreating":
            return f"{reason}: {waiting.get('message', '')}"
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    unscheduled = conditions.get("PodScheduled") or {}
    if unscheduled.get("status") == "False":
        return f"the pod has no node: {unscheduled.get('message')}"
    if (conditions.get("Ready") or {}).get("status") == "True":
        return ""
    return f"not ready; kubectl -n {namespace} describe pod {name} says why"
