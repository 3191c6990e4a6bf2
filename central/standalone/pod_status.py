"""The status that a kubelet writes for pods and its node. Pure."""

from typing import Any

from central.kube.decode.quantities import parse_duration
from central.model.json_types import Json
from protos.names import RUNS_FOR


def runs_for_s(pod: Json) -> float | None:
    """Returns the seconds for which the pod runs; None: forever. Raises ValueError if the annotation is invalid."""
    text = (pod["metadata"].get("annotations") or {}).get(RUNS_FOR)
    return None if text is None else parse_duration(text)


def running(pod: Json, address: str, host: str, now: str) -> Json:
    return {
        "phase": "Running",
        "hostIP": host,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": _conditions("True", now),
        "containerStatuses": _containers(pod, {"running": {"startedAt": now}}, ready=True),
    }


def succeeded(pod: Json, now: str) -> Json:
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _began(pod), "finishedAt": now}
    return {
        "phase": "Succeeded",
        "conditions": _conditions("False", now, "PodCompleted"),
        "containerStatuses": _containers(pod, {"terminated": ended}, ready=False),
    }


def failed(reason: str, message: str, now: str) -> Json:
    """The pod was not admitted, so it has no container statuses."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now}


def waiting(pod: Json, reason: str, message: str) -> Json:
    """The pod was admitted, but its containers do not start yet."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": _containers(pod, state, ready=False)}


def node(address: str, amounts: Json, now: str) -> Json:
    """A hollow node's first status. Its kubelet will report what its plugins offer."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the hollow kubelet is ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": address}],
        "nodeInfo": {"kubeletVersion": "hollow", "osImage": "none", "operatingSystem": "linux"},
    }


def _began(pod: Json) -> str:
    return str((pod.get("status") or {}).get("startTime") or "")


def _conditions(ready: str, now: str, reason: str = "") -> list[Json]:
    why = {"reason": reason} if reason else {}
    return [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
        {"type": "Initialized", "status": "True", "lastTransitionTime": now},
        {"type": "ContainersReady", "status": ready, "lastTransitionTime": now, **why},
        {"type": "Ready", "status": ready, "lastTransitionTime": now, **why},
    ]


def _containers(pod: Json, state: dict[str, Any], *, ready: bool) -> list[Json]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
