"""Raw Kubernetes JSON -> facts. Pure: no I/O, never raises anything but Malformed."""

from collections.abc import Sequence
from typing import Any

from central.core.facts import GangSeen, NodeSeen, PodSeen


class Malformed(ValueError):
    """Not even a name or uid: nothing to tell about it."""


class Reader:
    """Reads objects as this centre understands them; equal pods share one PodSpec object."""

    def __init__(self, scheduler_names: Sequence[str], levels: Sequence[str]) -> None:
        raise NotImplementedError

    def pod(self, raw: dict[str, Any]) -> PodSeen:
        raise NotImplementedError

    def node(self, raw: dict[str, Any]) -> NodeSeen:
        raise NotImplementedError

    def gang(self, raw: dict[str, Any]) -> GangSeen:
        raise NotImplementedError
