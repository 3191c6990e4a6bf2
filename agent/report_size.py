"""The part of the grants that fits into a report. The scheduler refuses a larger report, and would then know nothing
about the node; no working kubelet lists as much. Pure.

Design: docs/design/hostile-inputs.md
"""

from collections.abc import Iterable

from protos.gpu_sharing import SHARE, WHOLE
from protos.printing import printable
from protos.topology import Grant

GRANTS, DEVICES, NAME = 16_384, 4096, 253
BYTES = 1 << 20  # of all grants together; a message may have 4 MiB, and a topology takes half of it


def fitting(grants: Iterable[Grant]) -> tuple[tuple[Grant, ...], tuple[str, ...]]:
    """The grants that fit, in their order, and why each of the others does not: its pod and the field."""
    kept: list[Grant] = []
    left_out: list[str] = []
    size = 0
    for grant in dict.fromkeys(grants):
        more = _bytes(grant)
        why = _implausible(grant)
        if not why and (len(kept) == GRANTS or size + more > BYTES):
            why = f"a report has {GRANTS} grants and {BYTES >> 20} MiB at most"
        if why:
            left_out.append(printable(f"pod {grant.namespace:.64}/{grant.pod:.64}: {why}"))
        else:
            kept.append(grant)
            size += more
    return tuple(kept), tuple(left_out)


def _texts(grant: Grant) -> tuple[str, ...]:
    return (grant.namespace, grant.pod, grant.container, grant.resource, *grant.device_ids)


def _implausible(grant: Grant) -> str:
    """Returns why the scheduler would refuse the grant, or ""."""
    if len(grant.device_ids) > DEVICES:
        return f"{len(grant.device_ids)} devices of {grant.resource:.64}; at most {DEVICES}"
    if (share := dict(grant.limits).get(SHARE, 0)) > WHOLE:
        return f"{share} hundredths of the GPU {grant.device_ids[0]:.64}"
    for field in ("namespace", "pod", "container", "resource"):
        if wrong := _no_name(getattr(grant, field)):
            return f"its {field} {wrong}"
    for each in grant.device_ids:
        if wrong := _no_name(each):
            return f"a device of {grant.resource:.64} {wrong}"
    return ""


def _no_name(text: str) -> str:
    if len(text) > NAME:
        return f"has a name of {len(text)} characters; at most {NAME}"
    return "" if text.isprintable() else "has a name that is not printable"


def _bytes(grant: Grant) -> int:
    """Returns an upper limit of the grant's bytes in the message."""
    return sum(4 * len(each) + 4 for each in _texts(grant)) + 32 * (1 + len(grant.limits))
