"""What a hollow kubelet is asked, and what it answers: pods, admissions, what containers get."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    wants: tuple[tuple[str, int], ...] = ()  # resource, count


@dataclass(frozen=True, slots=True)
class KubeletPod:
    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()

    @classmethod
    def from_object(cls, pod: Mapping[str, Any]) -> Self:
        """Of a Pod as the API server has it."""
        meta, spec = pod["metadata"], pod["spec"]
        return cls(
            meta["uid"],
            meta["namespace"],
            meta["name"],
            tuple(_container(item) for item in spec["containers"]),
            tuple(_container(item) for item in spec.get("initContainers") or ()),
        )


def _container(item: Mapping[str, Any]) -> Container:
    resources = item.get("resources") or {}
    limits = resources.get("limits") or resources.get("requests") or {}
    # A device plugin's resource always has a domain; cpu and memory are not its matter.
    wants = ((name, int(count)) for name, count in sorted(limits.items()) if "/" in name)
    return Container(item["name"], tuple((name, count) for name, count in wants if count))


@dataclass(frozen=True, slots=True)
class Granted:
    """What the runtime would be told about one container."""

    container: str
    devices: Mapping[str, tuple[str, ...]]  # resource -> ids
    envs: Mapping[str, str]
    device_nodes: tuple[tuple[str, str, str], ...] = ()  # host path, container path, permissions
    mounts: tuple[tuple[str, str, bool], ...] = ()  # host path, container path, read only
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """reason is empty for a pod that was admitted; else it is the Failed pod's status.reason."""

    reason: str = ""
    message: str = ""
    containers: tuple[Granted, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reason

    @property
    def envs(self) -> Mapping[str, str]:
        """Of the first container that got any."""
        return next((item.envs for item in self.containers if item.envs), {})
