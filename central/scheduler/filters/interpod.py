"""Where one kind of pod may go as to the pods that are there: Kubernetes' inter-pod affinity and
anti-affinity, topology spread and host ports, for all nodes at once."""

from collections import Counter

import numpy as np

from central.model import selectors, wording
from central.model.arrays import Bools, Ints
from central.model.facts import PodSpec
from central.model.pod_rules import Spread
from central.model.volumes import VolumeRequest, Volumes
from central.scheduler.filters import node_filters
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory.columns import Columns

MANY = np.int64(2**40)
PORTS, NO_LABEL, SPREAD, NEAR, APART, AVOIDED, IN_USE, FULL, ELSEWHERE, NONE_LEFT = range(1, 11)
REFUSALS = {
    PORTS: "host port taken",
    IN_USE: "its claim is for one pod and in use",
    FULL: "volume limit",
    ELSEWHERE: "its volumes are elsewhere",
    NO_LABEL: "topology spread: no such node label",
    SPREAD: "topology spread",
    NEAR: "pod affinity",
    APART: "pod anti-affinity",
    AVOIDED: "anti-affinity of pods there",
}


def is_interpod(spec: PodSpec) -> bool:
    """Whether where such a pod may go depends on more than room and the nodes themselves."""
    return spec.rules is not None or bool(spec.matched) or spec.volumes is not None


class InterPodFilter:
    def __init__(self, columns: Columns, pod_counts: MatchingPodCounts, spec: PodSpec) -> None:
        self._columns, self._pod_counts = columns, pod_counts
        self._spec = spec
        self._version: tuple[int, ...] = ()
        self._limit: Ints = np.zeros(0, dtype=np.int64)
        self._why: Ints = np.zeros(0, dtype=np.int64)
        self._judged: Ints = np.zeros(0, dtype=np.int64)
        self._affine: Bools = np.zeros(0, dtype=np.bool_)
        self._tolerated: Bools = np.zeros(0, dtype=np.bool_)
        self._reached: Bools = np.zeros(0, dtype=np.bool_)
        self._made: dict[VolumeRequest, Ints] = {}  # where a volume like that can be made
        if spec.volumes is not None:
            wants = [w for w, _ in (*spec.volumes.wants, *((w, 1) for _, w in spec.volumes.shared))]
            self._made = {w: self._judged.copy() for w in wants if w.made is not None}

    def reset(self) -> None:
        self._version = ()
        self._judged[:] = -1

    def limits(self) -> Ints:
        """By row, how many more such pods their company allows there: none, one, or as many as fit.
        One after another: what one pod changes for the next is not looked ahead. The same array
        until something has changed."""
        version = self._pod_counts.version(self._spec)
        if self._version != version:
            self._version = version
            self._limit = np.full(len(self._columns.names), MANY, dtype=np.int64)
            self._why = np.zeros(len(self._limit), dtype=np.int64)
            self._ports()
            self._volumes()
            self._spread()
            self._near()
            self._apart()
        return self._limit

    def reason(self, row: int) -> str:
        """Why the node is out of the question; empty: it is not."""
        self.limits()
        why = int(self._why[row])
        if why == NONE_LEFT and self._spec.volumes is not None:
            return f"no free volumes ({asked(self._spec.volumes)})"
        if why == ELSEWHERE and len(there := np.flatnonzero(self._reached)) == 1:
            return f"its volumes are on node {self._columns.names[int(there[0])]}"
        return REFUSALS.get(why, "")

    def volume_capacity(self) -> Ints | None:
        """By row, for how many more such pods there are volumes; None: they need none."""
        volumes = self._spec.volumes
        if volumes is None or not (volumes.wants or volumes.shared):
            return None
        self._judge()
        return self._pod_counts.volumes.capacity(volumes, self._made)

    def spread_peers(self) -> Ints:
        """By row, how many peers are in its domains already, by the spread rules that count such
        pods themselves: the next goes where it is lowest."""
        pod_counts = self._pod_counts
        crowd = np.zeros(len(self._columns.names), dtype=np.int64)
        for spread in self._spec.rules.spread if self._spec.rules else ():
            if pod_counts.matched_by(spread.peers, self._spec):
                counts, _ = self._counted(spread)
                of = pod_counts.domains(spread.key).of
                crowd += np.where(of >= 0, counts[of] if len(counts) else 0, 0)
        return crowd

    # --- the filters, in Kubernetes' order ----------------------------------------

    def _refuse(self, rows: Bools, why: int) -> None:
        fresh = rows & (self._limit > 0)
        self._limit[fresh] = 0
        self._why[fresh] = why

    def _one(self, rows: Bools) -> None:
        self._limit[rows] = np.minimum(self._limit[rows], 1)

    def _ports(self) -> None:
        ports = self._spec.rules.ports if self._spec.rules else ()
        for port in ports:
            self._refuse(self._pod_counts.port_conflicts(port) > 0, PORTS)
        if ports:
            self._one(np.full(len(self._limit), True))

    def _volumes(self) -> None:
        volumes, pod_counts = self._spec.volumes, self._pod_counts
        if volumes is None:
            return
        everywhere = np.full(len(self._limit), True)
        for claim in volumes.exclusive:
            self._refuse(everywhere & pod_counts.claim_users(claim).any(), IN_USE)
            self._one(everywhere)
        each = dict(volumes.attach)
        for driver in {**each, **dict(volumes.common)}:
            room = pod_counts.attach_capacity(driver)
            for other, claim in volumes.common:
                if other == driver:
                    room -= 1 - pod_counts.attached_for(claim)
            if driver in each:
                room //= each[driver]
            else:
                room = np.where(room >= 0, MANY, 0)
            self._refuse(room <= 0, FULL)
            np.minimum(self._limit, np.maximum(room, 0), out=self._limit)
        if volumes.places:
            self._judge()
            self._refuse(~self._reached, ELSEWHERE)
        if (stocked := self.volume_capacity()) is not None:
            self._refuse(stocked <= 0, NONE_LEFT)
            np.minimum(self._limit, stocked, out=self._limit)

    def _spread(self) -> None:
        pod_counts = self._pod_counts
        for spread in self._spec.rules.spread if self._spec.rules else ():
            of = pod_counts.domains(spread.key).of
            self._refuse(of < 0, NO_LABEL)
            counts, present = self._counted(spread)
            fewest = 0
            if np.count_nonzero(present) >= max(spread.domains, 1):
                fewest = int(counts[present].min())
            itself = pod_counts.matched_by(spread.peers, self._spec)
            over = counts + int(itself) - fewest > spread.skew
            self._refuse((of >= 0) & _of(over, of), SPREAD)

    def _counted(self, spread: Spread) -> tuple[Ints, Bools]:
        """Per domain: the peers on the nodes that count, and whether it has such a node."""
        pod_counts = self._pod_counts
        counts = pod_counts.matching(spread.peers)
        rows = np.flatnonzero(self._counting(spread))
        places = pod_counts.domains(spread.key)
        present = places.sums(np.ones(len(counts), dtype=np.int64), rows) > 0
        return places.sums(counts, rows), present

    def _counting(self, spread: Spread) -> Bools:
        self._judge()
        pod_counts = self._pod_counts
        counting = np.full(len(self._columns.names), True)
        for other in self._spec.rules.spread if self._spec.rules else ():
            counting &= pod_counts.domains(other.key).of >= 0
        if spread.affinity:
            counting &= self._affine
        if spread.taints:
            counting &= self._tolerated
        return counting

    def _near(self) -> None:
        near = self._spec.rules.near if self._spec.rules else None
        if near is None:
            return
        pod_counts = self._pod_counts
        counts = pod_counts.matching(near.peers)
        everywhere = np.full(len(self._limit), True)
        there, somewhere = everywhere.copy(), False
        for key in near.keys:
            places = pod_counts.domains(key)
            sums = places.sums(counts)
            self._refuse(places.of < 0, NEAR)
            there &= _of(sums > 0, places.of)
            somewhere = somewhere or bool(sums.any())
        if somewhere or not pod_counts.matched_by(near.peers, self._spec):
            self._refuse(~there, NEAR)

    def _apart(self) -> None:
        pod_counts, spec = self._pod_counts, self._spec
        for apart in spec.rules.apart if spec.rules else ():
            places = pod_counts.domains(apart.key)
            sums = places.sums(pod_counts.matching(apart.peers))
            self._refuse(_of(sums > 0, places.of), APART)
            if pod_counts.matched_by(apart.peers, spec):
                self._one(places.of >= 0)
        for number in spec.matched:
            for key, counts in pod_counts.avoiding(number).items():
                if counts.any():
                    places = pod_counts.domains(key)
                    self._refuse(_of(places.sums(counts) > 0, places.of), AVOIDED)

    def _judge(self) -> None:
        """Asks about the nodes that changed since they were last asked."""
        columns = self._columns
        more = len(columns.names) - len(self._judged)
        if more:
            self._judged = np.append(self._judged, np.full(more, -1, dtype=np.int64))
            self._affine = np.append(self._affine, np.zeros(more, dtype=np.bool_))
            self._tolerated = np.append(self._tolerated, np.zeros(more, dtype=np.bool_))
            self._reached = np.append(self._reached, np.zeros(more, dtype=np.bool_))
            for want, made in self._made.items():
                self._made[want] = np.append(made, np.zeros(more, dtype=np.int64))
        for row in np.flatnonzero(self._judged != columns.version):
            node = columns.nodes[row]
            self._affine[row] = node is not None and not node_filters.unsuited(self._spec, node)
            self._tolerated[row] = node is not None and not node_filters.untolerated(
                self._spec, node
            )
            self._reached[row] = node is not None and node_filters.reaches(self._spec, node)
            for want, made in self._made.items():
                made[row] = node is not None and selectors.inside(want.made or (), node)
            self._judged[row] = columns.version[row]


def asked(volumes: Volumes) -> str:
    """The volumes that the pods' claims want, in words."""
    wants = Counter(dict(volumes.wants))
    wants.update(want for _, want in volumes.shared)
    return " and ".join(
        f"{count} of class {want.storage_class} with {wording.amount('memory', want.size)}"
        + (", chosen by labels" if want.selector else "")
        for want, count in sorted(
            wants.items(), key=lambda one: (one[0].storage_class, one[0].size)
        )
    )


def _of(domains: Bools, of: Ints) -> Bools:
    """What holds of each domain, by row; of a row in none it does not."""
    if not len(domains):
        return np.zeros(len(of), dtype=np.bool_)
    return (of >= 0) & domains[of]
