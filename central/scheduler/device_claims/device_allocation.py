"""Counts the pods of a class that each node has devices for, and takes devices for drafts.

What a draft takes on a node is not fixed until it is confirmed: all claims on the node are fitted together, so that the
order in which pods are placed does not matter. Devices of allocated claims are fixed. They are free while no pod that
uses the claim is charged to its node, as in a search for victims.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from central.model import selectors as node_selectors
from central.model.arrays import Ints, by_row
from central.model.device_claims import (
    AllocatedDevice,
    DeviceClaimSpec,
    DeviceId,
    DeviceNeeds,
    DeviceUse,
    Places,
    SameValues,
    SliceGone,
    SliceSeen,
    TaintRuleGone,
    TaintRuleSeen,
    Values,
    uses_of,
)
from central.model.facts import DeviceClassSeen, NodeSeen
from central.model.pod_rules import Requirement
from central.scheduler.device_claims.device_demand import Demand
from central.scheduler.device_claims.device_fitting import MANY, NodeDevices, SearchLimit, most_pods
from central.scheduler.device_claims.device_pools import EVERYWHERE, DevicePools, PooledDevice
from central.scheduler.device_claims.device_selectors import DeviceSelectors
from central.scheduler.device_claims.device_shares import NO_USES
from central.scheduler.device_claims.device_worth import DeviceWorth
from central.scheduler.device_claims.extended_resources import ExtendedResources
from central.scheduler.device_claims.held_device_uses import HeldDeviceUses
from central.scheduler.device_claims.plugin_gpus import PluginGpus
from central.scheduler.device_claims.same_values import (
    GangValues,
    RowState,
    StatesByRow,
    common_sets,
)
from central.scheduler.inventory.dirty_rows import DirtyRows

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
    taken: Counter[DeviceUse] = field(default_factory=Counter)


class _Unit(NamedTuple):
    """A claim, with the attribute of which its devices must have some values."""

    spec: DeviceClaimSpec
    same: str = ""
    values: Values | None = None


@dataclass(slots=True)
class _PodsByRow:
    """Pods by row, as counted last. For pods with equal values of an attribute, states."""

    by_row: Any
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
        self._demands: dict[tuple[DeviceClaimSpec, str], Demand] = {}
        self._same = GangValues(self.pools)
        self._states: dict[object, RowState] = {}
        self.held = HeldDeviceUses(self.pools, self._touch_device)
        self.plugin_gpus = PluginGpus(self.held)
        self._on_row: dict[int, _OnRow] = {}
        self._shared: dict[str, SharedDevices] = {}
        self._confirmed: Counter[tuple[int, DeviceNeeds]] = Counter()
        self._allocated: dict[str, tuple[DeviceUse, ...]] = {}  # by claim
        self._kept: set[str] = set()  # claims that no eviction frees
        self._held_by: set[str] = set()  # claims whose devices are held now
        self._charged: Counter[str] = Counter()  # pods on nodes that use the claim
        self._users: Counter[str] = Counter()  # pods with a node that use the claim, charged or not
        self._withheld = NO_USES
        self._dirty = DirtyRows()
        self._resets = 0
        self._counted: dict[DeviceNeeds, _PodsByRow] = {}
        self._known_counts: dict[object, int] = {}
        self._worth = self._new_worth()

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
        self._states.clear()
        self._worth = self._new_worth()
        self._reset()

    def _new_worth(self) -> DeviceWorth:
        in_use, elsewhere = self.held.by_device, self.plugin_gpus.pools
        return DeviceWorth(self.pools, self.demand, in_use, elsewhere)

    def _reset(self) -> None:
        self._resets += 1
        self.version += 1

    def _touch_device(self, device: DeviceId) -> None:
        pooled = self.pools.devices.get(device)
        self._touch(pooled.node if pooled is not None and not pooled.spans else EVERYWHERE)
        self.plugin_gpus.follow_claims(device)

    def _touch(self, node: str) -> None:
        """Makes the node be counted again."""
        self.version += 1
        self._worth.outdated.add(node)
        if node == EVERYWHERE:
            self._resets += 1
        elif (row := self._row.get(node)) is not None:
            self._dirty.add([row])

    # --- allocated claims -----------------------------------------------------------

    def set_allocated(
        self, claim: str, devices: tuple[DeviceUse, ...] | None, *, kept: bool = False
    ) -> None:
        """Holds the devices of the claim. devices: None if it is not allocated any more; kept: when no pod uses the
        claim any more, too"""
        (self._kept.add if kept and devices is not None else self._kept.discard)(claim)
        if self._allocated.get(claim) == devices:
            self._update(claim)
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
        free_for_now = self._users[claim] and not self._charged[claim] and claim not in self._kept
        self._hold(claim, claim in self._allocated and not free_for_now)

    def _hold(self, claim: str, held: bool) -> None:
        if held == (claim in self._held_by):
            return
        (self._held_by.add if held else self._held_by.discard)(claim)
        for device in self._allocated[claim]:
            self.held.change(device, 1 if held else -1)

    # --- equal values of an attribute in a gang ---------------------------------------

    def set_member(self, same: SameValues, pod: str, claims: Iterable[str]) -> None:
        """Sets the allocated claims of a pod that has a node; none: it has no more. pod: its uid"""
        devices = tuple(one for claim in claims for one in self._allocated.get(claim, ()))
        self._same.set_member(same, pod, devices)
        self.version += 1

    def values(self, same: SameValues) -> Values | None:
        """Returns the values that devices of the gang's further pods must have; None: any."""
        return self._same.required(same)

    def choose(self, same: SameValues, values: Values | None) -> None:
        """Chooses the values for the next pods of the gang; None: no more are placed now, and the choice ends with the
        last of these pods."""
        if values is None:
            self.version += self._same.count(same, -1)
        else:
            self._same.choose(same, values)
            self.version += 1

    def choices(self, some: Sequence[DeviceNeeds], *, empty: bool) -> dict[Values, list[Ints]]:
        """Returns the sets of values that pods with these needs can have, with the pods of each that fit, by row. Of
        many sets those that most nodes have. empty: also with devices that are in use"""
        by_row = self._empty if empty else self._by_row
        rows = [[s for s in by_row(needs).tolist() if s is not None] for needs in some]
        now = [StatesByRow(self._by_row(needs).tolist()) for needs in some]
        return {v: [states.count(v) for states in now] for v in common_sets(rows)}

    def _empty(self, needs: DeviceNeeds) -> Any:
        """Returns the states of nodes of which all devices are free."""
        units, found = self._units(needs, chosen=False), dict[object, RowState]()
        demands = [self.demand(unit.spec, unit.same) for unit in units]
        unused = HeldDeviceUses(self.pools, self._touch_device)
        states = []
        for node in self._nodes if needs.own else ():
            if node is not None and node_selectors.inside(needs.places, node):
                devices = self.devices_of(node)
                there = NodeDevices(demands, devices, (), (), unused.counters(devices))
                state = RowState(there, [], list(range(len(units))))
                states.append(found.setdefault(there.state(), state))
        return np.array(states, dtype=object)

    def _count_with(self, needs: DeviceNeeds, values: Values | None) -> Ints:
        return StatesByRow(self._by_row(needs).tolist()).count(values)

    # --- devices that are reserved for other gangs ------------------------------------

    def withhold(self, devices: Mapping[DeviceUse, int]) -> None:
        """Withholds these devices, and no others. One that a pod still uses stays withheld when the pod leaves."""
        self.held.replace(self._withheld, devices)
        self._withheld = devices

    def taken(self) -> Counter[DeviceUse]:
        """The devices that drafts have taken."""
        return Counter(use for row in self._on_row.values() for use in row.taken.elements())

    # --- capacity ---------------------------------------------------------------------

    def capacity(self, needs: DeviceNeeds) -> Ints:
        """Returns by row how many more such pods the node has devices for. Not to be written to."""
        if needs.same is not None:
            return self._count_with(needs, self.values(needs.same))
        found: Ints = self._by_row(needs)
        return found

    def _by_row(self, needs: DeviceNeeds) -> Any:
        """Returns the counts by row; for pods with equal values of an attribute, the states."""
        count, kind = (self._count_on, np.int64) if needs.same is None else (self._state_on, object)
        if needs.same is not None:  # the states are the same for all gangs
            needs = replace(needs, same=needs.same._replace(gang=""))
        counted = self._counted.get(needs)
        if counted is None:
            if len(self._counted) >= VIEWS_KEPT:
                self._counted.clear()
            counted = self._counted[needs] = _PodsByRow(np.zeros(0, dtype=np.int64))
        mark, dirty = self._dirty.since(counted.mark)
        rows = len(self._nodes)
        if dirty is None or counted.resets != self._resets or len(counted.by_row) != rows:
            fresh = [count(row, needs) for row in range(rows)]
            counted.by_row = np.array(fresh, dtype=kind)
        elif dirty:
            counted.by_row = counted.by_row.copy()
            for row in set(dirty):
                counted.by_row[row] = count(row, needs)
        counted.mark, counted.resets = mark, self._resets
        return counted.by_row

    def _reaches(self, row: int, needs: DeviceNeeds) -> bool:
        """Returns whether the row's node can use the devices of claims that are allocated."""
        node = self._nodes[row]
        if node is None or not node_selectors.inside(needs.places, node):
            return False
        taken = (self._shared[claim] for claim, _ in needs.shared if claim in self._shared)
        return all(node_selectors.inside(self.places(t.devices, t.row), node) for t in taken)

    def _state_on(self, row: int, needs: DeviceNeeds) -> RowState | None:
        """Returns the state of the row for pods with equal values of an attribute; None: no pod fits."""
        problem = self._problem(row, needs) if self._reaches(row, needs) else None
        if problem is None:
            return None
        key, devices, fixed, own = problem
        if len(self._states) >= COUNTS_KEPT:
            self._states.clear()
        return self._states.setdefault(key, RowState(devices, fixed, own))

    def _problem(
        self, row: int, needs: DeviceNeeds
    ) -> tuple[object, NodeDevices, list[int], list[int]] | None:
        """Returns a key that is equal for rows on which the same fits, the devices, and as units of them the claims
        that are there and those of one pod. None: no pod fits."""
        shared = [_Unit(spec) for claim, spec in needs.shared if claim not in self._shared]
        before, mine = [*self._units_on(row), *shared], self._units(needs, chosen=False)
        units = list(dict.fromkeys((*before, *mine)))
        devices = self._node_devices(row, units)
        if devices is None:
            return None
        index = {unit: place for place, unit in enumerate(units)}
        fixed, own = [index[unit] for unit in before], [index[unit] for unit in mine]
        some = any(each is not None for each in devices.values)
        values = tuple(devices.values) if some else ()
        demands = tuple(map(id, devices.demands))
        return (demands, values, tuple(fixed), tuple(own), devices.state()), devices, fixed, own

    def _count_on(self, row: int, needs: DeviceNeeds) -> int:
        """Returns how many more such pods the row's node has devices for."""
        if not self._reaches(row, needs):
            return 0
        if not needs.own and all(claim in self._shared for claim, _ in needs.shared):
            return MANY
        problem = self._problem(row, needs)
        if problem is None:
            return 0
        key, devices, fixed, own = problem
        found = self._known_counts.get(key)
        if found is None:
            if len(self._known_counts) >= COUNTS_KEPT:
                self._known_counts.clear()
            found = self._known_counts[key] = most_pods(devices, fixed, own)
        return found

    def fits(self, row: int, pods: Iterable[tuple[DeviceNeeds, int]]) -> bool:
        """Returns whether the node has devices for all of these pods together."""
        units, shared = self._units_on(row), dict[str, DeviceClaimSpec]()
        for needs, count in pods:
            units += self._units(needs) * count
            shared |= {claim: spec for claim, spec in needs.shared if count}
        units += [_Unit(spec) for claim, spec in shared.items() if claim not in self._shared]
        return self._fit(row, units) is not None

    def _units(self, needs: DeviceNeeds, *, chosen: bool = True) -> list[_Unit]:
        """The claims of one pod. chosen: with the values that they must have"""
        if (same := needs.same) is None:
            return [_Unit(spec) for spec in needs.own]
        values = self.values(same) if chosen else None
        return [_Unit(spec, same.attribute, values) for spec in needs.own]

    def _units_on(self, row: int) -> list[_Unit]:
        """The claims that drafts have taken devices for on the row."""
        on_row = self._on_row.get(row)
        if on_row is None:
            return []
        own = [u for needs, pods in on_row.pods.items() for u in self._units(needs) * len(pods)]
        return [*map(_Unit, on_row.shared.values()), *own]

    def _fit(self, row: int, units: Sequence[_Unit]) -> list[tuple[AllocatedDevice, ...]] | None:
        """The devices of each claim on the row, whose drafts are fitted anew."""
        unlike = list(dict.fromkeys(units))
        devices = self._node_devices(row, unlike)
        if devices is None:
            return None
        try:
            return devices.fit([unlike.index(unit) for unit in units])
        except SearchLimit:
            return None

    def _node_devices(self, row: int, units: Sequence[_Unit]) -> NodeDevices | None:
        """The row's devices as these claims see them. None: one asks for all devices, and some are not known."""
        node = self._nodes[row]
        if node is None:
            return None
        demands = [self.demand(unit.spec, unit.same) for unit in units]
        unusable = self.pools.unusable
        incomplete = bool(unusable) and (node.name in unusable or EVERYWHERE in unusable)
        if incomplete and any(demand.takes_all for demand in demands):
            return None
        on_row, there = self._on_row.get(row), self.devices_of(node)
        own = on_row.taken if on_row is not None else NO_USES
        taken, counters = self.held.blocked(there, own), self.held.counters(there, own)
        return NodeDevices(demands, there, taken, [unit.values for unit in units], counters)

    def devices_of(self, node: NodeSeen) -> Sequence[PooledDevice]:
        """The devices that pods on the node can use, and that Lockstep supports. Its agents' GPUs only after the agent
        has reported: the device plugin may have given them."""
        local = self.pools.by_node.get(node.name, ())
        anywhere = self.pools.by_node.get(EVERYWHERE, ())
        known = self.plugin_gpus.places
        usable = [
            each
            for each in local
            if not each.device.unsupported and (not each.id.is_agents_gpu or each.id in known)
        ]
        usable += [
            each
            for each in anywhere
            if not each.device.unsupported and node_selectors.inside(each.device.places, node)
        ]
        return usable

    def node(self, row: int) -> NodeSeen | None:
        return self._nodes[row]

    def demand(self, spec: DeviceClaimSpec, same: str = "") -> Demand:
        found = self._demands.get((spec, same))
        if found is None:
            found = Demand(spec, self.classes, self.selectors, same)
            self._demands[spec, same] = found
        return found

    def free_worth(self, units: Mapping[str, int], without: Iterable[str]) -> int:
        """Returns the worth of the free devices, but those of some nodes, by what one of each DeviceClass is worth."""
        return self._worth.free(units, without)

    def spans_nodes(self, needs: DeviceNeeds) -> bool:
        """Returns whether a placed pod may take a device that pods on other nodes could have used."""
        apart = EVERYWHERE not in self.pools.by_node and not self.pools.spanning
        return bool(needs.shared) or (needs.asks and not apart)

    def places(self, devices: Iterable[AllocatedDevice], row: int) -> Places:
        """The nodes from which all of the devices can be used. row: for whose node they were chosen"""
        found: dict[object, None] = {}
        for each in devices:
            pooled, node = self.pools.devices.get(each.id), self._nodes[row]
            if pooled is not None and (pooled.node or pooled.device.binds_to_node) and node:
                return (((Requirement("metadata.name", "In", (node.name,), field=True),),),)
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
        self.version += self._same.count(needs.same, pods)
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
        self.version += self._same.count(needs.same, -gone)
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
        found = self._fit(row, self._units_on(row))
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
        found = Counter(
            use
            for pods in on_row.pods.values()
            for pod in pods
            for devices in pod or ()
            for use in uses_of(devices)
        )
        for claim in on_row.shared:
            found.update(uses_of(self._shared[claim].devices))
        self.held.replace(on_row.taken, found)
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
        self.version += self._same.count(needs.same, -len(lots))
        if on_row is not None:
            if not there:
                on_row.pods.pop(needs, None)
            self._settle(row)
        self._confirmed[row, needs] += len(lots)
        return lots, shared
