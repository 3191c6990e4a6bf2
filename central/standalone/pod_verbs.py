"""Verbs that only pods have: binding to a node (once), logs and graceful deletion. Pure."""

from central.model.json_types import Json
from central.standalone import api_errors


def bound(pod: Json, binding: Json, now: str) -> Json:
    """The pod on the node that the Binding names."""
    metadata, target = pod["metadata"], binding.get("target") or {}
    name = metadata["name"]
    if target.get("kind", "Node") not in ("Node", "") or not target.get("name"):
        causes = [("target.name", "Required value: the node to bind to, of kind Node")]
        raise api_errors.invalid("Binding", "", name, causes)
    asked = binding.get("metadata") or {}
    if asked.get("uid") not in (None, "", metadata["uid"]):
        why = f"Precondition failed: UID in precondition: {asked['uid']}, UID in object meta: {metadata['uid']}"
        raise api_errors.conflict("pods/binding", "", name, why)
    if "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise api_errors.conflict("pods/binding", "", name, why)
    if node := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{node}"'
        raise api_errors.conflict("pods/binding", "", name, why)
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
    """The container's log: a line that says that nothing runs on a hollow node."""
    names = [one["name"] for one in pod["spec"]["containers"]]
    name = container or names[0]
    if name not in names:
        raise api_errors.bad_request(
            f"container {name} is not valid for pod {pod['metadata']['name']}"
        )
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    state: Json = next((one["state"] for one in states if one["name"] == name), {"waiting": {}})
    if "waiting" in state:
        why = state["waiting"].get("reason") or "ContainerCreating"
        where = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
        raise api_errors.bad_request(f"{where} is waiting to start: {why}")
    return f"nothing runs here: {pod['spec'].get('nodeName')} is a hollow node\n"


def grace_s(pod: Json, asked: int | None) -> int:
    """The grace period of a pod's deletion; 0 for a pod that no kubelet runs."""
    if not pod["spec"].get("nodeName"):
        return 0
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return max(asked, 0)
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))
