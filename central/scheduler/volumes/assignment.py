"""Assignment of free volumes to the pods of a placement: how many pods of a class each node has volumes for, and the
volumes that a draft reserves for them.

A node has volumes for some pods if and only if, for every set of their requests, it has as many volumes that
satisfy one of the set as the set asks for (Hall's theorem). Example: two pods request one volume each, of
10 GiB and of 50 GiB. A node with one volume of 100 GiB satisfies each set of one request, but not the set of
both, which needs two volumes.

Design: docs/design/filters.md
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from central.model.arrays import Ints, by_row
from central.model.volumes import VolumeRequest, Volumes
from central.scheduler.volumes.free_volumes import FreeVolumes
from central.scheduler.volumes.matching import hall_sets, match

MANY = np.int64(2**40)
# The volumes of one pod, in the order of its requests. An empty name: the volume is provisioned.
PodVolumes = tuple[str, ...]


@dataclass(slots=True)
class SharedVolume:
    """The volume of a claim that several pods use. An empty name: it is provisioned once one of them has
    a node."""

    volume: str
    pods: int = 0


class VolumeAssignment:
    def __init__(self) -> None:
        self.free = FreeVolumes()
        # Reserved by drafts and by placements that are not confirmed yet.
        self._assigned: dict[tuple[int, Volumes], list[PodVolumes]] = {}
        self._shared: dict[str, SharedVolume] = {}  # by claim
        # Pods whose volumes were handed over, and that are still counted with their requests.
        self._confirmed: Counter[tuple[int, Volumes]] = Counter()

    # --- capacity -----------------------------------------------------------------

    def version(self, volumes: Volumes) -> tuple[int, ...]:
        """Changes whenever capacity() may have changed for such pods."""
        return tuple(
            self.free.versions[wanted.storage_class]
            for wanted in (*(w for w, _ in volumes.wants), *(w for _, w in volumes.shared))
        )

    def capacity(self, volumes: Volumes, provisioned: dict[VolumeRequest, Ints]) -> Ints:
        """Returns by row how many pods there are volumes for. provisioned: 1 on rows where a volume can be provisioned
        for the request."""
        found = np.full(self.free.rows, MANY)
        unshared = [want for claim, want in volumes.shared if claim not in self._shared]
        classes = {w.storage_class for w, _ in volumes.wants} | {w.storage_class for w in unshared}
        for name in classes:
            # Of each request: how many volumes each pod needs, and how many all pods need together.
            needs = {w: (n, 0) for w, n in volumes.wants if w.storage_class == name}
            for want in unshared:
                if want.storage_class == name:
                    each, together = needs.get(want, (0, 0))
                    needs[want] = (each, together + 1)
            np.minimum(found, self._capacity_of(name, needs, provisioned), out=found)
        for claim, _ in volumes.shared:
            if claim in self._shared:
                found[~self._reachable(self._shared[claim].volume)] = 0
        return found

    def _capacity_of(
        self,
        name: str,
        needs: dict[VolumeRequest, tuple[int, int]],
        provisioned: dict[VolumeRequest, Ints],
    ) -> Ints:
        """Rows on which the same requests can be provisioned are counted together: only the other
        requests need free volumes."""
        wants = list(needs)
        code = np.zeros(self.free.rows, dtype=np.int64)  # bit i: request i can be provisioned
        for index, want in enumerate(wants):
            if want in provisioned:
                code |= provisioned[want] << index
        found = np.full(self.free.rows, MANY)
        for each_code in np.unique(code).tolist():
            rows = code == each_code
            rest = tuple(
                (w, *needs[w]) for index, w in enumerate(wants) if not each_code >> index & 1
            )
            for any_of, each, together in hall_sets(rest):
                left = self.free.count(name, any_of)[rows] - together
                if each:
                    left //= each
                found[rows] = np.minimum(found[rows], left if each else np.where(left < 0, 0, MANY))
        return np.maximum(found, 0)

    def spans_nodes(self, volumes: Volumes) -> bool:
        """Returns whether one such pod may take a volume that pods on other nodes could have used."""
        return bool(volumes.shared) or any(map(self.free.on_many_nodes, dict(volumes.wants)))

    def _reachable(self, name: str) -> Ints:
        inside = np.full(self.free.rows, not name)  # its provisioner chooses the nodes later
        if name in self.free.listed:
            inside[list(self.free.reach.rows[self.free.listed[name].places])] = True
        return inside

    # --- assignments --------------------------------------------------------------

    def count(self, row: int | Ints, volumes: Volumes, change: int | Ints) -> None:
        """Places that many more pods, or fewer, on the row; or on many different rows."""
        if not volumes.wants and not volumes.shared:
            return
        for one, pods in by_row(row, change):
            self._count_row(one, volumes, pods)

    def _count_row(self, row: int, volumes: Volumes, change: int) -> None:
        if change > 0:
            self._assign(row, volumes, change)
        elif change < 0:
            self._unassign(row, volumes, -change)

    def _assign(self, row: int, volumes: Volumes, pods: int) -> None:
        each = [want for want, count in volumes.wants for _ in range(count)]
        fresh = [(claim, want) for claim, want in volumes.shared if claim not in self._shared]
        wants = [*each * pods, *(want for _, want in fresh)]
        found = match(wants, {want: list(self.free.candidates(row, want)) for want in set(wants)})
        for name in found:
            if name:
                self.free.reserve(name)
        own = len(each)
        assigned = self._assigned.setdefault((row, volumes), [])
        assigned += [tuple(found[own * pod : own * (pod + 1)]) for pod in range(pods)]
        for (claim, _), name in zip(fresh, found[own * pods :], strict=True):
            self._shared[claim] = SharedVolume(name)
        for claim, want in volumes.shared:
            self._shared[claim].pods += pods
            self.free.versions[want.storage_class] += 1

    def _unassign(self, row: int, volumes: Volumes, pods: int) -> None:
        assigned = self._assigned.get((row, volumes), [])
        for _, want in volumes.shared:
            self.free.versions[want.storage_class] += 1
        if confirmed := min(pods, self._confirmed[row, volumes]):
            self._confirmed[row, volumes] -= confirmed
            self._confirmed += Counter()  # without those that are 0
            pods -= confirmed
        for _ in range(min(pods, len(assigned))):
            for name in assigned.pop():
                self.free.release(name)
            for claim, _ in volumes.shared:
                if (shared := self._shared.get(claim)) is not None:
                    shared.pods -= 1
                    if not shared.pods:
                        self.free.release(shared.volume)
                        del self._shared[claim]
        if not assigned:
            self._assigned.pop((row, volumes), None)

    def confirm(
        self, row: int, volumes: Volumes, pods: int
    ) -> tuple[list[PodVolumes], dict[str, str]]:
        """Hands over what the last `pods` pods on the row got: the volumes of each pod, and by claim the volume that
        they share. The caller plans them for claims; they stay reserved. Others of the row keep theirs."""
        for _, want in volumes.shared:
            self.free.versions[want.storage_class] += 1
        shared = {
            claim: self._shared.pop(claim).volume
            for claim, _ in volumes.shared
            if claim in self._shared
        }
        assigned = self._assigned.get((row, volumes), [])
        found = assigned[-pods:]
        del assigned[-pods:]
        if not assigned:
            self._assigned.pop((row, volumes), None)
        self._confirmed[row, volumes] += len(found)
        return found, shared

    def assigned(self) -> set[str]:
        """The names of all volumes that are assigned and not confirmed."""
        own = {name for pods in self._assigned.values() for pod in pods for name in pod}
        return {*own, *(shared.volume for shared in self._shared.values())} - {""}
