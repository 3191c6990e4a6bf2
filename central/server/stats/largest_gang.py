"""The largest gang that would start now, by network level and GPU model: a measure of fragmentation. Pure.

Counted are healthy, free GPUs that no reservation keeps, on nodes that take pods. Quotas are not considered. A gang
of pods with 1 GPU and one of pods with all GPUs of a node are counted apart: half-used nodes are worth nothing to the
second.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from central.server.stats.node_rows import SurveyedNode
from protos.names import ISLAND, NODE

CLUSTER = "cluster"
MODELS_MOST = 16


class LargestGang(NamedTuple):
    level: str  # island, node, a level of the network tree, or cluster
    model: str
    pod_gpus: int  # of each pod: 1, or all of a node
    gpus: int  # of the gang


def largest_gangs(
    nodes: Iterable[SurveyedNode], levels: tuple[str, ...], held: Mapping[str, int]
) -> tuple[LargestGang, ...]:
    """levels: of the nodes' paths, widest first. held: GPUs by node that reservations keep free."""
    by_model: dict[str, list[SurveyedNode]] = {}
    for row in nodes:
        if row.count.gpus:
            by_model.setdefault(row.model or "unknown", []).append(row)
    most = sorted(by_model, key=lambda model: (-len(by_model[model]), model))[:MODELS_MOST]
    found: list[LargestGang] = []
    for model in sorted(most):
        found += _of_model(model, by_model[model], levels, held)
    return tuple(found)


def _of_model(
    model: str, rows: list[SurveyedNode], levels: tuple[str, ...], held: Mapping[str, int]
) -> list[LargestGang]:
    full = max(row.count.gpus for row in rows)
    free = {row.name: _free(row, held.get(row.name, 0)) for row in rows}
    found = []
    for size in dict.fromkeys((1, full)):
        fits = {name: gpus // size * size for name, gpus in free.items()}
        names = [CLUSTER, *(level.rpartition("/")[2] for level in levels)]
        for at, level in enumerate(names):
            sums: dict[tuple[str, ...], int] = {}
            for row in rows:
                if at and not (len(row.path) >= at and row.path[at - 1]):
                    continue  # the node is in no domain of the level
                sums[row.path[:at]] = sums.get(row.path[:at], 0) + fits[row.name]
            if sums:
                found.append(LargestGang(level, model, size, max(sums.values())))
        found.append(LargestGang(NODE, model, size, max(fits.values())))
        islands = (min(row.island, free[row.name]) // size * size for row in rows)
        found.append(LargestGang(ISLAND, model, size, max(islands)))
    return found


def _free(row: SurveyedNode, held: int) -> int:
    return max(0, row.count.whole - held)
