"""Room for pods that are still to come: a PodGroup's minResources may be more than what its first pods ask
for, as of a driver whose executors it makes itself. Such a gang starts only if all of that can be had, and
once it has started, what its pods have not taken yet is kept from others that are not more urgent, until
it is over. Sums over the state, not places.
"""

from collections.abc import Iterator, Sequence

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import Sums, requested
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from protos.names import GPU

Groups = Sequence[tuple[PodSpec, int]]


class MinResources:
    def __init__(self) -> None:
        self.by_gang: dict[GangKey, tuple[Gang, Sums]] = {}

    def file(self, gang: Gang) -> bool:
        """Brings the books in line with the gang; whether others may have more now, though no pod
        left."""
        before = self.by_gang.pop(gang.key, None)
        after = owed(gang)
        if after:
            self.by_gang[gang.key] = (gang, after)
        return before is not None and not after

    def forget(self, key: GangKey) -> bool:
        return self.by_gang.pop(key, None) is not None

    def refusal(self, state: ClusterState, gang: Gang, groups: Groups) -> str:
        """Why so many pods of such kinds may not be placed for the gang now; empty: they may."""
        if not self.by_gang and not least_of(gang):
            return ""
        wanted, need = requested(groups), needs(gang, groups)
        if not self.by_gang and need == wanted:
            return ""
        for resource, amount in sorted(need.items()):
            kept = list(self._kept(gang, resource))
            if not kept and amount <= wanted.get(resource, 0):
                continue  # placement knows better
            there = free(state, resource)
            if amount > there - sum(sum_ for _, sum_ in kept):
                return _sentence(resource, amount, wanted.get(resource, 0), there, kept)
        return ""

    def _kept(self, gang: Gang, resource: str) -> Iterator[tuple[str, int]]:
        for other, sums in self.by_gang.values():
            if other is not gang and other.priority >= gang.priority and resource in sums:
                yield other.name, sums[resource]


def least_of(gang: Gang) -> Sums:
    return dict(gang.object.min_resources) if gang.object is not None else {}


def owed(gang: Gang) -> Sums:
    """What it has started with the promise of, and its pods have not taken yet."""
    least = least_of(gang)
    if not least or gang.missing() or not any(pod.alive for pod in gang.placed()):
        return {}
    given = sums_of(gang.placed())
    return {
        resource: amount - given.get(resource, 0)
        for resource, amount in least.items()
        if amount > given.get(resource, 0)
    }


def needs(gang: Gang, groups: Groups) -> Sums:
    """What so many of its pods ask for, and before it has started what it will need at least."""
    wanted, least = requested(groups), least_of(gang)
    if not least or gang.started:
        return wanted
    given = sums_of(gang.placed()) if gang.placed() else {}
    need = dict(wanted)
    for resource, amount in least.items():
        need[resource] = max(need.get(resource, 0), amount - given.get(resource, 0))
    return need


def free(state: ClusterState, resource: str) -> int:
    """On nodes that take pods now; GPUs that agents call sick are none."""
    snapshot = state.snapshot
    column = snapshot.columns.column.get(resource)
    if column is None:
        return 0
    shut = [
        snapshot.columns.row[name]
        for name in state.unschedulable_nodes
        if name in snapshot.columns.row
    ]
    there = snapshot.columns.gpus.count if resource == GPU else snapshot.columns.free[:, column]
    return int(there.sum()) - int(there[shut].sum())


def _sentence(
    resource: str, amount: int, wanted: int, free: int, kept: Sequence[tuple[str, int]]
) -> str:
    name = wording.resource(resource)
    text = f"{wording.amount(resource, amount)} {name} are wanted"
    if amount > wanted:
        first = f"; its first pods ask for {wording.amount(resource, wanted)}" if wanted else ""
        text += f" (spec.minResources{first})"
    text += f" and {wording.amount(resource, free)} are free"
    if not kept:
        return text
    names = sorted(name for name, _ in kept)
    whose = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    promised = wording.amount(resource, min(free, sum(sum_ for _, sum_ in kept)))
    return f"{text}, of which {promised} are promised to {whose} (minResources)"
