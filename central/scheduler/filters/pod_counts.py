"""Counts of pods by node row, for rules between pods: pods that match a tracked rule, pods whose anti-affinity
excludes others, host ports in use, and attached volumes. Updated as pods come and go.

Only pods with rules or volumes, and pods that a rule matches, are counted. Without rules this costs nothing.

Design: docs/design/filters.md
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from central.model.arrays import Ints
from central.model.facts import NodeSeen, PodSpec
from central.model.pod_rules import Peers, Port
from central.model.selectors import SOFT
from central.model.volumes import AttachLimits, Volumes
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from central.scheduler.volumes.assignment import VolumeAssignment

ANY = np.int64(2**40)


class TopologyDomains:
    """The domains of one topology key (a node label). of[row] is the row's domain, -1 for none."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.of: Ints = np.zeros(0, dtype=np.int64)
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def grow(self, rows: int) -> None:
        more = np.full(rows - len(self.of), -1, dtype=np.int64)
        self.of = np.append(self.of, more)

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        value = labels.get(self.key)
        if value is None:
            self.of[row] = -1
            return
        if value not in self._ids:
            self._ids[value] = len(self.names)
            self.names.append(value)
        self.of[row] = self._ids[value]

    def sums(self, counts: Ints, rows: Ints | None = None) -> Ints:
        """Sums of counts (by row) per domain, over all rows or the given ones."""
        of = self.of if rows is None else self.of[rows]
        here = counts if rows is None else counts[rows]
        inside = of >= 0
        return np.bincount(of[inside], here[inside], len(self.names)).astype(np.int64)

    def single(self) -> bool:
        """Returns whether no domain has more than one node, as with host names."""
        of = self.of[self.of >= 0]
        return len(of) == len(np.unique(of))


class MatchingPodCounts:
    def __init__(self) -> None:
        self.ids: dict[Peers, int] = {}
        self.soft_tainted: set[int] = set()  # rows with a PreferNoSchedule taint
        self.volumes = VolumeAssignment()
        self.nodes_version = 0  # counts changes of nodes
        self._rows = 0
        self._nodes: list[NodeSeen | None] = []
        self.devices = DeviceAllocation(self._nodes)
        self._next = 0
        self._domains: dict[str, TopologyDomains] = {}
        self._matching: dict[int, Ints] = {}  # by id of the rule's peers
        # pods with anti-affinity to them, by topology key
        self._avoiding: dict[int, dict[str, Ints]] = {}
        self._ports: dict[Port, Ints] = {}
        self._claims: dict[str, Ints] = {}  # users of ReadWriteOncePod claims
        self._attached: dict[str, Ints] = {}  # volumes, by CSI driver
        self._common: dict[str, Ints] = {}  # users of claims that several pods use
        self._limits: dict[str, dict[str, int]] = {}  # by node, then by driver
        # number of changes, by what is counted
        self._versions: Counter[int | Port | str] = Counter()

    # --- nodes -----------------------------------------------------------------

    def put_node(self, row: int, node: NodeSeen | None, rows: int) -> None:
        """Sets the row's node (None: deleted). rows: how many rows there are now."""
        if rows > self._rows:
            self._grow(rows)
        self.devices.put_node(row, node, self._nodes[row])
        self._nodes[row] = node
        self.volumes.free.put_node(row, node, rows)
        self.nodes_version += 1
        self.soft_tainted.discard(row)
        if node is not None and any(taint.effect == SOFT for taint in node.taints):
            self.soft_tainted.add(row)
        for domains in self._domains.values():
            domains.put(row, node.labels if node else {})
        # Others are built again when they are read, without the names of nodes that have gone.
        few = 4 * self._rows
        self._domains = {key: of for key, of in self._domains.items() if len(of.names) <= few}

    def _grow(self, rows: int) -> None:
        more = np.zeros(rows - self._rows, dtype=np.int64)
        self._nodes += [None] * len(more)
        self._rows = rows
        for domains in self._domains.values():
            domains.grow(rows)
        for counts in (self._matching, self._ports, self._claims, self._attached, self._common):
            for which in counts:
                counts[which] = np.append(counts[which], more)  # type: ignore[index]  # its own key
        for by_key in self._avoiding.values():
            for key in by_key:
                by_key[key] = np.append(by_key[key], more)

    def domains(self, key: str) -> TopologyDomains:
        if key not in self._domains:
            domains = self._domains[key] = TopologyDomains(key)
            domains.grow(self._rows)
            for row, node in enumerate(self._nodes):
                if node is not None:
                    domains.put(row, node.labels)
        return self._domains[key]

    # --- peers -----------------------------------------------------------------

    def track(self, peers: Peers) -> int:
        """Starts to count the pods that match. The caller must reclassify placed pods that do."""
        self._next += 1
        self.ids[peers] = self._next
        self._matching[self._next] = np.zeros(self._rows, dtype=np.int64)
        return self._next

    def untrack(self, peers: Peers) -> None:
        number = self.ids.pop(peers)
        del self._matching[number]
        self._avoiding.pop(number, None)
        self._versions.pop(number, None)

    def count(self, row: int | Ints, spec: PodSpec, change: int | Ints) -> None:
        """Counts that many more pods of the class, or fewer, on the row; or on many different rows."""
        for number in spec.matched:
            if number in self._matching:
                self._matching[number][row] += change
                self._versions[number] += 1
        if spec.volumes is not None:
            self._count_volumes(row, spec.volumes, change)
        if spec.devices is not None:
            self.devices.count(row, spec.devices, change)
        if spec.rules is None:
            return
        for apart in spec.rules.apart:
            known = self.ids.get(apart.peers)
            if known is not None:
                by_key = self._avoiding.setdefault(known, {})
                if apart.key not in by_key:
                    by_key[apart.key] = np.zeros(self._rows, dtype=np.int64)
                by_key[apart.key][row] += change
                self._versions[known] += 1
        for port in spec.rules.ports:
            if port not in self._ports:
                self._ports[port] = np.zeros(self._rows, dtype=np.int64)
            self._ports[port][row] += change
            self._versions[_everywhere(port)] += 1

    def _count_volumes(self, row: int | Ints, volumes: Volumes, change: int | Ints) -> None:
        for claim in volumes.exclusive:
            self._count_users(self._claims, claim, row, change)
            self._versions[claim] += 1
        for driver, volumes_each in volumes.attach:
            self._attached.setdefault(driver, self._none())[row] += volumes_each * change
            self._versions[driver] += 1
        for driver, claim in volumes.common:  # attached once for all pods on the node
            before, after = self._count_users(self._common, claim, row, change)
            attached = self._attached.setdefault(driver, self._none())
            attached[row] += np.asarray(after > 0, dtype=np.int64) - (before > 0)
            self._versions[driver] += 1
        self.volumes.count(row, volumes, change)

    def _count_users(
        self, users: dict[str, Ints], claim: str, row: int | Ints, change: int | Ints
    ) -> tuple[Any, Any]:
        """Returns the users of the claim on the rows before and after the change. A claim without any is forgotten:
        there is no end of claims."""
        by_row = users.setdefault(claim, self._none())
        before = by_row[row]
        by_row[row] += change
        after = by_row[row]
        if not by_row.any():
            del users[claim]
        return before, after

    def claim_users(self, claim: str) -> Ints:
        return self._claims.get(claim, self._none())

    def put_limits(self, node: str, limits: Mapping[str, int]) -> None:
        """Sets how many volumes the node can attach, by driver."""
        self._limits.pop(node, None)
        if limits:
            self._limits[node] = dict(limits)
        self.nodes_version += 1

    def recorded_limits(self) -> list[AttachLimits]:
        """The facts that put_limits() was called with."""
        return [AttachLimits(node, tuple(of.items())) for node, of in self._limits.items()]

    def attached_for(self, claim: str) -> Ints:
        """Returns by row 1 if the claim's volume is attached for one of the pods that share it, else 0."""
        return np.asarray(self._common.get(claim, self._none()) > 0, dtype=np.int64)

    def attach_capacity(self, driver: str) -> Ints:
        """Returns by row how many more volumes of the driver can be attached; less than 0 beyond the limit, and near
        ANY if the node has no limit."""
        limit = np.full(self._rows, ANY, dtype=np.int64)
        for row, node in enumerate(self._nodes):
            if node is not None and node.name in self._limits:
                limit[row] = self._limits[node.name].get(driver, ANY)
        return limit - self._attached.get(driver, self._none())

    def matching(self, peers: Peers) -> Ints:
        number = self.ids.get(peers)
        return self._none() if number is None else self._matching[number]

    def avoiding(self, number: int) -> Mapping[str, Ints]:
        return self._avoiding.get(number, {})

    def port_conflicts(self, port: Port) -> Ints:
        """Returns by row how many conflicting ports are in use, each counted once per pod."""
        return sum(
            (counts for other, counts in self._ports.items() if port.conflicts(other)), self._none()
        )

    def matched_by(self, peers: Peers, spec: PodSpec) -> bool:
        return self.ids.get(peers, -1) in spec.matched

    def version(self, spec: PodSpec) -> tuple[int, ...]:
        """Changes whenever the counts that rules of the class read may have changed."""
        moved, ids = self._versions, self.ids
        parts = [self.nodes_version, *(moved[number] for number in spec.matched)]
        if spec.rules is not None:
            for peers in spec.rules.peers():
                number = ids.get(peers, -1)
                parts += (number, moved[number])
            parts += (moved[_everywhere(port)] for port in spec.rules.ports)
        if spec.volumes is not None:
            parts += (moved[claim] for claim in spec.volumes.exclusive)
            parts += (moved[driver] for driver, _ in spec.volumes.attach)
            parts += (moved[driver] for driver, _ in spec.volumes.common)
            parts += self.volumes.version(spec.volumes)
        if spec.devices is not None:
            parts.append(self.devices.version)
        return tuple(parts)

    def _none(self) -> Ints:
        return np.zeros(self._rows, dtype=np.int64)


def _everywhere(port: Port) -> Port:
    """The key of all ports that may conflict with it."""
    return Port(port.protocol, port.number)
