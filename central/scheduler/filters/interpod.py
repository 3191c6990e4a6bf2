"""The filter for rules between pods: inter-pod affinity and anti-affinity, topology spread, host ports, and
volumes and devices of claims that pods compete for. Computed for all nodes at once, for one pod class.

Design: docs/design/filters.md
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from central.model import selectors, wording
from central.model.arrays import Bools, Ints
from central.model.facts import PodSpec
from central.model.pod_rules import Apart, Near, Port, Rules, Spread
from central.model.volumes import VolumeRequest, Volumes
from central.scheduler.device_claims import device_reasons
from central.scheduler.filters import node_filters
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory.columns import Columns

MANY = np.int64(2**40)
PORTS, IN_USE, FULL, ELSEWHERE, NONE_LEFT, NO_DEVICES, NO_LABEL, SPREAD, NEAR, APART, AVOIDED = (
    WHYS := range(11)
)
REFUSALS = {
    PORTS: "host port {} in use",
    IN_USE: "ReadWriteOncePod claim in use",
    FULL: "volume attach limit",
    ELSEWHERE: "volumes not reachable",
    NO_LABEL: "topology spread label {} missing",
    SPREAD: "topology spread over {}",
    NEAR: "pod affinity to {}",
    APART: "pod anti-affinity to {}",
    AVOIDED: "anti-affinity of existing pods",
}


Rule = Port | Spread | Near | Apart


def is_interpod(spec: PodSpec) -> bool:
    """Returns whether pods of the class have rules, are matched by rules of others, or use volumes or device claims."""
    if spec.rules is not None or spec.matched:
        return True
    return spec.volumes is not None or spec.devices is not None


class InterPodFilter:
    def __init__(self, columns: Columns, pod_counts: MatchingPodCounts, spec: PodSpec) -> None:
        self._columns, self._pod_counts = columns, pod_counts
        self._spec = spec
        self._version: tuple[int, ...] = ()
        self._limit: Ints = np.zeros(0, dtype=np.int64)
        self._why: Ints = np.zeros(0, dtype=np.int64)
        self._refused: list[tuple[int, Bools, Rule]] = []  # why, by row, and the rule
        self._node_version: Ints = np.zeros(0, dtype=np.int64)
        self._affine: Bools = np.zeros(0, dtype=np.bool_)
        self._tolerated: Bools = np.zeros(0, dtype=np.bool_)
        self._reachable: Bools = np.zeros(0, dtype=np.bool_)
        self._provisioned: dict[VolumeRequest, Ints] = {}  # 1 where a volume can be provisioned
        if spec.volumes is not None:
            wants = [w for w, _ in (*spec.volumes.wants, *((w, 1) for _, w in spec.volumes.shared))]
            self._provisioned = {w: self._node_version.copy() for w in wants if w.made is not None}

    def reset(self) -> None:
        self._version = ()
        self._node_version[:] = -1

    def limits(self) -> Ints:
        """Returns by row how many more such pods the rules allow: 0, 1, as many as attach limits, free volumes and free
        devices leave, or MANY. Placing a pod may change the limits for the next one, which this does not foresee.
        Returns the same array until a count changes."""
        version = self._pod_counts.version(self._spec)
        if self._version != version:
            self._version = version
            self._limit = np.full(len(self._columns.names), MANY, dtype=np.int64)
            self._why = np.zeros(len(self._limit), dtype=np.int64)
            self._refused = []
            self._ports()
            self._volumes()
            self._devices()
            self._spread()
            self._near()
            self._apart()
        return self._limit

    def reasons(self, row: int) -> list[str]:
        """Returns why the rules exclude the node; none if they do not."""
        self.limits()
        found = int(self._why[row])
        return [self._reason(row, why) for why in WHYS if found >> why & 1]

    def _reason(self, row: int, why: int) -> str:
        if why == NONE_LEFT and self._spec.volumes is not None:
            return f"no free volumes ({describe_requests(self._spec.volumes)})"
        if why == ELSEWHERE and len(there := np.flatnonzero(self._reachable)) == 1:
            return f"volumes only on node {self._columns.names[int(there[0])]}"
        if why == NO_DEVICES and self._spec.devices is not None:
            return device_reasons.refusal(self._pod_counts.devices, row, self._spec.devices)
        named = {_words(rule) for of, rows, rule in self._refused if of == why and rows[row]}
        return REFUSALS[why].format(wording.some(named))

    def volume_capacity(self) -> Ints | None:
        """Returns by row how many more such pods there are free volumes for; None if they need none."""
        volumes = self._spec.volumes
        if volumes is None or not (volumes.wants or volumes.shared):
            return None
        self._filter_nodes()
        return self._pod_counts.volumes.capacity(volumes, self._provisioned)

    def device_capacity(self) -> Ints | None:
        """Returns by row how many more such pods there are free devices for; None if they need none."""
        devices = self._spec.devices
        if devices is None or not (devices.asks or devices.places):
            return None
        return self._pod_counts.devices.capacity(devices)

    def spread_peers(self) -> Ints:
        """Returns by row the number of peers in its domains, for spread rules that match the class itself. The next pod
        goes where the number is lowest."""
        pod_counts = self._pod_counts
        peers = np.zeros(len(self._columns.names), dtype=np.int64)
        for spread in self._spec.rules.spread if self._spec.rules else ():
            if pod_counts.matched_by(spread.peers, self._spec):
                counts, _ = self._counted(spread)
                of = pod_counts.domains(spread.key).of
                peers += np.where(of >= 0, counts[of] if len(counts) else 0, 0)
        return peers

    # --- the rules, in the order of kube-scheduler ----------------------------------------

    def _refuse(self, rows: Bools, why: int, rule: Rule | None = None) -> None:
        if rule is not None:
            self._refused.append((why, rows, rule))
        self._limit[rows] = 0
        self._why[rows] |= 1 << why

    def _one(self, rows: Bools) -> None:
        self._limit[rows] = np.minimum(self._limit[rows], 1)

    def _ports(self) -> None:
        ports = self._spec.rules.ports if self._spec.rules else ()
        for port in ports:
            self._refuse(self._pod_counts.port_conflicts(port) > 0, PORTS, port)
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
            free = pod_counts.attach_capacity(driver)
            for other, claim in volumes.common:
                if other == driver:
                    free -= 1 - pod_counts.attached_for(claim)
            if driver in each:
                free //= each[driver]
            else:
                free = np.where(free >= 0, MANY, 0)
            self._refuse(free <= 0, FULL)
            np.minimum(self._limit, np.maximum(free, 0), out=self._limit)
        if volumes.places:
            self._filter_nodes()
            self._refuse(~self._reachable, ELSEWHERE)
        if (by_volumes := self.volume_capacity()) is not None:
            self._refuse(by_volumes <= 0, NONE_LEFT)
            np.minimum(self._limit, by_volumes, out=self._limit)

    def _devices(self) -> None:
        if (by_devices := self.device_capacity()) is not None:
            self._refuse(by_devices <= 0, NO_DEVICES)
            np.minimum(self._limit, by_devices, out=self._limit)

    def _spread(self) -> None:
        pod_counts = self._pod_counts
        for spread in self._spec.rules.spread if self._spec.rules else ():
            of = pod_counts.domains(spread.key).of
            self._refuse(of < 0, NO_LABEL, spread)
            counts, present = self._counted(spread)
            fewest = 0
            if np.count_nonzero(present) >= max(spread.domains, 1):
                fewest = int(counts[present].min())
            itself = pod_counts.matched_by(spread.peers, self._spec)
            over = counts + int(itself) - fewest > spread.skew
            self._refuse((of >= 0) & _of(over, of), SPREAD, spread)

    def _counted(self, spread: Spread) -> tuple[Ints, Bools]:
        """Returns by domain the peers on eligible nodes, and whether it has an eligible node."""
        pod_counts = self._pod_counts
        counts = pod_counts.matching(spread.peers)
        rows = np.flatnonzero(self._eligible(spread))
        domains = pod_counts.domains(spread.key)
        present = domains.sums(np.ones(len(counts), dtype=np.int64), rows) > 0
        return domains.sums(counts, rows), present

    def _eligible(self, spread: Spread) -> Bools:
        self._filter_nodes()
        pod_counts = self._pod_counts
        eligible = np.full(len(self._columns.names), True)
        for other in self._spec.rules.spread if self._spec.rules else ():
            eligible &= pod_counts.domains(other.key).of >= 0
        if spread.affinity:
            eligible &= self._affine
        if spread.taints:
            eligible &= self._tolerated
        return eligible

    def _near(self) -> None:
        near = self._spec.rules.near if self._spec.rules else None
        if near is None:
            return
        pod_counts = self._pod_counts
        counts = pod_counts.matching(near.peers)
        everywhere = np.full(len(self._limit), True)
        there, somewhere = everywhere.copy(), False
        for key in near.keys:
            domains = pod_counts.domains(key)
            sums = domains.sums(counts)
            self._refuse(domains.of < 0, NEAR, near)
            there &= _of(sums > 0, domains.of)
            somewhere = somewhere or bool(sums.any())
        if somewhere or not pod_counts.matched_by(near.peers, self._spec):
            self._refuse(~there, NEAR, near)

    def _apart(self) -> None:
        pod_counts, spec = self._pod_counts, self._spec
        for apart in spec.rules.apart if spec.rules else ():
            domains = pod_counts.domains(apart.key)
            sums = domains.sums(pod_counts.matching(apart.peers))
            self._refuse(_of(sums > 0, domains.of), APART, apart)
            if pod_counts.matched_by(apart.peers, spec):
                self._one(domains.of >= 0)
        for number in spec.matched:
            for key, counts in pod_counts.avoiding(number).items():
                if counts.any():
                    domains = pod_counts.domains(key)
                    self._refuse(_of(domains.sums(counts) > 0, domains.of), AVOIDED)

    def _filter_nodes(self) -> None:
        """Evaluates the node filters again for nodes that changed."""
        columns = self._columns
        more = len(columns.names) - len(self._node_version)
        if more:
            self._node_version = np.append(self._node_version, np.full(more, -1, dtype=np.int64))
            self._affine = np.append(self._affine, np.zeros(more, dtype=np.bool_))
            self._tolerated = np.append(self._tolerated, np.zeros(more, dtype=np.bool_))
            self._reachable = np.append(self._reachable, np.zeros(more, dtype=np.bool_))
            for want, where in self._provisioned.items():
                self._provisioned[want] = np.append(where, np.zeros(more, dtype=np.int64))
        for row in np.flatnonzero(self._node_version != columns.version):
            node = columns.nodes[row]
            self._affine[row] = node is not None and not node_filters.affinity_mismatch(
                self._spec, node
            )
            self._tolerated[row] = node is not None and not node_filters.untolerated_taint(
                self._spec, node
            )
            self._reachable[row] = node is not None and node_filters.reaches_volumes(
                self._spec, node
            )
            for want, where in self._provisioned.items():
                where[row] = node is not None and selectors.inside(want.made or (), node)
            self._node_version[row] = columns.version[row]


def _words(rule: Rule) -> str:
    """The port, the node label, or the selector of pods that the rule is about."""
    if isinstance(rule, Port):
        return str(rule.number)
    if isinstance(rule, Spread):
        return rule.key
    return " and ".join(wording.labels(each.labels or ()) for each in rule.peers.selectors)


def describe_rules(specs: Iterable[PodSpec]) -> str:
    """Returns the rules that decide the pods' places beside each other, for messages."""
    found = set[str]()
    for spec in specs:
        rules = spec.rules or Rules()
        near = [rules.near] if rules.near is not None else []
        for why, of in ((NEAR, near), (APART, rules.apart), (SPREAD, rules.spread)):
            found.update(REFUSALS[why].format(_words(rule)) for rule in of)
        found.update(f"host port {port.number}" for port in rules.ports)
        found.update(["their volumes"] if spec.volumes is not None else [])
        found.update(["their device claims"] if spec.devices is not None else [])
    return wording.some(found) or "rules of other pods"


def describe_requests(volumes: Volumes) -> str:
    """The volumes that the claims request, for messages."""
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
    """The value of each row's domain; False for rows without one."""
    if not len(domains):
        return np.zeros(len(of), dtype=np.bool_)
    return (of >= 0) & domains[of]
