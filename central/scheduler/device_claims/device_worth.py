"""The worth of the free devices of claims, which queues share out beside the GPUs of device plugins."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping

from central.model.device_claims import DeviceClaimSpec, DeviceId, DeviceRequest
from central.scheduler.device_claims.device_demand import Demand
from central.scheduler.device_claims.device_pools import (
    EVERYWHERE,
    DevicePools,
    PooledDevice,
    PoolKey,
)


class DeviceWorth:
    """A device is worth what the most valuable class that selects it says, and nothing while it is tainted.

    outdated: nodes whose devices changed, or became free or in use"""

    def __init__(
        self,
        pools: DevicePools,
        demand: Callable[[DeviceClaimSpec], Demand],
        in_use: Container[DeviceId],
        elsewhere: Container[PoolKey] = (),
    ) -> None:
        """elsewhere: pools of devices that are counted as GPUs of device plugins"""
        self.outdated: set[str] = {*pools.by_node}
        self._pools, self._demand, self._in_use = pools, demand, in_use
        self._elsewhere = elsewhere
        self._by_node: dict[str, int] = {}

    def free(self, units: Mapping[str, int], without: Iterable[str]) -> int:
        """units: by DeviceClass, the same in each call; without: nodes."""
        if self.outdated:
            demands = [(self._one_of(name), worth) for name, worth in units.items()]
            for node in self.outdated:
                there = [each for each in self._pools.by_node.get(node, ()) if not each.spans]
                for pool in self._pools.spanning if node == EVERYWHERE else ():
                    there += self._pools.consumers[pool]
                # Devices that share counters are worth as much as the most valuable one.
                most: dict[object, int] = {}
                used: Counter[object] = Counter()
                for each in there:
                    if each.id[:2] in self._elsewhere:
                        continue
                    part, worth = next(iter(each.consumes), each.id), self._worth(each, demands)
                    most[part] = max(most.get(part, 0), worth)
                    used[part] += worth if each.id in self._in_use else 0
                worth = sum(max(all_ - used[part], 0) for part, all_ in most.items())
                self._by_node.pop(node, None)
                if worth:
                    self._by_node[node] = worth
            self.outdated.clear()
        if not self._by_node:
            return 0
        return sum(self._by_node.values()) - sum(self._by_node.get(node, 0) for node in without)

    def _one_of(self, name: str) -> Demand:
        return self._demand(DeviceClaimSpec(((DeviceRequest("", name, 1),),)))

    def _worth(self, device: PooledDevice, demands: Iterable[tuple[Demand, int]]) -> int:
        if device.device.unsupported:
            return 0
        seen = ((demand.signature(device), worth) for demand, worth in demands)
        return max((worth for found, worth in seen if found.usable), default=0)
