"""Topology levels in the order in which they are tried: from one NVLink island to the whole cluster.

NUMA is not among them. An island may span NUMA nodes, so it is tried only where a gang requires it.

Design: docs/design/0006-numa-level.md
"""

from central.model.wording import NEVER
from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, NUMA


def ladder(snapshot: Snapshot, required: str) -> list[str]:
    """The levels to try, narrowest first, up to the required one. Raises DoesNotFit if it is unknown."""
    every = [ISLAND, NODE, *reversed(snapshot.columns.domains.levels), ANYWHERE]
    if not required:
        return every
    if required == NUMA:
        return [NUMA]
    if required not in every:
        raise DoesNotFit(
            f"{NEVER}: topology level {required} is not one of {', '.join([ISLAND, NUMA, *every[1:-1]])} (--topology-levels)"
        )
    return every[: every.index(required) + 1]


def narrower(snapshot: Snapshot, one: str, other: str) -> str:
    """The narrower of two required levels; empty: no limit. Raises DoesNotFit if one is unknown."""
    return min(one, other, key=lambda level: (not level, len(ladder(snapshot, level))))
