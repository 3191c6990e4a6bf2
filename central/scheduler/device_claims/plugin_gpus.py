"""The GPUs that an agent gives to pods in two ways: for claims, and by its device plugin. What one way has is not free
in the other, also within a cycle.

A GPU that claims, drafts or reservations hold is out of its row's mask of free GPUs. One that is out of the mask for
another reason, because pods have it from the plugin or it is unhealthy, is held as if a claim had it. Each change of
either side calls the other one.

Design: docs/design/device-claims.md
"""

from collections.abc import Mapping
from dataclasses import dataclass

from central.model.device_claims import DeviceId, DeviceUse
from central.scheduler.device_claims.device_pools import PoolKey
from central.scheduler.device_claims.held_device_uses import HeldDeviceUses
from central.scheduler.inventory.columns import Columns

Claimable = Mapping[int, DeviceId]  # devices of claims, by the mask of their one GPU
NO_DEVICES: Claimable = {}


@dataclass(slots=True)
class _ClaimableRow:
    """Masks of GPUs."""

    devices: Claimable
    pool: PoolKey
    by_claims: int = 0  # held by claims, drafts or reservations
    out: int = 0  # of these, free for the plugin otherwise
    by_plugin: int = 0  # held for claims, because they are not free


class PluginGpus:
    def __init__(self, held: HeldDeviceUses) -> None:
        self.pools: set[PoolKey] = set()  # whose devices count as GPUs of the plugin
        self._held = held
        self._rows: dict[int, _ClaimableRow] = {}
        self.places: dict[DeviceId, tuple[int, int]] = {}  # row and mask
        self.columns = Columns()

    def claimed(self, devices: Claimable) -> int:
        """Returns the mask of the GPUs that claims, drafts or reservations hold."""
        return sum(mask for mask, device in devices.items() if self._is_claimed(device))

    def put(self, row: int, devices: Claimable, free: int, *, counted: bool) -> int:
        """Sets the GPUs of the row that claims can have. free: the mask of those that are healthy and not given by the
        plugin. counted: the plugin offers them, too. Returns the free ones that claims do not hold either."""
        there = self._rows.get(row)
        if there is None or there.devices != devices:
            self.drop(row)
            if not devices:
                return free
            pool = next(iter(devices.values()))[:2]
            there = self._rows[row] = _ClaimableRow(devices, pool, self.claimed(devices))
            self.places |= {device: (row, mask) for mask, device in devices.items()}
            self.columns.gpus.watched[row] = self._follow_plugin
            for device in devices.values():
                self._held.touch(device)
        if counted != (there.pool in self.pools):
            self.pools ^= {there.pool}
            self._held.touch(next(iter(devices.values())))
        there.out = free & there.by_claims
        return free & ~there.by_claims

    def drop(self, row: int) -> None:
        if (there := self._rows.pop(row, None)) is None:
            return
        del self.columns.gpus.watched[row]
        self.pools.discard(there.pool)
        for mask, device in there.devices.items():
            del self.places[device]
            if there.by_plugin & mask:
                self._held.change(DeviceUse(device), -1)
            self._held.touch(device)

    def follow_claims(self, device: DeviceId) -> None:
        """The uses of the device have changed."""
        if (place := self.places.get(device)) is None:
            return
        (row, mask), masks = place, self.columns.gpus.free_mask
        there, claimed = self._rows[row], self._is_claimed(device)
        if claimed == bool(there.by_claims & mask):
            return
        there.by_claims ^= mask
        if claimed and masks[row] & mask:
            there.out |= mask
            masks[row] &= ~mask
        elif there.out & mask:
            there.out &= ~mask
            masks[row] |= mask
        self.columns.recount(row)

    def _follow_plugin(self, row: int) -> None:
        """The row's mask of free GPUs may have changed."""
        there = self._rows[row]
        taken = sum(there.devices) & ~(self.columns.gpus.free_mask[row] | there.out)
        changed, there.by_plugin = taken ^ there.by_plugin, taken
        for mask, device in there.devices.items() if changed else ():
            if changed & mask:
                self._held.change(DeviceUse(device), 1 if taken & mask else -1)

    def _is_claimed(self, device: DeviceId) -> bool:
        uses = self._held.by_device.get(device)
        if uses is None:
            return False
        row, mask = self.places.get(device, (-1, 0))
        return uses.total() > bool(mask and self._rows[row].by_plugin & mask)
