"""minResources: capacity for pods that do not exist yet.

A PodGroup's minResources may exceed the requests of its first pods, as for a Spark driver that
creates its executors. Such a gang starts only if all of it is free. What its pods have not taken
yet stays reserved, until the gang ends, against gangs of equal or lower priority. These are sums
over the cluster, not places.

Design: docs/design/queues.md
"""

from collections.abc import Iterator, Sequence

import numpy as np

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import Sums, requested
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from protos.names import GPU


class MinResources:
    def __init__(self) -> None:
        self.by_gang: dict[GangKey, tuple[Gang, Sums]] = {}  # what is outstanding

    def update(self, gang: Gang) -> bool:
        """Returns whether the gang's reservation ended, so that others may use the capacity."""
        before = self.by_gang.pop(gang.key, None)
        after = outstanding(gang)
        if after:
            self.by_gang[gang.key] = (gang, after)
        return before is not None and not after

    def forget(self, key: GangKey) -> bool:
        return self.by_gang.pop(key, None) is not None

    def refusal(
        self, state: ClusterState, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
    ) -> str:
        """Returns why these pods of the gang (by class, with counts) may not be placed now; empty: they may."""
        if not self.by_gang and not declared(gang):
            return ""
        first, need = requested(groups), required(gang, groups)
        if not self.by_gang and need == first:
            return ""
        for resource, amount in sorted(need.items()):
            reserved = list(self._reserved_from(gang, resource))
            if not reserved and amount <= first.get(resource, 0):
                continue  # placement gives a more precise answer
            available = free(state, resource)
            if amount > available - sum(sum_ for _, sum_ in reserved):
                return _refusal(resource, amount, first.get(resource, 0), available, reserved)
        return ""

    def _reserved_from(self, gang: Gang, resource: str) -> Iterator[tuple[str, int]]:
        for other, sums in self.by_gang.values():
            if other is not gang and other.priority >= gang.priority and resource in sums:
                yield other.qualified_name, sums[resource]


def declared(gang: Gang) -> Sums:
    return dict(gang.object.min_resources) if gang.object is not None else {}


def outstanding(gang: Gang) -> Sums:
    """Returns the part of minResources that the pods of a running gang have not taken yet. Empty if completed ones were
    deleted: all that will come is there then."""
    least = declared(gang)
    if (
        not least
        or gang.collected
        or gang.missing()
        or not any(pod.alive for pod in gang.counts.placed)
    ):
        return {}
    taken = sums_of(gang.counts.placed)
    return {
        resource: amount - taken.get(resource, 0)
        for resource, amount in least.items()
        if amount > taken.get(resource, 0)
    }


def required(gang: Gang, groups: Sequence[tuple[PodSpec, int]]) -> Sums:
    """The requests of these pods; before the gang has started, at least the rest of
    minResources."""
    first, least = requested(groups), declared(gang)
    if not least or gang.started:
        return first
    taken = sums_of(gang.counts.placed) if gang.counts.placed else {}
    need = dict(first)
    for resource, amount in least.items():
        need[resource] = max(need.get(resource, 0), amount - taken.get(resource, 0))
    return need


def free(state: ClusterState, resource: str) -> int:
    """Free on schedulable nodes, without unhealthy GPUs."""
    columns = state.snapshot.columns
    column = columns.column.get(resource)
    if column is None:
        return 0
    closed = [columns.row[name] for name in state.node_sets.unschedulable if name in columns.row]
    by_row = columns.gpus.count if resource == GPU else np.maximum(columns.free[:, column], 0)
    return int(by_row.sum()) - int(by_row[closed].sum())


def _refusal(
    resource: str, amount: int, first: int, free: int, reserved: Sequence[tuple[str, int]]
) -> str:
    text = f"needs {wording.quantity(resource, amount)}"
    if amount > first:
        pods = f"; its first pods request {wording.amount(resource, first)}" if first else ""
        text += f" (spec.minResources{pods})"
    text += f"; the cluster has {wording.amount(resource, free)} free"
    if not reserved:
        return text
    names = sorted(name for name, _ in reserved)
    owners = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    withheld = wording.are(resource, min(free, sum(sum_ for _, sum_ in reserved)))
    return f"{text}, of which {withheld} reserved for {owners} (minResources)"
