"""Addresses of deleted slices that a pod still holds. The response to Allocate carries each slice's
address in an annotation, which the kubelet keeps in its checkpoint, so that an agent knows it after
a restart. Pure."""

import re
from collections.abc import Iterable, Mapping

from agent.allocations import MigAddress
from protos.names import DOMAIN
from protos.topology import Gpu, Slice

ANNOTATION = f"{DOMAIN}/slices"
ONE = re.compile(r"(?P<uuid>[^=,]+)=(?P<gpu>[^,]+)/(?P<gi>[0-9]{1,9})/(?P<ci>[0-9]{1,9})")


def annotation(parts: Iterable[tuple[Gpu, Slice]]) -> str:
    return ",".join(f"{part.uuid}={gpu.uuid}/{part.gi}/{part.ci}" for gpu, part in parts)


def addresses(
    annotations: Iterable[Mapping[str, str]], slices: Iterable[str]
) -> dict[str, MigAddress]:
    """The address of each of these slices that an annotation has."""
    requested = set(slices)
    return {
        found["uuid"]: (found["gpu"], int(found["gi"]), int(found["ci"]))
        for each in annotations
        for found in ONE.finditer(each.get(ANNOTATION, ""))
        if found["uuid"] in requested
    }
