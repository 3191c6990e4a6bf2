"""The devices that can be allocated: those of the newest generation of each pool, as soon as all of its slices are
known.

A pool is published by a driver in one or more ResourceSlices. While a driver replaces its slices, a pool has slices of
two generations or lacks some, and none of its devices is allocated. Nor are those of an invalid pool: two of its
devices or counter sets have one name, or a device consumes a counter that no slice has.

Devices of a node are in the order of their pools' and slices' names, as in Kubernetes: drivers choose the names.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from central.model.device_claims import (
    BY_PLUGIN,
    CounterValue,
    Device,
    DeviceId,
    DeviceTaint,
    SliceGone,
    SliceSeen,
    TaintRuleGone,
    TaintRuleSeen,
)
from central.model.exact_quantity import exact_quantity
from central.scheduler.device_claims.device_selectors import DeviceContent, DeviceSelectors

PoolKey = tuple[str, str]  # driver and name
EVERYWHERE = ""  # instead of a node: devices that no single node has
# Pool, counter set and counter; or a shared device, nothing and its capacity.
CounterKey = tuple[PoolKey | DeviceId, str, str]


@dataclass(slots=True, eq=False)
class PooledDevice:
    """A device, with what is computed of it once.

    signatures: by what claims ask for (fitting.Demand), which of its requests the device satisfies"""

    id: DeviceId
    device: Device
    node: str
    content: DeviceContent
    taints: tuple[DeviceTaint, ...]
    signatures: dict[object, object] = field(default_factory=dict)
    consumes: Mapping[CounterKey, Fraction] = field(init=False)
    spans: bool = False  # it shares counters with devices of other nodes

    def __post_init__(self) -> None:
        self.consumes = _amounts(self.id[:2], self.device.consumes)


class DevicePools:
    def __init__(self, selectors: DeviceSelectors) -> None:
        self.by_node: dict[str, list[PooledDevice]] = {}  # EVERYWHERE: those of no single node
        self.unusable: dict[str, set[PoolKey]] = {}  # incomplete and invalid pools, by node
        self.devices: dict[DeviceId, PooledDevice] = {}
        self.shared = 0  # devices that are
        self._selectors = selectors
        self._slices: dict[str, SliceSeen] = {}
        self._pools: dict[PoolKey, dict[str, SliceSeen]] = {}
        self._nodes: dict[PoolKey, set[str]] = {}  # with devices of the pool
        self._rules: dict[str, TaintRuleSeen] = {}
        self.counters: dict[PoolKey, dict[CounterKey, Fraction]] = {}  # of pools with any
        self.consumers: dict[PoolKey, list[PooledDevice]] = {}  # devices with counters
        self.spanning: set[PoolKey] = set()  # those of which several nodes share counters

    def recorded(self) -> Iterator[SliceSeen | TaintRuleSeen]:
        """The facts that make up what is known."""
        yield from self._rules.values()
        yield from self._slices.values()

    def slices(self, pool: PoolKey) -> Collection[SliceSeen]:
        return self._pools.get(pool, {}).values()

    def apply(self, fact: SliceSeen | SliceGone | TaintRuleSeen | TaintRuleGone) -> set[str]:
        """Returns the nodes whose devices changed."""
        match fact:
            case TaintRuleSeen() | TaintRuleGone():
                before = self._rules.pop(fact.name, None)
                after = fact if isinstance(fact, TaintRuleSeen) else None
                if after is not None:
                    self._rules[fact.name] = after
                rules = [rule for rule in (before, after) if rule is not None]
                pools = [key for key in self._pools if any(_concerns(rule, key) for rule in rules)]
            case _:
                known = self._slices.pop(fact.name, None)
                pools = [self._drop(known)] if known is not None else []
                if isinstance(fact, SliceSeen):
                    self._slices[fact.name] = fact
                    key = (fact.driver, fact.pool)
                    self._pools.setdefault(key, {})[fact.name] = fact
                    pools.append(key)
        changed = set[str]()
        for key in dict.fromkeys(pools):
            changed |= self._rebuild(key)
        return changed

    def _drop(self, known: SliceSeen) -> PoolKey:
        key = (known.driver, known.pool)
        del self._pools[key][known.name]
        return key

    def _rebuild(self, key: PoolKey) -> set[str]:
        slices = sorted(self._pools.get(key, {}).values(), key=lambda each: each.name)
        newest = max((each.generation for each in slices), default=0)
        current = [each for each in slices if each.generation == newest]
        usable = all(each.slices == len(current) for each in current) and _is_valid(current)
        changed = self._remove(key)
        if not slices:
            del self._pools[key]
        for each in slices:
            changed.add(each.node)
            if not usable:
                self.unusable.setdefault(each.node, set()).add(key)
        counters = _amounts(key, [one for each in current for one in each.counters])
        if counters and usable:
            self.counters[key] = counters
            nodes = {each.node for each in current if each.devices}
            if EVERYWHERE in nodes or len(nodes) > 1:
                self.spanning.add(key)
                changed.add(EVERYWHERE)
        for each in current if usable else ():
            there = self.by_node.setdefault(each.node, [])
            self._nodes.setdefault(key, set()).add(each.node)
            for device in each.devices:
                pooled = self._pooled(key, each.node, device)
                self.devices[pooled.id] = pooled
                self.shared += device.shared is not None
                if device.consumes:
                    pooled.spans = key in self.spanning
                    self.consumers.setdefault(key, []).append(pooled)
                there.append(pooled)
            there.sort(key=lambda pooled: pooled.id[:2])
        return changed

    def _remove(self, key: PoolKey) -> set[str]:
        """Removes the pool's devices. Returns the nodes that had some."""
        changed = {node for node, keys in self.unusable.items() if key in keys}
        for node in changed:
            self.unusable[node].discard(key)
            if not self.unusable[node]:
                del self.unusable[node]
        self.counters.pop(key, None)
        self.consumers.pop(key, None)
        if key in self.spanning:
            self.spanning.remove(key)
            changed.add(EVERYWHERE)
        had = self._nodes.pop(key, set())
        for node in had:
            there = self.by_node.pop(node)
            kept = [each for each in there if each.id[:2] != key]
            for each in there:
                if each.id[:2] == key:
                    del self.devices[each.id]
                    self.shared -= each.device.shared is not None
            if kept:
                self.by_node[node] = kept
        return changed | had

    def _pooled(self, key: PoolKey, node: str, device: Device) -> PooledDevice:
        rules = (rule for rule in self._rules.values() if _concerns(rule, key))
        taints = [*device.taints, *(r.taint for r in rules if r.device in ("", device.name))]
        content = self._selectors.content(key[0], device)
        name = DeviceId(*key, device.name)
        if name.is_agents_gpu:  # plugin_gpus.py knows better, also what an eviction would free
            taints = [each for each in taints if each.key != BY_PLUGIN]
        return PooledDevice(name, device, node, content, tuple(taints))


def _is_valid(slices: Sequence[SliceSeen]) -> bool:
    """Returns whether no name occurs twice, and each counter that a device consumes is there. slices: of one pool"""
    devices = [device for each in slices for device in each.devices]
    sets = [name for each in slices for name in {one.counters for one in each.counters}]
    there = {one[:2] for each in slices for one in each.counters}
    return (
        len({each.name for each in devices}) == len(devices)
        and len(set(sets)) == len(sets)
        and all(one[:2] in there for each in devices for one in each.consumes)
    )


def _amounts(pool: PoolKey, values: Iterable[CounterValue]) -> dict[CounterKey, Fraction]:
    return {(pool, each.counters, each.name): exact_quantity(each.amount) for each in values}


def _concerns(rule: TaintRuleSeen, key: PoolKey) -> bool:
    return rule.driver in ("", key[0]) and rule.pool in ("", key[1])
