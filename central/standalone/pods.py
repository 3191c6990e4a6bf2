"""What only pods can do: be bound to a node, once, and be evicted if their budgets allow. Pure."""

import math

from central.standalone import errors, selectors
from central.standalone.errors import Json


def bound(pod: Json, binding: Json, now: str) -> Json:
    """The pod on the node that the Binding names."""
    metadata, target = pod["metadata"], binding.get("target") or {}
    name = metadata["name"]
    if target.get("kind", "Node") not in ("Node", "") or not target.get("name"):
        causes = [("target.name", "Required value: the node to bind to, of kind Node")]
        raise errors.invalid("Binding", "", name, causes)
    asked = binding.get("metadata") or {}
    if asked.get("uid") not in (None, "", metadata["uid"]):
        why = f"Precondition failed: UID in precondition: {asked['uid']}, UID in object meta: {metadata['uid']}"
        raise errors.conflict("pods/binding", "", name, why)
    if "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise errors.conflict("pods/binding", "", name, why)
    if node := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{node}"'
        raise errors.conflict("pods/binding", "", name, why)
    if annotations := asked.get("annotations"):
        kept = {**(metadata.get("annotations") or {}), **annotations}
        metadata = {**metadata, "annotations": kept}
    status = pod.get("status") or {}
    others = [one for one in status.get("conditions") or [] if one["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": target["name"]},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def log(pod: Json, container: str) -> str:
    """What its container printed: on a hollow node nothing runs, and that is what it says."""
    names = [one["name"] for one in pod["spec"]["containers"]]
    name = container or names[0]
    if name not in names:
        raise errors.bad_request(f"container {name} is not valid for pod {pod['metadata']['name']}")
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    state: Json = next((one["state"] for one in states if one["name"] == name), {"waiting": {}})
    if "waiting" in state:
        why = state["waiting"].get("reason") or "ContainerCreating"
        where = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
        raise errors.bad_request(f"{where} is waiting to start: {why}")
    return f"nothing runs here: {pod['spec'].get('nodeName')} is a hollow node\n"


def check_eviction(pod: Json, budgets: list[Json], pods: list[Json]) -> None:
    """Raises Refused (429) where a PodDisruptionBudget forbids it. All of one namespace."""
    if not _healthy(pod):
        return
    labels = pod["metadata"].get("labels") or {}
    for budget in budgets:
        spec = budget["spec"]
        selector = spec.get("selector") or {}
        if not selectors.matches(selector, labels):
            continue
        covered = [
            one for one in pods if selectors.matches(selector, one["metadata"].get("labels") or {})
        ]
        healthy = sum(_healthy(one) for one in covered)
        if "maxUnavailable" in spec:
            wanted = len(covered) - _amount(spec["maxUnavailable"], len(covered))
        else:
            wanted = _amount(spec.get("minAvailable", 1), len(covered))
        if healthy - 1 < wanted:
            name = budget["metadata"]["name"]
            why = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            causes = [{"reason": "DisruptionBudget", "message": why}]
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise errors.Refused(429, "TooManyRequests", message, {"causes": causes})


def _healthy(pod: Json) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _amount(value: int | str, of: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * of / 100)
    return int(value)


def grace_s(pod: Json, asked: int | None) -> int:
    """How long a pod that is deleted may take; nobody waits for one that no kubelet runs."""
    if not pod["spec"].get("nodeName"):
        return 0
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return max(asked, 0)
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))
