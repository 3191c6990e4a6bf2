"""What of the grants fits into a report. The scheduler refuses a report with more, and would then know
nothing of the node; no kubelet that works lists as much. Pure.

Design: docs/design/0128-implausible-hardware.md
"""

from collections.abc import Iterable

from protos.topology import Grant

GRANTS, DEVICES, NAME = 16_384, 4096, 253
BYTES = 1 << 20  # of all grants together; a message may have 4 MiB, and a topology takes half of it


def fitting(grants: Iterable[Grant]) -> tuple[tuple[Grant, ...], int]:
    """The grants that fit, in their order, and how many do not."""
    kept: list[Grant] = []
    left_out, size = 0, 0
    for grant in grants:
        more = _bytes(grant)
        if len(kept) < GRANTS and size + more <= BYTES and _is_plausible(grant):
            kept.append(grant)
            size += more
        else:
            left_out += 1
    return tuple(kept), left_out


def _texts(grant: Grant) -> tuple[str, ...]:
    return (grant.namespace, grant.pod, grant.container, grant.resource, *grant.device_ids)


def _is_plausible(grant: Grant) -> bool:
    return len(grant.device_ids) <= DEVICES and all(len(each) <= NAME for each in _texts(grant))


def _bytes(grant: Grant) -> int:
    """At least its size in the message."""
    return sum(4 * len(each) + 4 for each in _texts(grant)) + 32 * (1 + len(grant.limits))
