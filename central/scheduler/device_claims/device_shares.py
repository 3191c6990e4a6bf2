"""The amounts that shares of a device consume of its capacities, by the policies of its driver.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from central.model.device_claims import (
    Consumed,
    Device,
    DeviceId,
    DeviceRequest,
    DeviceUse,
    SharedCapacity,
    qualified,
)
from central.model.exact_quantity import exact_quantity

Share = tuple[Fraction, ...]  # by capacity, in the order of Device.shared
Uses = Counter[Consumed | None]  # of one device, as in DeviceUse
NO_USES: Mapping[DeviceUse, int] = {}


def share_of(device: Device, driver: str, request: DeviceRequest) -> Share | None:
    """Returns what the device gives to one request; empty, if it gives itself. None: it cannot serve the request."""
    if device.shared is None and not request.capacity:
        return ()
    asked = {qualified(name, driver): amount for name, amount in request.capacity}
    capacities = device.shared
    if capacities is None:
        capacities = tuple(SharedCapacity(*each) for each in device.capacity)
    found = [_consumed(each, asked.pop(qualified(each.name, driver), "")) for each in capacities]
    if asked:
        return None
    share = tuple(each for each in found if each is not None)
    if len(share) < len(found):
        return None
    return () if device.shared is None else share


@lru_cache(maxsize=65536)
def _consumed(capacity: SharedCapacity, asked: str) -> Fraction | None:
    """asked: empty: the request does not name the capacity"""
    value = exact_quantity(capacity.value)
    amount = exact_quantity(asked or capacity.default or capacity.value)
    if asked and capacity.least:
        least = exact_quantity(capacity.least)
        step = exact_quantity(capacity.step) if capacity.step else Fraction(0)
        amount = max(amount, least)
        if step:
            amount = least - (least - amount) // step * step
        if capacity.most and amount > exact_quantity(capacity.most):
            return None
    elif asked and capacity.values:
        amount = min(
            (each for each in map(exact_quantity, capacity.values) if each >= amount),
            default=value + 1,
        )
    return amount if amount <= value else None


def written(device: Device, share: Share) -> Consumed | None:
    """Returns the share as it is written to a claim; None: the whole device."""
    if device.shared is None:
        return None
    amounts = zip(device.shared, share, strict=True)
    return tuple((capacity.name, _quantity(amount)) for capacity, amount in amounts)


def _quantity(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{-(-amount * 10**9 // 1)}n"


def left_of(device: Device, uses: Uses) -> list[Fraction]:
    """Returns what is left of each capacity of a shared device. Names that the device does not have are no matter."""
    consumed = [(dict(share), times) for share, times in uses.items() if share is not None]
    return [
        exact_quantity(each.value)
        - sum(exact_quantity(share.get(each.name, "0")) * times for share, times in consumed)
        for each in device.shared or ()
    ]


def is_blocked(device: Device, uses: Uses) -> bool:
    """Returns whether no share of the device can be had beside these uses, nor the device itself."""
    return bool(uses) and (device.shared is None or None in uses)


def without(device: DeviceId, uses: Uses, own: Mapping[DeviceUse, int]) -> Uses:
    """Returns the uses of the device but one's own."""
    if not own:
        return uses
    return Counter(
        {
            share: left
            for share, times in uses.items()
            if (left := times - own.get(DeviceUse(device, share), 0)) > 0
        }
    )
