"""Fits the claims of some pods to the devices of one node: an exact, bounded search.

Devices that the claims cannot tell apart are of one kind, so the search chooses numbers of kinds. The ways to satisfy
one claim are listed once (Pattern), best first, and patterns are packed into what is free. Equal claims take patterns
in ascending order, and a state that failed is not tried again.

Patterns are ordered by the alternatives of firstAvailable, then by how many devices must be made ready first, then by
how many devices of the same kinds they leave over, so that groups that match exactly are used up first.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from central.model.device_claims import (
    AllocatedDevice,
    DeviceConstraint,
    DeviceId,
    DeviceRequest,
    Values,
)
from central.model.limits import CLAIM_DEVICES
from central.scheduler.device_claims.device_demand import NO_VALUES, Demand, Signature
from central.scheduler.device_claims.device_pools import CounterKey, PooledDevice
from central.scheduler.device_claims.device_shares import written

STEPS_MOST = 20_000  # of one search
PATTERNS_MOST = 1_000  # of one claim
MANY = 2**40
UNITS_MOST = 500  # claims of one search; each is a call inside another


class SearchLimit(Exception):
    """The search was stopped; there may be a way."""


Taken = tuple[tuple[int, int], ...]  # kinds and numbers
Amounts = tuple[tuple[int, Fraction], ...]  # counters by number
EMPTY: Mapping[CounterKey, Fraction] = {}


class Pattern(NamedTuple):
    """A way to satisfy a claim."""

    alternatives: tuple[int, ...]  # by request
    devices: tuple[Taken, ...]  # by request
    uses: Taken  # of all requests, as NodeDevices.uses()

    def kinds(self) -> set[int]:
        return {kind for taken in self.devices for kind, _ in taken}


class NodeDevices:
    """The devices of one node by kind, as some demands see them.

    taken: of these devices, those that are not free; counters: what is left of the counters that devices share;
    values: of the attribute `same` of each demand, that the devices
    of a claim must have all, and no others; None: any"""

    def __init__(
        self,
        demands: Sequence[Demand],
        devices: Sequence[PooledDevice],
        taken: Collection[DeviceId],
        values: Sequence[Values | None] = (),
        counters: Mapping[CounterKey, Fraction] = EMPTY,
    ) -> None:
        self.demands = demands
        self.values = values or [None] * len(demands)
        kinds: dict[tuple[tuple[Signature, ...], Amounts, tuple[int, ...] | None, bool], int] = {}
        numbers: dict[CounterKey, int] = {}  # counters in the order in which devices consume them
        self._free: list[list[PooledDevice]] = []
        self.there: list[int] = []  # free or not
        for device in devices:
            signatures = tuple([demand.signature(device) for demand in demands])
            consumes: Amounts = ()
            if device.consumes:
                consumes = tuple(
                    (numbers.setdefault(key, len(numbers)), amount)
                    for key, amount in device.consumes.items()
                )
            shares = None
            if (shared := device.device.shared) is not None:
                own = ((device.id, "", each.name) for each in shared)
                shares = tuple([numbers.setdefault(key, len(numbers)) for key in own])
            unready = any(device.device.conditions)
            kind = kinds.setdefault((signatures, consumes, shares, unready), len(kinds))
            if kind == len(self._free):
                self._free.append([])
                self.there.append(0)
            self.there[kind] += 1
            if device.id not in taken:
                self._free[kind].append(device)
        self.kinds = [signatures for signatures, *_ in kinds]
        # By kind: counters by number, and amounts.
        self.consumes = [consumes for _, consumes, *_ in kinds]
        # By kind, the counters by number that are the capacities of a shared device. None: it is not shared.
        self.shares = [shares for _, _, shares, _ in kinds]
        # By kind: there are conditions for the binding.
        self.unready = [unready for *_, unready in kinds]
        self.free = [len(each) for each in self._free]
        # Also what is left of counters: a pattern uses kinds and counters alike. Counters come after the kinds.
        self.left: list[Fraction | int] = [*self.free, *(counters.get(key, 0) for key in numbers)]
        self._steps = 0

    def state(self) -> object:
        """Equal for nodes on which the same fits."""
        whole = any(demand.takes_all for demand in self.demands)
        there = self.there if whole else self.free
        columns = (self.kinds, self.consumes, self.shares, self.unready, self.free, there)
        found = frozenset(each for each in zip(*columns, strict=True) if each[4] or whole)
        return found, tuple(self.left[len(self.free) :])

    def most(self, units: Sequence[int]) -> int:
        """An upper bound on how many times claims of these demands (by index) fit."""
        least = sum(self.demands[unit].least for unit in units)
        chosen = set(units)
        useful = [
            (kind, count)
            for kind, count in enumerate(self.free)
            if count and any(self.usable(self.kinds[kind], unit) for unit in chosen)
        ]
        return min(self._most_devices(useful, chosen) // least, UNITS_MOST) if least else 0

    def _most_devices(self, useful: Sequence[tuple[int, int]], units: Collection[int]) -> int:
        """An upper bound on how many of these devices, as numbers of kinds, can be allocated together."""
        plain, groups = 0, dict[int, list[tuple[int, int]]]()
        for kind, count in useful:
            if self.shares[kind] is not None:
                plain += self._most_shares(kind, units)
            elif consumes := self.consumes[kind]:
                groups.setdefault(consumes[0][0], []).append((kind, count))
            else:
                plain += count
        for some in groups.values():
            least = [dict(self.consumes[kind]) for kind, _ in some]
            bounds = [sum(count for _, count in some)]
            for counter in set.intersection(*map(set, least)):
                smallest = min(amounts[counter] for amounts in least)
                left = self.left[len(self.free) + counter]
                bounds += [int(left // smallest)] if smallest else []
            plain += max(min(bounds), 0)
        return plain

    def _most_shares(self, kind: int, units: Collection[int]) -> int:
        """An upper bound on how many shares of a device can be allocated."""
        bounds = [UNITS_MOST * self.free[kind]]
        some = [
            each
            for unit in units
            for bit, each in enumerate(self.kinds[kind][unit].shares)
            if each is not None and self.usable(self.kinds[kind], unit) >> bit & 1
        ]
        for place, counter in enumerate(self.shares[kind] or ()):
            if least := min(share[place] for share in some):
                bounds.append(int(self.left[len(self.free) + counter] // least))
        return max(min(bounds), 0)

    def uses(self, unit: int, bit: int, taken: Iterable[tuple[int, int]]) -> Counter[int]:
        """Returns what numbers of kinds use for an alternative of the demand, as indices of `left`."""
        found, counters = Counter[int](), len(self.free)
        for kind, count in taken:
            consumes: Iterable[tuple[int, Fraction]] = self.consumes[kind]
            if (shares := self.shares[kind]) is None:
                found[kind] += count
            else:
                consumes = zip(shares, self.kinds[kind][unit].shares[bit] or (), strict=True)
            for counter, amount in consumes:
                found[counters + counter] += amount * count  # type: ignore[assignment]  # may be a fraction
        return found

    def usable(self, kind: Sequence[Signature], unit: int) -> int:
        """Returns the alternatives of the demand that such devices can serve, as bits."""
        values, seen = self.values[unit], kind[unit]
        if values is None or not self.has_values(unit):
            return seen.usable
        own = self.demands[unit].same_values(seen)
        return seen.usable if own and own <= values else 0

    def has_values(self, unit: int) -> bool:
        """Returns whether devices that the demand can use have its attribute `same`. Its claims get only such then."""
        demand = self.demands[unit]
        return bool(demand.same) and any(
            kind[unit].usable and demand.same_values(kind[unit]) for kind in self.kinds
        )

    def with_values(self, units: Sequence[int], values: Values) -> "NodeDevices":
        """Returns the same devices for claims that must have these values."""
        made, known = copy(self), [*self.values]
        for unit in units:
            known[unit] = values
        made.values = known
        return made

    def value_sets(self, unit: int) -> set[Values]:
        """Returns the sets of values that the devices of one claim may have, as far as the search gets."""
        self._steps, found, demand = 0, set[Values](), self.demands[unit]
        try:
            for pattern in islice(_Ways(self, unit).every(), PATTERNS_MOST):
                used = [demand.same_values(self.kinds[kind][unit]) for kind in pattern.kinds()]
                if all(used):
                    found.add(NO_VALUES.union(*used))
        except SearchLimit:
            pass
        return found

    def fit(self, units: Sequence[int]) -> list[tuple[AllocatedDevice, ...]] | None:
        """The devices of each claim, or None. units: indices of demands. Raises SearchLimit."""
        self._steps = 0
        if len(units) > UNITS_MOST:
            raise SearchLimit
        groups = Counter(units)
        ways = {unit: _Ways(self, unit).patterns() for unit in groups}
        order = sorted(groups, key=lambda unit: (len(ways[unit]), unit))
        plan = [(unit, ways[unit]) for unit in order for _ in range(groups[unit])]
        chosen = self._pack(plan, 0, 0, [*self.left], set())
        return None if chosen is None else self._concrete(units, plan, chosen)

    def step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MOST:
            raise SearchLimit

    # --- packing -----------------------------------------------------------------

    def _pack(
        self,
        plan: Sequence[tuple[int, Sequence[Pattern]]],
        at: int,
        first: int,
        free: list[Fraction | int],
        failed: set[object],
    ) -> list[int] | None:
        """The indices of patterns from claim `at` on. first: the lowest index of the claim's pattern."""
        if at == len(plan):
            return []
        state = (at, first, *free)
        if state in failed:
            return None
        unit, patterns = plan[at]
        same = at + 1 < len(plan) and plan[at + 1][0] == unit
        for index in range(first, len(patterns)):
            self.step()
            uses = patterns[index].uses
            if any(free[kind] < count for kind, count in uses):
                continue
            for kind, count in uses:
                free[kind] -= count
            rest = self._pack(plan, at + 1, index if same else 0, free, failed)
            if rest is not None:
                return [index, *rest]
            for kind, count in uses:
                free[kind] += count
        failed.add(state)
        return None

    def _concrete(
        self,
        units: Sequence[int],
        plan: Sequence[tuple[int, Sequence[Pattern]]],
        chosen: Sequence[int],
    ) -> list[tuple[AllocatedDevice, ...]]:
        """Takes devices of the chosen kinds, in the order in which their drivers list them."""
        left = [iter(each) for each in self._free]
        made: dict[int, list[tuple[AllocatedDevice, ...]]] = {}
        for (unit, patterns), index in zip(plan, chosen, strict=True):
            requests, pattern, bit = self.demands[unit].spec.requests, patterns[index], 0
            got = []
            for request, alternative, taken in zip(
                requests, pattern.alternatives, pattern.devices, strict=True
            ):
                for kind, count in taken:
                    shared = self.shares[kind] is not None
                    for each in islice(self._free[kind] if shared else left[kind], count):
                        seen = self.kinds[kind][unit]
                        share = seen.shares[bit + alternative] if shared else ()
                        consumed = written(each.device, share or ())
                        name, conditions = request[alternative].name, each.device.conditions
                        got.append(AllocatedDevice(name, *each.id, consumed, conditions))
                bit += len(request)
            made.setdefault(unit, []).append(tuple(got))
        return [made[unit].pop(0) for unit in units]


def most_pods(devices: NodeDevices, fixed: list[int], own: list[int]) -> int:
    """Returns how many pods with these claims fit beside the fixed ones; a lower bound where the search is stopped."""
    most, known = devices.most(own) if own else 1, 0
    pods = most
    while known < most:  # fewer fit where some do
        try:
            fits = devices.fit([*fixed, *own * pods]) is not None
        except SearchLimit:
            fits = False
        known, most = (pods, most) if fits else (known, pods - 1)
        pods = (known + most + 1) // 2
    return known if own or not known else MANY


class _Ways:
    """The ways to satisfy one claim with the free devices of a node."""

    def __init__(self, devices: NodeDevices, unit: int) -> None:
        self._devices, self._unit = devices, unit
        self._kinds = [kind[unit] for kind in devices.kinds]
        self._requests = devices.demands[unit].spec.requests
        self._free = [*devices.left]  # without what the way so far uses
        self._chosen = _ChosenValues(devices.demands[unit])

    def every(self) -> Iterator[Pattern]:
        """Raises SearchLimit."""
        return self._from(0, (), ())

    def patterns(self) -> list[Pattern]:
        """Best first. Raises SearchLimit."""
        found: dict[object, Pattern] = {}
        demand, values = self._devices.demands[self._unit], self._devices.values[self._unit]
        if not self._devices.has_values(self._unit):
            values = None
        for pattern in self.every():
            if values is not None:
                used = (demand.same_values(self._kinds[kind]) for kind in pattern.kinds())
                if NO_VALUES.union(*used) != values:
                    continue
            found.setdefault((pattern.alternatives, pattern.uses), pattern)
            if len(found) > PATTERNS_MOST:
                raise SearchLimit
        left, kinds = self._devices.left, len(self._devices.free)

        def over(pattern: Pattern) -> tuple[object, ...]:
            """Returns a sort key: the alternatives, devices that must be made ready, then what the pattern leaves over
            of its kinds and counters."""
            unready = sum(
                self._devices.unready[kind] * count
                for taken in pattern.devices
                for kind, count in taken
            )
            devices = sum(left[each] - count for each, count in pattern.uses if each < kinds)
            parts = (
                1 - count / left[each] for each, count in pattern.uses if each >= kinds and count
            )
            return pattern.alternatives, unready, devices, sum(parts)

        return sorted(found.values(), key=over)

    def _from(
        self, place: int, alternatives: tuple[int, ...], devices: tuple[Taken, ...]
    ) -> Iterator[Pattern]:
        if place == len(self._requests):
            pairs = zip(self._devices.left, self._free, strict=True)
            uses = tuple([(i, left - free) for i, (left, free) in enumerate(pairs) if left != free])
            yield Pattern(alternatives, devices, uses)  # type: ignore[arg-type]  # as in uses()
            return
        bit = sum(map(len, self._requests[:place]))
        room = CLAIM_DEVICES - sum(count for taken in devices for _, count in taken)
        for index, request in enumerate(self._requests[place]):
            for taken in self._choices(request, bit + index, room):
                used = self._devices.uses(self._unit, bit + index, taken)
                for each, count in used.items():
                    self._free[each] -= count
                if not any(self._free[each] < 0 for each in used):
                    yield from self._from(place + 1, (*alternatives, index), (*devices, taken))
                for each, count in used.items():
                    self._free[each] += count

    def _choices(self, request: DeviceRequest, bit: int, room: int) -> Iterator[Taken]:
        """Yields numbers of kinds that satisfy the request; the constraints know of them while they are used. room: how
        many devices the claim may still have"""
        usable = [
            kind
            for kind, each in enumerate(self._devices.kinds)
            if self._devices.usable(each, self._unit) >> bit & 1
        ]
        if request.count:
            if request.count <= room:
                yield from self._some(request.name, usable, request.count, ())
            return
        blocked = any(each.tainted >> bit & 1 for each in self._kinds)
        every = tuple((kind, self._devices.there[kind]) for kind in usable)
        if not every or blocked or any(self._free[kind] < count for kind, count in every):
            return
        if sum(count for _, count in every) > room:
            return
        marks = [self._add(request.name, kind, count) for kind, count in every]
        if all(mark is not None for mark in marks):
            yield every
        for mark in reversed(marks):
            self._chosen.undo(mark)

    def _some(self, name: str, usable: Sequence[int], count: int, taken: Taken) -> Iterator[Taken]:
        if not count:
            yield taken
            return
        for index, kind in enumerate(usable):
            for number in range(min(count, int(self._free[kind])), 0, -1):
                self._devices.step()
                mark = self._add(name, kind, number)
                if mark is not None:
                    more = (*taken, (kind, number))
                    yield from self._some(name, usable[index + 1 :], count - number, more)
                    self._chosen.undo(mark)

    def _add(self, name: str, kind: int, number: int) -> "_Mark | None":
        return self._chosen.add(name, self._kinds[kind].values, number)


_Mark = list[int]


class _ChosenValues:
    """The values of constrained attributes that the devices of one claim have so far, as in Kubernetes: all devices
    have a value in common, or no two of them do."""

    def __init__(self, demand: Demand) -> None:
        self._constraints: Sequence[DeviceConstraint] = demand.spec.constraints
        self._places = [demand.attributes.index(each.attribute) for each in self._constraints]
        # By constraint, after each addition: the common values, or those in use.
        self._values: list[list[Values]] = [[] for _ in self._constraints]

    def add(self, request: str, values: Sequence[Values], number: int) -> _Mark | None:
        """Adds devices with these values; None if a constraint forbids it."""
        added: _Mark = []
        for index, constraint in enumerate(self._constraints):
            if not constraint.covers(request):
                continue
            own, steps = values[self._places[index]], self._values[index]
            known = steps[-1] if steps else None
            if constraint.distinct:
                allowed = bool(own) and number == 1 and (known is None or own.isdisjoint(known))
                now = own if known is None else own | known
            else:
                now = own if known is None else own & known
                allowed = bool(now)
            if not allowed:
                self.undo(added)
                return None
            steps.append(now)
            added.append(index)
        return added

    def undo(self, mark: _Mark | None) -> None:
        for index in mark or ():
            self._values[index].pop()
