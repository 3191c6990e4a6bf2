"""The values of an attribute that the devices of all pods of a gang must have, such as rails 0 to 3.

Running members fix them. Else they are chosen for the time in which the gang is placed.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from central.model.arrays import Ints
from central.model.device_claims import DeviceUse, SameValues, Values
from central.scheduler.device_claims.device_demand import NO_VALUES, values_of
from central.scheduler.device_claims.device_fitting import NodeDevices, most_pods
from central.scheduler.device_claims.device_pools import DevicePools

SETS_TRIED = 64  # sets of values of an attribute, for one gang


@dataclass(slots=True, eq=False)
class RowState:
    """The devices of a row for pods with equal values of an attribute. Rows on which the same fits share one object.

    fixed, own: claims on the row and of a pod, as units of `devices`"""

    devices: NodeDevices
    fixed: list[int]
    own: list[int]
    counts: dict[Values | None, int] = field(default_factory=dict)
    sets: frozenset[Values] | None = None

    def count(self, values: Values | None) -> int:
        """Returns how many more pods fit whose devices have these values; None: any, also unlike ones."""
        found = self.counts.get(values)
        if found is None:
            there = self.devices
            if values is not None:
                there = there.with_values(self.own, values)
            aligned = any(map(there.has_values, self.own))
            found = most_pods(there, self.fixed, self.own) if aligned else 0
            self.counts[values] = found
        return found

    def value_sets(self) -> frozenset[Values]:
        """Returns the sets of values that the devices of one pod may have."""
        if self.sets is None:
            there = self.devices
            found = [there.value_sets(unit) for unit in {*self.own} if there.has_values(unit)]
            self.sets = frozenset(set.intersection(*found) if found else ())
        return self.sets


class StatesByRow:
    """The states of all rows, of which few differ. None: no pod fits."""

    def __init__(self, states: Sequence[RowState | None]) -> None:
        index = {state: place for place, state in enumerate(dict.fromkeys(states))}
        self._unlike = [*index]
        self._by_row = np.array([index[state] for state in states], dtype=np.int64)

    def count(self, values: Values | None) -> Ints:
        """Returns by row how many more pods fit whose devices have these values."""
        counts = [0 if state is None else state.count(values) for state in self._unlike]
        found: Ints = np.array(counts, dtype=np.int64)[self._by_row]
        return found


def common_sets(rows: Sequence[Sequence[RowState]]) -> list[Values]:
    """Returns the sets of values that pods of each kind can have, those first that most nodes have. rows: by kind, one
    state for each node"""
    nodes = [Counter[Values]() for _ in rows]
    for states, counts in zip(rows, nodes, strict=True):
        for state, times in Counter(states).items():
            for values in state.value_sets():
                counts[values] += times
    common = set.intersection(*(set(counts) for counts in nodes))
    best = sorted(common, key=lambda v: (-min(counts[v] for counts in nodes), sorted(v)))
    return best[:SETS_TRIED]


@dataclass(slots=True)
class _ChosenSet:
    """The values for a gang's devices. users: drafts' pods, and one while it is placed"""

    values: Values
    users: int = 1


class GangValues:
    def __init__(self, pools: DevicePools) -> None:
        self._pools = pools
        self._chosen: dict[SameValues, _ChosenSet] = {}
        self._members: dict[SameValues, dict[str, tuple[DeviceUse, ...]]] = {}

    def set_member(self, same: SameValues, pod: str, devices: tuple[DeviceUse, ...]) -> None:
        """Sets the devices of a pod that has a node. pod: its uid"""
        members = self._members.setdefault(same, {})
        members.pop(pod, None)
        if devices:
            members[pod] = devices
        if not members:
            del self._members[same]

    def required(self, same: SameValues) -> Values | None:
        """Returns the values that devices of the gang's further pods must have: those that members have, or that are
        chosen; None: any."""
        if (chosen := self._chosen.get(same)) is not None:
            return chosen.values
        members = self._members.get(same)
        if members is None:
            return None
        pools = self._pools.devices
        for devices in members.values():
            there = [pools[each].content.attributes for each, _ in devices if each in pools]
            used = [
                values_of(each) for some in there for each in some if each.name == same.attribute
            ]
            if any(used):
                return NO_VALUES.union(*used)
        return NO_VALUES  # none can be told: the devices are not published now

    def choose(self, same: SameValues, values: Values) -> None:
        self._chosen[same] = _ChosenSet(values)

    def count(self, same: SameValues | None, change: int) -> bool:
        """Counts more users of the chosen values, or fewer. Returns whether the choice ends with the last of them."""
        if same is None or (chosen := self._chosen.get(same)) is None:
            return False
        chosen.users += change
        if not chosen.users:
            del self._chosen[same]
        return not chosen.users
