"""PodGroups without pods: whoever makes the pods may wait until the group is let in (phase Inqueue). It is
as soon as its queue takes it and what it needs at least is free, beside what those need who were let in before;
and it stays let in. A Job's groups are the Job controller's.

Design: docs/design/0016-min-resources.md
"""

from collections.abc import Collection

from central.model import wording
from central.model.phases import INQUEUE, PENDING
from central.model.resources import Sums, add
from central.scheduler.queues import min_resources, quota
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.pending_gangs import PendingGangs

AGAIN_S = 1.0  # those who were not let in are looked at this often at most
AT_ONCE = 200  # and so many of them, the first in line


class GroupAdmission:
    def __init__(self) -> None:
        self.inside: dict[GangKey, Gang] = {}
        self._refused: dict[GangKey, Gang] = {}
        self._seen_at = -1  # the capacity epoch in which they were last looked at
        self._rests_until = 0.0

    def decide(
        self,
        state: ClusterState,
        queues: Queues,
        pledged: MinResources,
        owned_groups: Collection[tuple[str, str]],
        now: float,
    ) -> None:
        """Gives each its phase and sentence; before the gangs are told of."""
        fresh = [
            gang
            for gang in list(state.pending.changed_gangs.values())
            if self._file(owned_groups, gang)
        ]
        if not self._refused:
            self._seen_at = state.pending.epoch  # who is refused now is so as of now
        if self._waits(state.pending) and now >= self._rests_until:
            self._seen_at, self._rests_until = state.pending.epoch, now + AGAIN_S
            fresh = [*fresh, *(gang for gang in self._refused.values() if gang not in fresh)]
        let_in: Sums = {}
        for gang in self.inside.values():
            if gang.published.override is not None and gang.published.override[0] == INQUEUE:
                add(let_in, min_resources.least_of(gang), 1)
        for gang in sorted(fresh, key=lambda gang: gang.attempt.rank)[:AT_ONCE]:
            self._name(state, queues, pledged, gang, let_in)

    def due(self, pending: PendingGangs) -> list[float]:
        return [self._rests_until] if self._waits(pending) else []

    def forget(self, key: GangKey) -> None:
        if self.inside.pop(key, None) is not None:
            self._seen_at = -1  # what it would have taken is there for others
        self._refused.pop(key, None)

    def _waits(self, pending: PendingGangs) -> bool:
        return bool(self._refused) and self._seen_at != pending.epoch

    def _file(self, owned_groups: Collection[tuple[str, str]], gang: Gang) -> bool:
        """Whether it is one to be looked at."""
        namespace, name, has_object = gang.key
        jobs = has_object and (namespace, name) in owned_groups
        began = gang.started or gang.preemption.preempted_for or gang.members
        if gang.object is not None and not began and not jobs:
            self.inside[gang.key] = gang
            return gang.published.override is None or gang.published.override[0] != INQUEUE
        if gang.key in self.inside:
            self.forget(gang.key)
            if not jobs:
                gang.published.override = None
        return False

    def _name(
        self,
        state: ClusterState,
        queues: Queues,
        pledged: MinResources,
        gang: Gang,
        let_in: Sums,
    ) -> None:
        assert gang.object is not None
        why = gang.object.error or quota.refusal(queues, pledged, gang, ())
        why = why or pledged.refusal(state, gang, ()) or _crowded(state, gang, let_in)
        if gang.object.phase == INQUEUE:
            why = ""  # as it was told before a restart
        if why:
            self._refused[gang.key] = gang
            word = (PENDING, why)
        else:
            self._refused.pop(gang.key, None)
            add(let_in, min_resources.least_of(gang), 1)
            word = (INQUEUE, "it is let in: its pods may be made")
        if gang.published.override != word:
            gang.published.override = word
            state.pending.changed(gang)


def _crowded(state: ClusterState, gang: Gang, let_in: Sums) -> str:
    for resource, amount in sorted(min_resources.least_of(gang).items()):
        before = let_in.get(resource, 0)
        free = min_resources.free(state, resource)
        if before and amount > free - before:
            name = wording.resource(resource)
            return (
                f"{wording.amount(resource, amount)} {name} are wanted (spec.minResources) and "
                f"{wording.amount(resource, free)} are free, of which groups that were let in before "
                f"will take {wording.amount(resource, min(before, free))}"
            )
    return ""
