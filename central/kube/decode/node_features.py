"""Kubelet features that a pod needs, as the nodes declare them (status.declaredFeatures, Kubernetes 1.36): an older
kubelet would ignore the pod's field."""

from central.kube.decode import fields
from central.model import limits
from central.model.json_types import Json

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"
MOUNT_OPTIONS = "VolumeBindMountOptions"
KNOWN = (RESTART_ALL, HOST_NETWORK_USERS, MOUNT_OPTIONS)  # of those that concern scheduling


def declared_features(status: Json) -> tuple[str, ...]:
    """Raises FieldError."""
    found = fields.strings(status, "declaredFeatures", "status", limits.VALUES)
    return tuple(name for name in KNOWN if name in found)


def needed_features(spec: Json) -> tuple[str, ...]:
    """Hot path: most pods have none of these fields."""
    found = set()
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            for rule in container.get("restartPolicyRules") or ():
                if rule.get("action") == "RestartAllContainers":
                    found.add(RESTART_ALL)
            for mount in container.get("volumeMounts") or ():
                if mount.get("bindMountOptions"):
                    found.add(MOUNT_OPTIONS)
    if spec.get("hostUsers") is False and spec.get("hostNetwork"):
        found.add(HOST_NETWORK_USERS)
    return tuple(sorted(found)) if found else ()
