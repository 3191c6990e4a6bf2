"""The uses of devices by allocated claims, drafts and reservations, and what is left of the devices.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction

from central.model.device_claims import DeviceId, DeviceUse
from central.scheduler.device_claims.device_fitting import EMPTY, IN_USE
from central.scheduler.device_claims.device_pools import CounterKey, DevicePools, PooledDevice
from central.scheduler.device_claims.device_shares import (
    NO_USES,
    Share,
    Uses,
    is_blocked,
    left_of,
    without,
)


class HeldDeviceUses:
    def __init__(self, pools: DevicePools, touch: Callable[[DeviceId], None]) -> None:
        """touch: is called with each device whose uses change"""
        self.by_device: dict[DeviceId, Uses] = {}
        self._pools, self.touch = pools, touch

    def change(self, use: DeviceUse, change: int) -> None:
        """Counts that many more such uses, or fewer."""
        uses = self.by_device.setdefault(use.device, Counter())
        uses[use.consumed] += change
        if not uses[use.consumed]:
            del uses[use.consumed]
        if not uses:
            del self.by_device[use.device]
        self.touch(use.device)

    def replace(self, before: Mapping[DeviceUse, int], now: Mapping[DeviceUse, int]) -> None:
        """Holds some devices in place of others."""
        for use in {**before, **now}:
            if change := now.get(use, 0) - before.get(use, 0):
                self.change(use, change)

    def _uses(self, device: PooledDevice, own: Mapping[DeviceUse, int] = NO_USES) -> Uses:
        """Returns what holds the device besides these uses."""
        uses = self.by_device.get(device.id)
        return Counter() if uses is None else without(device.id, uses, own)

    def blocked(
        self, there: Iterable[PooledDevice], own: Mapping[DeviceUse, int]
    ) -> Collection[DeviceId]:
        """Returns the devices of which nothing can be had besides these uses."""
        if not (held := self.by_device):
            return ()
        return {
            each.id
            for each in there
            if each.id in held and is_blocked(each.device, self._uses(each, own))
        }

    def counters(
        self, there: Iterable[PooledDevice], own: Mapping[DeviceUse, int] = NO_USES
    ) -> Mapping[CounterKey, Fraction]:
        """Returns what is left of the capacity of shared devices, and of the counters that they consume, besides these
        uses. A shared device consumes its counters once, however many share it; IN_USE: it does so already."""
        found: dict[CounterKey, Fraction] = {}
        for each in there if self._pools.shared else ():
            if each.device.shared:
                left = left_of(each.device, self._uses(each, own))
                for capacity, amount in zip(each.device.shared, left, strict=True):
                    found[each.id, "", capacity.name] = amount
        if not self._pools.counters:
            return found or EMPTY
        for key in {each.id[:2] for each in there if each.consumes}:
            found |= self._pools.counters.get(key, {})
            for each in self._pools.consumers.get(key, ()):
                if each.id in self.by_device and self._uses(each, own):
                    if each.device.shared is not None:
                        found[each.id, *IN_USE] = Fraction(1)
                    for counter, amount in each.consumes.items():
                        found[counter] = found.get(counter, Fraction(0)) - amount
        return found

    def is_free(self, device: PooledDevice, share: Share) -> bool:
        """Returns whether one more pod may get the device, or this share of it, as far as drafts and claims
        hold it and what it consumes."""
        uses = self._uses(device)
        if is_blocked(device.device, uses):
            return False
        enough = zip(share, left_of(device.device, uses), strict=True)
        if not all(amount <= left for amount, left in enough):
            return False
        if not device.consumes or uses:  # a share of a device in use consumes no more
            return True
        counters = self.counters((device,))
        return all(amount <= counters.get(key, 0) for key, amount in device.consumes.items())
