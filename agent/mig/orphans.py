"""Slices that are gone while a pod still holds them, and where they were: a container is told in an
annotation, which the kubelet keeps. So an agent that starts anew knows it. Pure."""

import re
from collections.abc import Iterable, Mapping

from agent.allocations import MigAddress
from protos.names import DOMAIN
from protos.topology import Gpu, Slice

ANNOTATION = f"{DOMAIN}/slices"
ONE = re.compile(r"(?P<uuid>[^=,]+)=(?P<gpu>[^,]+)/(?P<gi>\d+)/(?P<ci>\d+)")


def told(parts: Iterable[tuple[Gpu, Slice]]) -> str:
    return ",".join(f"{part.uuid}={gpu.uuid}/{part.gi}/{part.ci}" for gpu, part in parts)


def addresses(
    annotations: Iterable[Mapping[str, str]], slices: Iterable[str]
) -> dict[str, MigAddress]:
    """Of these slices, where it was told."""
    wanted = set(slices)
    return {
        found["uuid"]: (found["gpu"], int(found["gi"]), int(found["ci"]))
        for each in annotations
        for found in ONE.finditer(each.get(ANNOTATION, ""))
        if found["uuid"] in wanted
    }
