"""Admission of PodGroups without pods.

The creator of the pods may wait for the phase Inqueue. A PodGroup is admitted once its queue
accepts it and its minResources are free beside those of the PodGroups admitted before. It then
stays admitted. PodGroups of Jobs are left to the Job controller.

Design: docs/design/queues.md
"""

from collections.abc import Collection

from central.model import wording
from central.model.phases import COMPLETED, INQUEUE, PENDING
from central.model.resources import Sums, add
from central.scheduler.queues import claimable_quota, min_resources, quota
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.pending_gangs import PendingGangs

RECHECK_S = 1.0  # refused groups are checked again at most this often
MAX_CHECKED = 200  # groups that are checked in one cycle, in queue order


class GroupAdmission:
    def __init__(self) -> None:
        self.groups: dict[GangKey, Gang] = {}  # PodGroups without pods, admitted or not
        self._refused: dict[GangKey, Gang] = {}
        self._left: dict[GangKey, Gang] = {}  # by the last call of groups_due(), for the next one
        self._checked_epoch = -1  # the capacity epoch of the last check
        self._next_check = 0.0

    def groups_due(
        self, state: ClusterState, owned_groups: Collection[tuple[str, str]], now: float
    ) -> list[Gang]:
        """The groups to check() now, in queue order. To be called before the statuses of gangs are written."""
        groups = [gang for key, gang in state.pending.changed_gangs.items() if key[2]]
        due = {gang.key: gang for gang in groups if self._track(owned_groups, gang)}
        due |= self._left
        if not self._refused:
            self._checked_epoch = state.pending.epoch  # refusals of this cycle are up to date
        if self._must_recheck(state.pending) and now >= self._next_check:
            self._checked_epoch, self._next_check = state.pending.epoch, now + RECHECK_S
            due |= self._refused
        ordered = sorted(due.values(), key=lambda gang: gang.attempt.rank)
        self._left = {gang.key: gang for gang in ordered[MAX_CHECKED:]}
        return ordered[:MAX_CHECKED]

    @property
    def goes_on(self) -> bool:
        """Returns whether groups are left that the next cycle checks."""
        return bool(self._left)

    def admitted(self) -> Sums:
        """The minResources of the groups that are admitted and have no pods yet."""
        sums: Sums = {}
        for gang in self.groups.values():
            if gang.published.override is not None and gang.published.override[0] == INQUEUE:
                add(sums, min_resources.declared(gang), 1)
        return sums

    def due(self, pending: PendingGangs) -> list[float]:
        return [self._next_check] if self._must_recheck(pending) else []

    def forget(self, key: GangKey) -> None:
        if self.groups.pop(key, None) is not None:
            self._checked_epoch = -1  # others may be admitted in its place
        self._refused.pop(key, None)
        self._left.pop(key, None)

    def _must_recheck(self, pending: PendingGangs) -> bool:
        return bool(self._refused) and self._checked_epoch != pending.epoch

    def _track(self, owned_groups: Collection[tuple[str, str]], gang: Gang) -> bool:
        """Returns whether the gang, which is no single pod, is a PodGroup to check now."""
        of_job = gang.key[:2] in owned_groups
        began = gang.started or gang.preemption.preempted_for or gang.members
        ended = gang.object is not None and gang.object.phase == COMPLETED
        if gang.object is not None and not (began or ended or of_job or gang.foreign):
            self.groups[gang.key] = gang
            return gang.published.override is None or gang.published.override[0] != INQUEUE
        self.forget(gang.key)
        if not of_job and gang.published.override is not None:
            # Known or not: a state that was built again knows no groups.
            gang.published.override = None
        return False

    def check(
        self,
        state: ClusterState,
        queues: Queues,
        min_resources_held: MinResources,
        gang: Gang,
        admitted: Sums,
    ) -> None:
        """Sets phase and reason of the group. admitted: of those before it, to which it is added; nothing is changed
        if it raises."""
        assert gang.object is not None
        why = quota.refusal(queues, min_resources_held, gang, ())
        if why and claimable_quota.may_claim(queues, min_resources_held, gang, ()):
            why = ""
        why = gang.object.error or why
        why = why or min_resources_held.refusal(state, gang, ())
        why = why or _refusal_beside(state, gang, admitted)
        if gang.object.phase == INQUEUE:
            why = ""  # admitted before the scheduler restarted
        if why:
            self._refused[gang.key] = gang
            override = (PENDING, why)
        else:
            self._refused.pop(gang.key, None)
            add(admitted, min_resources.declared(gang), 1)
            override = (INQUEUE, "admitted: pods may be created")
        if gang.published.override != override:
            gang.published.override = override
            state.pending.changed(gang)


def _refusal_beside(state: ClusterState, gang: Gang, admitted: Sums) -> str:
    """Returns why the gang's minResources do not fit beside those of admitted groups; empty: they do."""
    for resource, amount in sorted(min_resources.declared(gang).items()):
        before = admitted.get(resource, 0)
        free = min_resources.free(state, resource)
        if before and amount > free - before:
            return (
                f"needs {wording.quantity(resource, amount)} "
                f"(spec.minResources); the cluster has {wording.amount(resource, free)} free, of "
                f"which {wording.are(resource, min(before, free))} reserved for PodGroups "
                f"admitted before"
            )
    return ""
