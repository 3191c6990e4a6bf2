"""The words of the kubelet for a bound pod that has not started, and what must be there so that it can.

Design: docs/design/gangs.md
"""

from zlib import crc32

import orjson

from central.model.json_types import Json
from central.model.phases import ENDED

# Reasons for which the kubelet has not started a container and will try again. The first two alternate.
_CANNOT_START = {
    "ErrImagePull": "ImagePullBackOff",
    **{
        reason: reason
        for reason in (
            "ImagePullBackOff",
            "ErrImageNeverPull",
            "InvalidImageName",
            "ImageInspectError",
            "RegistryUnavailable",
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
        )
    },
}
_CRASHES = {"CrashLoopBackOff": "CrashLoopBackOff"}  # where the pod's phase is Running


def start_fields(spec: Json, status: Json) -> Json:
    """Returns fields of PodSeen: stuck, ready and template."""
    phase = status.get("phase")
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    reasons = _CANNOT_START | _CRASHES if phase == "Running" else _CANNOT_START
    stuck = next(filter(None, (_stuck(each, reasons) for each in containers)), "")
    unready = stuck or any(map(_says_unready, status.get("conditions") or ()))
    return {
        "stuck": stuck,
        "ready": phase in ENDED or not (unready and spec.get("nodeName")),
        "template": _template(spec),
    }


def _stuck(container: Json, reasons: dict[str, str]) -> str:
    reason = ((container.get("state") or {}).get("waiting") or {}).get("reason")
    return reasons.get(reason, "") if isinstance(reason, str) else ""


def _says_unready(condition: Json) -> bool:
    return condition.get("type") == "Ready" and condition.get("status") == "False"


def _template(spec: Json) -> int:
    """Returns a checksum of images, commands and the objects that the pod mounts or reads; equal for pods of one
    template.
    0: no image is named."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if not any(each.get("image") for each in containers):
        return 0
    parts = [
        [each.get(key) for key in ("image", "command", "args", "envFrom")] for each in containers
    ]
    volumes = [
        each.get(kind) for each in spec.get("volumes") or () for kind in ("configMap", "secret")
    ]
    return crc32(orjson.dumps([parts, volumes]))
