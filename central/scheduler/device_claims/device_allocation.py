"""Counts the pods of a class that each node has devices for, and takes devices for drafts.

What a draft takes on a node is not fixed until it is confirmed: all claims on the node are fitted together, so that the
order in which pods are placed does not matter. Devices of allocated claims are fixed. They are free while no pod that
uses the claim is charged to its node, as in a search for victims.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from central.model import selectors as node_selectors
from central.model.arrays import Ints, by_row
from central.model.device_claims import (
    AllocatedDevice,
    DeviceClaimSpec,
    DeviceId,
    DeviceNeeds,
    Places,
    SliceGone,
    SliceSeen,
    TaintRuleGone,
    TaintRuleSeen,
)
from central.model.facts import DeviceClassSeen, NodeSeen
from central.model.pod_rules import Requirement
from central.scheduler.device_claims.device_fitting import Demand, NodeDevices, SearchLimit
from central.scheduler.device_claims.device_pools import EVERYWHERE, DevicePools, PooledDevice
from central.scheduler.device_claims.device_selectors import DeviceSelectors
from central.scheduler.device_claims.device_worth import DeviceWorth
from central.scheduler.device_claims.extended_resources import ExtendedResources
from central.scheduler.inventory.dirty_rows import DirtyRows

MANY = np.int64(2**40)
COUNTS_KEPT = 50_000
VIEWS_KEPT = 1_000
# The devices of each of a pod's own claims, in the order of DeviceNeeds.own; None: they could not be fitted.
PodDevices = tuple[tuple[AllocatedDevice, ...], ...] | None


@dataclass(slots=True)
class SharedDevices:
    """The devices of a claim that several pods use, taken by the first of them."""

    row: int
    devices: tuple[AllocatedDevice, ...]
    pods: int = 0


@dataclass(slots=True)
class _OnRow:
    """Devices that drafts took on a row. pods: by needs, the devices of each pod; shared: claims that are taken
    here."""

    pods: dict[DeviceNeeds, list[PodDevices]] = field(default_factory=dict)
    shared: dict[str, DeviceClaimSpec] = field(default_factory=dict)
    taken: set[DeviceId] = field(default_factory=set)


@dataclass(slots=True)
class _PodsByRow:
    """Pods by row, as counted last."""

    by_row: Ints
    mark: int = -1
    resets: int = -1


class DeviceAllocation:
    def __init__(self, nodes: Sequence[NodeSeen | None]) -> None:
        """nodes: by row; the caller keeps the list up to date."""
        self.selectors = DeviceSelectors()
        self.pools = DevicePools(self.selectors)
        self.classes: dict[str, DeviceClassSeen] = {}
        self.extended = ExtendedResources()
        self.version = 0  # changes whenever capacity() may have changed
        self._nodes = nodes
        self._row: dict[str, int] = {}
        self._demands: dict[DeviceClaimSpec, Demand] = {}
        self._held: Counter[DeviceId] = Counter()
        self._on_row: dict[int, _OnRow] = {}
        self._shared: dict[str, SharedDevices] = {}
        self._confirmed: Counter[tuple[int, DeviceNeeds]] = Counter()
        self._allocated: dict[str, tuple[DeviceId, ...]] = {}  # by claim
        self._held_by: set[str] = set()  # claims whose devices are held now
        self._charged: Counter[str] = Counter()  # pods on nodes that use the claim
        self._users: Counter[str] = Counter()  # pods with a node that use the claim, charged or not
        self._withheld: frozenset[DeviceId] = frozenset()
        self._dirty = DirtyRows()
        self._resets = 0
        self._counted: dict[DeviceNeeds, _PodsByRow] = {}
        self._known_counts: dict[object, int] = {}
        self._worth = DeviceWorth(self.pools, self.demand, self._held)

    # --- what is there --------------------------------------------------------------

    def put_node(self, row: int, node: NodeSeen | None, before: NodeSeen | None) -> None:
        self.extended.put_node(node, before)
        if before is not None:
            self._row.pop(before.name, None)
        if node is not None:
            self._row[node.name] = row
        if self._counted:
            self._dirty.add([row])
            self.version += 1

    def apply(self, fact: SliceSeen | SliceGone | TaintRuleSeen | TaintRuleGone) -> None:
        for node in self.pools.apply(fact):
            self._touch(node)

    def set_class(self, name: str, fact: DeviceClassSeen | None) -> None:
        self.classes.pop(name, None)
        if fact is not None:
            self.classes[name] = fact
        self.extended.set_classes(self.classes)
        self._demands.clear()
        for device in self.pools.devices.values():
            device.signatures.clear()
        self._known_counts.clear()
        self._worth = DeviceWorth(self.pools, self.demand, self._held)
        self._reset()

    def _reset(self) -> None:
        self._resets += 1
        self.version += 1

    def _touch(self, node: str) -> None:
        """Makes the node be counted again."""
        self.version += 1
        self._worth.outdated.add(node)
        if node == EVERYWHERE:
            self._resets += 1
        elif (row := self._row.get(node)) is not None:
            self._dirty.add([row])

    # --- allocated claims -----------------------------------------------------------

    def set_allocated(self, claim: str, devices: tuple[DeviceId, ...] | None) -> None:
        """Holds the devices of the claim. devices: None if it is not allocated any more"""
        if self._allocated.get(claim) == devices:
            return
        self._hold(claim, False)
        self._allocated.pop(claim, None)
        if devices is not None:
            self._allocated[claim] = devices
        self._update(claim)

    def change_users(self, claim: str, change: int) -> None:
        """Counts that many more pods with a node as users of the claim, or fewer."""
        self._users[claim] += change
        if not self._users[claim]:
            del self._users[claim]
        self._update(claim)

    def _update(self, claim: str) -> None:
        free_for_now = self._users[claim] and not self._charged[claim]
        self._hold(claim, claim in self._allocated and not free_for_now)

    def _hold(self, claim: str, held: bool) -> None:
        if held == (claim in self._held_by):
            return
        (self._held_by.add if held else self._held_by.discard)(claim)
        for device in self._allocated[claim]:
            self._change(device, 1 if held else -1)

    def _change(self, device: DeviceId, change: int) -> None:
        self._held[device] += change
        if not self._held[device]:
            del self._held[device]
        pooled = self.pools.devices.get(device)
        self._touch(pooled.node if pooled is not None else EVERYWHERE)

    # --- devices that are reserved for other gangs ------------------------------------

    def withhold(self, devices: frozenset[DeviceId]) -> None:
        """Withholds these devices, and no others. One that a pod still uses stays withheld when the pod leaves."""
        for device in self._withheld ^ devices:
            self._change(device, 1 if device in devices else -1)
        self._withheld = devices

    def taken(self) -> frozenset[DeviceId]:
        """The devices that drafts have taken."""
        return frozenset(device for on_row in self._on_row.values() for device in on_row.taken)

    # --- capacity ---------------------------------------------------------------------

    def capacity(self, needs: DeviceNeeds) -> Ints:
        """Returns by row how many more such pods the node has devices for. Not to be written to."""
        counted = self._counted.get(needs)
        if counted is None:
            if len(self._counted) >= VIEWS_KEPT:
                self._counted.clear()
            counted = self._counted[needs] = _PodsByRow(np.zeros(0, dtype=np.int64))
        mark, dirty = self._dirty.since(counted.mark)
        rows = len(self._nodes)
        if dirty is None or counted.resets != self._resets or len(counted.by_row) != rows:
            fresh = [self.count_on(row, needs) for row in range(rows)]
            counted.by_row = np.array(fresh, dtype=np.int64)
        elif dirty:
            counted.by_row = counted.by_row.copy()
            for row in set(dirty):
                counted.by_row[row] = self.count_on(row, needs)
        counted.mark, counted.resets = mark, self._resets
        return counted.by_row

    def count_on(self, row: int, needs: DeviceNeeds) -> int:
        """Returns how many more such pods the row's node has devices for."""
        node = self._nodes[row]
        if node is None or not node_selectors.inside(needs.places, node):
            return 0
        for claim, _ in needs.shared:
            shared = self._shared.get(claim)
            if shared is not None and not node_selectors.inside(self.places(shared.devices), node):
                return 0
        if not needs.asks:
            return int(MANY)
        return self._most(row, needs)

    def _most(self, row: int, needs: DeviceNeeds) -> int:
        shared = [spec for claim, spec in needs.shared if claim not in self._shared]
        before = self._specs_on(row)
        if not (shared or needs.own):
            return int(MANY)
        specs = list(dict.fromkeys((*before, *shared, *needs.own)))
        devices = self._node_devices(row, specs)
        if devices is None:
            return 0
        index = {spec: place for place, spec in enumerate(specs)}
        fixed = [index[spec] for spec in (*before, *shared)]
        own = [index[spec] for spec in needs.own]
        key = (tuple(map(id, devices.demands)), tuple(fixed), tuple(own), devices.state())
        found = self._known_counts.get(key)
        if found is None:
            if len(self._known_counts) >= COUNTS_KEPT:
                self._known_counts.clear()
            found = self._known_counts[key] = _most_pods(devices, fixed, own)
        return found

    def fits(self, row: int, pods: Iterable[tuple[DeviceNeeds, int]]) -> bool:
        """Returns whether the node has devices for all of these pods together."""
        specs, shared = self._specs_on(row), dict[str, DeviceClaimSpec]()
        for needs, count in pods:
            specs += [spec for spec in needs.own for _ in range(count)]
            shared |= {claim: spec for claim, spec in needs.shared if count}
        specs += [spec for claim, spec in shared.items() if claim not in self._shared]
        return self._fit(row, specs) is not None

    def _specs_on(self, row: int) -> list[DeviceClaimSpec]:
        """The claims that drafts have taken devices for on the row."""
        on_row = self._on_row.get(row)
        if on_row is None:
            return []
        own = [spec for needs, pods in on_row.pods.items() for spec in needs.own * len(pods)]
        return [*on_row.shared.values(), *own]

    def _fit(
        self, row: int, specs: Sequence[DeviceClaimSpec]
    ) -> list[tuple[AllocatedDevice, ...]] | None:
        """The devices of each claim on the row, whose drafts are fitted anew."""
        unlike = list(dict.fromkeys(specs))
        devices = self._node_devices(row, unlike)
        if devices is None:
            return None
        try:
            return devices.fit([unlike.index(spec) for spec in specs])
        except SearchLimit:
            return None

    def _node_devices(self, row: int, specs: Sequence[DeviceClaimSpec]) -> NodeDevices | None:
        """The row's devices as these claims see them. None: one asks for all devices, and some are not known."""
        node = self._nodes[row]
        if node is None:
            return None
        demands = [self.demand(spec) for spec in specs]
        updated = self.pools.updated
        incomplete = bool(updated) and (node.name in updated or EVERYWHERE in updated)
        if incomplete and any(demand.takes_all for demand in demands):
            return None
        on_row, held = self._on_row.get(row), self._held
        own = on_row.taken if on_row is not None else ()
        there = self.devices_of(node)
        taken = (
            {each.id for each in there if each.id in held and each.id not in own} if held else ()
        )
        return NodeDevices(demands, there, taken)

    def devices_of(self, node: NodeSeen) -> Sequence[PooledDevice]:
        """The devices that pods on the node can use, and that Lockstep supports."""
        local = self.pools.by_node.get(node.name, ())
        anywhere = self.pools.by_node.get(EVERYWHERE, ())
        usable = [each for each in local if not each.device.unsupported]
        usable += [
            each
            for each in anywhere
            if not each.device.unsupported and node_selectors.inside(each.device.places, node)
        ]
        return usable

    def node(self, row: int) -> NodeSeen | None:
        return self._nodes[row]

    def is_free(self, device: DeviceId, row: int) -> bool:
        """Returns whether one more pod on the row may get the device, as far as drafts and claims hold it."""
        return not self._held[device]

    def demand(self, spec: DeviceClaimSpec) -> Demand:
        found = self._demands.get(spec)
        if found is None:
            found = self._demands[spec] = Demand(spec, self.classes, self.selectors)
        return found

    def free_worth(self, units: Mapping[str, int], without: Iterable[str]) -> int:
        """Returns the worth of the free devices, but those of some nodes, by what one of each DeviceClass is worth."""
        return self._worth.free(units, without)

    def spans_nodes(self, needs: DeviceNeeds) -> bool:
        """Returns whether a placed pod may take a device that pods on other nodes could have used."""
        return bool(needs.shared) or (needs.asks and EVERYWHERE in self.pools.by_node)

    def places(self, devices: Iterable[AllocatedDevice]) -> Places:
        """The nodes from which all of the devices can be used."""
        found: dict[object, None] = {}
        for each in devices:
            pooled = self.pools.devices.get(each.id)
            if pooled is not None and pooled.node:
                return (((Requirement("metadata.name", "In", (pooled.node,), field=True),),),)
            for terms in pooled.device.places if pooled is not None else ((),):
                found[terms] = None
        return tuple(found)  # type: ignore[arg-type]

    # --- what drafts take -------------------------------------------------------------

    def count(self, row: int | Ints, needs: DeviceNeeds, change: int | Ints) -> None:
        """Places that many more pods, or fewer, on the row; or on many different rows."""
        for one, pods in by_row(row, change):
            self._count_row(one, needs, pods)

    def _count_row(self, row: int, needs: DeviceNeeds, change: int) -> None:
        for claim in needs.held:
            self._charged[claim] += change
            if not self._charged[claim]:
                del self._charged[claim]
            self._update(claim)
        if not needs.asks or not change:
            return
        if change > 0:
            self._take(row, needs, change)
        else:
            self._release(row, needs, -change)

    def _take(self, row: int, needs: DeviceNeeds, pods: int) -> None:
        on_row = self._on_row.setdefault(row, _OnRow())
        fresh = {claim: spec for claim, spec in needs.shared if claim not in self._shared}
        on_row.shared |= fresh
        on_row.pods.setdefault(needs, []).extend([None] * pods)
        for claim in fresh:
            self._shared[claim] = SharedDevices(row, ())
        self._resets += bool(fresh)  # from now on it binds pods to nodes
        for claim, _ in needs.shared:
            self._shared[claim].pods += pods
        self._refit(row)

    def _release(self, row: int, needs: DeviceNeeds, pods: int) -> None:
        if confirmed := min(pods, self._confirmed[row, needs]):
            self._confirmed[row, needs] -= confirmed
            self._confirmed += Counter()  # without those that are 0
            pods -= confirmed
        on_row = self._on_row.get(row)
        there = on_row.pods.get(needs, []) if on_row is not None else []
        if on_row is None or not (gone := min(pods, len(there))):
            return
        del there[-gone:]
        if not there:
            del on_row.pods[needs]
        for claim, _ in needs.shared:
            if (shared := self._shared.get(claim)) is not None:
                shared.pods -= gone
                if not shared.pods:
                    del self._shared[claim]
                    self._forget_shared(claim, shared.row)
        if row in self._on_row:
            self._settle(row)

    def _forget_shared(self, claim: str, row: int) -> None:
        self._resets += 1
        if (on_row := self._on_row.get(row)) is not None:
            on_row.shared.pop(claim, None)
            self._settle(row)

    def _refit(self, row: int) -> None:
        """Fits all that drafts took on the row together. What does not fit keeps None."""
        on_row = self._on_row[row]
        found = self._fit(row, self._specs_on(row))
        if found is not None:
            devices = iter(found)
            for claim in on_row.shared:
                self._shared[claim].devices = next(devices)
            for needs, pods in on_row.pods.items():
                pods[:] = [tuple(next(devices) for _ in needs.own) for _ in pods]
        self._settle(row)

    def _settle(self, row: int) -> None:
        """Holds the devices that the row's pods have now, and no others."""
        on_row = self._on_row[row]
        found = {
            device.id
            for pods in on_row.pods.values()
            for pod in pods
            for devices in pod or ()
            for device in devices
        }
        found.update(each.id for claim in on_row.shared for each in self._shared[claim].devices)
        for device in on_row.taken ^ found:
            self._change(device, 1 if device in found else -1)
        on_row.taken = found
        self._dirty.add([row])
        self.version += 1
        if not on_row.pods and not on_row.shared:
            del self._on_row[row]

    def confirm(
        self, row: int, needs: DeviceNeeds, pods: int
    ) -> tuple[list[PodDevices], dict[str, tuple[AllocatedDevice, ...]]]:
        """Hands over what the last pods on the row got: the devices of each pod, and by claim the devices that it
        shares. The caller plans them for claims, which hold them from then on."""
        shared: dict[str, tuple[AllocatedDevice, ...]] = {}
        for claim, _ in needs.shared:
            if (found := self._shared.pop(claim, None)) is not None:
                shared[claim] = found.devices
                self._forget_shared(claim, found.row)
        on_row = self._on_row.get(row)
        there = on_row.pods.get(needs, []) if on_row is not None else []
        lots = there[-pods:]
        del there[-pods:]
        if on_row is not None:
            if not there:
                on_row.pods.pop(needs, None)
            self._settle(row)
        self._confirmed[row, needs] += len(lots)
        return lots, shared

    # --- for invariants -----------------------------------------------------------------

    def holders(self) -> Counter[DeviceId]:
        """Counts how often each device is held by allocated claims and by drafts."""
        found = Counter(device for claim in self._held_by for device in self._allocated[claim])
        found.update(device for on_row in self._on_row.values() for device in on_row.taken)
        return found

    def pods_taken(self) -> dict[tuple[int, DeviceNeeds], int]:
        """Counts the pods that drafts have taken unconfirmed devices for, by row and needs."""
        return {
            (row, needs): len(pods)
            for row, on_row in self._on_row.items()
            for needs, pods in on_row.pods.items()
        }


def _most_pods(devices: NodeDevices, fixed: list[int], own: list[int]) -> int:
    """Returns how many pods with these claims fit beside the fixed ones; a lower bound where the search is stopped."""
    most = devices.most(own) if own else 1
    for pods in range(most, 0, -1):
        try:
            if devices.fit([*fixed, *own * pods]) is not None:
                return pods if own else int(MANY)
        except SearchLimit:
            continue
    return 0
