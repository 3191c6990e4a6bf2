"""The levels of closeness, from one island of GPUs to the whole cluster."""

from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, NUMA


def ladder(snapshot: Snapshot, required: str) -> list[str]:
    """The levels to try, closest first, up to the required one."""
    every = [ISLAND, NODE, *reversed(snapshot.columns.domains.levels), ANYWHERE]
    if not required:
        return every
    if required == NUMA:  # an island may span two
        return [NUMA]
    if required not in every:
        raise DoesNotFit(
            f"topology level {required} is not one of {', '.join([ISLAND, NUMA, *every[1:-1]])} (--topology-levels)"
        )
    return every[: every.index(required) + 1]
