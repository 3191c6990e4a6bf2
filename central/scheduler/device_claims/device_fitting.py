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
Uses = tuple[tuple[int, Fraction | int], ...]  # as NodeDevices.uses()
Shares = tuple[int, ...] | None  # by number, the capacities of a shared device
# After the name of a shared device that consumes counters, in place of the names of counters.
FIRST, IN_USE = ("", "first share"), ("", "in use")
EMPTY: Mapping[CounterKey, Fraction] = {}


class Pattern(NamedTuple):
    """A way to satisfy a claim."""

    alternatives: tuple[int, ...]  # by request
    devices: tuple[Taken, ...]  # by request
    uses: Uses  # of all requests

    def kinds(self) -> set[int]:
        return {kind for taken in self.devices for kind, _ in taken}


Plan = Sequence[tuple[int, Sequence[Pattern]]]  # demands by number, with the ways to satisfy each


class NodeDevices:
    """The devices of one node by kind, as some demands see them. Requests with admin access get devices that are taken,
    too, and use nothing up.

    taken: of these devices, those that are not free; counters: what is left of the counters that devices share, with
    IN_USE for shared devices that have been charged theirs; values: of the attribute `same` of each demand, that the
    devices of a claim must have all, and no others; None: any"""

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
        kinds: dict[tuple[tuple[Signature, ...], Amounts, Shares, bool, int | None], int] = {}
        numbers: dict[CounterKey, int] = {}  # counters in the order in which devices consume them
        self._free: list[list[PooledDevice]] = []
        self._there: list[list[PooledDevice]] = []  # free or not
        for device in devices:
            signatures = tuple([demand.signature(device) for demand in demands])
            consumes: Amounts = ()
            if device.consumes:
                consumes = tuple(
                    (numbers.setdefault(key, len(numbers)), amount)
                    for key, amount in device.consumes.items()
                )
            shares, first = None, None
            if (shared := device.device.shared) is not None:
                own = ((device.id, "", each.name) for each in shared)
                shares = tuple([numbers.setdefault(key, len(numbers)) for key in own])
                if consumes and (device.id, *IN_USE) not in counters:
                    first = numbers.setdefault((device.id, *FIRST), len(numbers))
            unready = any(device.device.conditions)
            kind = kinds.setdefault((signatures, consumes, shares, unready, first), len(kinds))
            if kind == len(self._free):
                self._free.append([])
                self._there.append([])
            self._there[kind].append(device)
            if device.id not in taken:
                self._free[kind].append(device)
        self.kinds = [signatures for signatures, *_ in kinds]
        # By kind: counters by number, and amounts.
        self.consumes = [consumes for _, consumes, *_ in kinds]
        # By kind, the counters by number that are the capacities of a shared device. None: it is not shared.
        self.shares = [shares for _, _, shares, *_ in kinds]
        # By kind: there are conditions for the binding.
        self.unready = [unready for *_, unready, _ in kinds]
        # By kind, the number that counts the shares of a device whose first share is charged its counters.
        self.firsts = [first for *_, first in kinds]
        self.free, self.there = ([len(each) for each in some] for some in (self._free, self._there))
        # Also what is left of counters: a pattern uses kinds and counters alike. Counters come after the kinds.
        counted = (MANY if key[1:] == FIRST else counters.get(key, 0) for key in numbers)
        self.left: list[Fraction | int] = [*self.free, *counted]
        self._charged_first = {
            len(kinds) + first: [(len(kinds) + counter, amount) for counter, amount in consumes]
            for consumes, first in zip(self.consumes, self.firsts, strict=True)
            if first is not None
        }
        self._steps = 0

    def state(self) -> object:
        """Equal for nodes on which the same fits."""
        whole = any(demand.sees_taken for demand in self.demands)
        there = self.there if whole else self.free
        columns = (
            *(self.kinds, self.consumes, self.shares, self.unready),
            *(self.free, there, self.firsts),
        )
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
        for kind, count in taken if not self.demands[unit].alternatives[bit].admin else ():
            consumes: Iterable[tuple[int, Fraction]] = self.consumes[kind]
            if (shares := self.shares[kind]) is None:
                found[kind] += count
            else:
                consumes = zip(shares, self.kinds[kind][unit].shares[bit] or (), strict=True)
                if (first := self.firsts[kind]) is not None:
                    found[counters + first] += count
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
        packed = self._packed(units)
        return None if packed is None else self._concrete(units, *packed)

    def fits(self, units: Sequence[int]) -> bool:
        """Returns whether fit() finds devices. Raises SearchLimit."""
        return self._packed(units) is not None

    def _packed(self, units: Sequence[int]) -> tuple[Plan, list[int]] | None:
        """The claims with their patterns, in the order of the search, and the indices of those that are chosen."""
        self._steps = 0
        if len(units) > UNITS_MOST:
            raise SearchLimit
        groups = Counter(units)
        ways = {unit: _Ways(self, unit).patterns() for unit in groups}
        order = sorted(groups, key=lambda unit: (len(ways[unit]), unit))
        plan = [(unit, ways[unit]) for unit in order for _ in range(groups[unit])]
        chosen = self._pack(plan, 0, 0, [*self.left], set())
        return None if chosen is None else (plan, chosen)

    def step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MOST:
            raise SearchLimit

    # --- packing -----------------------------------------------------------------

    def _pack(
        self, plan: Plan, at: int, first: int, free: list[Fraction | int], failed: set[object]
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
            uses = self._with_counters(patterns[index].uses, free)
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

    def _with_counters(self, uses: Uses, free: Sequence[Fraction | int]) -> Uses:
        """Returns the uses with the counters of shared devices that are used for the first time."""
        charged = self._charged_first
        firsts = [each for each, _ in uses if each in charged and free[each] == self.left[each]]
        if not firsts:
            return uses
        found = dict(uses)
        for counter, amount in (one for first in firsts for one in charged[first]):
            found[counter] = found.get(counter, 0) + amount
        return tuple(found.items())

    def _concrete(
        self, units: Sequence[int], plan: Plan, chosen: Sequence[int]
    ) -> list[tuple[AllocatedDevice, ...]]:
        """Takes devices of the chosen kinds, in the order in which their drivers list them."""
        left = [iter(each) for each in self._free]
        made: dict[int, list[tuple[AllocatedDevice, ...]]] = {}
        for (unit, patterns), index in zip(plan, chosen, strict=True):
            requests, pattern, bit = self.demands[unit].spec.requests, patterns[index], 0
            chosen_of = []
            for request, alternative, taken in zip(
                requests, pattern.alternatives, pattern.devices, strict=True
            ):
                chosen_of.append((request[alternative], bit + alternative, taken))
                bit += len(request)
            got: dict[int, list[AllocatedDevice]] = {}
            own = set[DeviceId]()  # a claim has each device once
            for place in sorted(range(len(chosen_of)), key=lambda each: chosen_of[each][0].admin):
                asked, bit, taken = chosen_of[place]
                for kind, count in taken:
                    shared = self.shares[kind] is not None
                    some: Iterable[PooledDevice] = self._free[kind] if shared else left[kind]
                    if asked.admin:
                        some = (each for each in self._there[kind] if each.id not in own)
                    for each in islice(some, count):
                        share = self.kinds[kind][unit].shares[bit] if shared else ()
                        consumed = written(each.device, share or ())
                        got.setdefault(place, []).append(
                            AllocatedDevice(
                                *(asked.name, *each.id, consumed),
                                each.device.conditions,
                                asked.admin,
                            )
                        )
                        if not shared:
                            own.add(each.id)
            made.setdefault(unit, []).append(tuple(one for p in sorted(got) for one in got[p]))
        return [made[unit].pop(0) for unit in units]


def most_pods(devices: NodeDevices, fixed: list[int], own: list[int]) -> int:
    """Returns how many pods with these claims fit beside the fixed ones; a lower bound where the search is stopped."""
    uses_none = all(devices.demands[unit].uses_none for unit in own)  # any number fits, or none
    most, known = 1 if uses_none else devices.most(own), 0
    pods = most
    while known < most:  # fewer fit where some do
        try:
            fits = devices.fits([*fixed, *own * pods])
        except SearchLimit:
            fits = False
        known, most = (pods, most) if fits else (known, pods - 1)
        pods = (known + most + 1) // 2
    return MANY if uses_none and known else known


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
            yield Pattern(alternatives, devices, uses)
            return
        bit = sum(map(len, self._requests[:place]))
        had = Counter[int]()
        for kind, count in (each for taken in devices for each in taken):
            had[kind] += count
        for index, request in enumerate(self._requests[place]):
            for taken in self._choices(request, bit + index, had):
                used = self._devices.uses(self._unit, bit + index, taken)
                for each, count in used.items():
                    self._free[each] -= count
                if not any(self._free[each] < 0 for each in used):
                    yield from self._from(place + 1, (*alternatives, index), (*devices, taken))
                for each, count in used.items():
                    self._free[each] += count

    def _choices(self, request: DeviceRequest, bit: int, had: Counter[int]) -> Iterator[Taken]:
        """Yields numbers of kinds that satisfy the request; the constraints know of them while they are used. had: the
        devices that the claim has by kind"""
        room = CLAIM_DEVICES - had.total()
        usable = {
            kind: self._most(kind, request, had[kind])
            for kind, each in enumerate(self._devices.kinds)
            if self._devices.usable(each, self._unit) >> bit & 1
        }
        if request.count:
            if request.count <= room:
                yield from self._some(request.name, [*usable.items()], request.count, ())
            return
        blocked = any(each.tainted >> bit & 1 for each in self._kinds)
        every = tuple((kind, self._devices.there[kind]) for kind in usable)
        if not every or blocked or any(usable[kind] < count for kind, count in every):
            return
        if sum(count for _, count in every) > room:
            return
        marks = [self._add(request.name, kind, count) for kind, count in every]
        if all(mark is not None for mark in marks):
            yield every
        for mark in reversed(marks):
            self._chosen.undo(mark)

    def _most(self, kind: int, request: DeviceRequest, had: int) -> int:
        """Returns how many devices of the kind the request may get. had: those that the claim has, which it may not
        get again unless they are shared"""
        every, free = self._devices.there[kind], int(self._free[kind])
        others = every - (had if self._devices.shares[kind] is None else 0)
        return others if request.admin else min(free, others)

    def _some(
        self, name: str, usable: Sequence[tuple[int, int]], count: int, taken: Taken
    ) -> Iterator[Taken]:
        if not count:
            yield taken
            return
        for index, (kind, most) in enumerate(usable):
            for number in range(min(count, most), 0, -1):
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
