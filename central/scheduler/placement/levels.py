"""Topology levels in the order in which they are tried: from one NVLink island to the whole cluster.

NUMA nodes and PCIe switches are not among them. An island may span several, so they are tried only where a
gang requires them.

Design: docs/design/topology.md
"""

from central.model.pending_causes import INVALID
from central.model.wording import NEVER
from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, PARTS_OF_NODE, PCIE_SWITCH


def ladder(snapshot: Snapshot, required: str) -> list[str]:
    """The levels to try, narrowest first, up to the required one. Raises DoesNotFit if it is unknown."""
    every = [ISLAND, NODE, *reversed(snapshot.columns.domains.levels), ANYWHERE]
    if not required:
        return every
    if required in island_masks.OPT_IN:
        return [required]
    if required not in every:
        known = ", ".join([*PARTS_OF_NODE, *every[1:-1]])
        raise DoesNotFit(
            f"{NEVER}: topology level {required} is not one of {known} (--topology-levels)", INVALID
        )
    return every[: every.index(required) + 1]


def narrower(snapshot: Snapshot, one: str, other: str) -> str:
    """The narrower of two required levels; empty: no limit. Raises DoesNotFit if one is unknown."""
    # A PCIe switch is inside a NUMA node. Neither is inside an island, nor an island inside one of them.
    return min(
        one,
        other,
        key=lambda level: (not level, len(ladder(snapshot, level)), level != PCIE_SWITCH),
    )
