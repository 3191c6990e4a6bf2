"""The requests of a claim, and the devices of a node as the claim sees them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from central.model.device_claims import (
    VALUE_KINDS,
    DeviceAttribute,
    DeviceClaimSpec,
    DeviceRequest,
    DeviceTaint,
    Values,
)
from central.model.facts import DeviceClassSeen
from central.scheduler.device_claims.device_pools import PooledDevice
from central.scheduler.device_claims.device_selectors import DeviceSelectors, plain
from central.scheduler.device_claims.device_shares import Share, share_of

HINDERS = ("NoSchedule", "NoExecute")


class Signature(NamedTuple):
    """A device as a claim sees it."""

    usable: int  # bit i: alternative i selects it
    tainted: int  # bit i: alternative i would select it, and does not tolerate a taint
    # Of the attributes in constraints, the values with their kinds: one, or those of a list; empty: it has none.
    values: tuple[Values, ...]
    shares: tuple[Share | None, ...] = ()  # by alternative, of a shared device


NO_VALUES: Values = frozenset()


def values_of(attribute: DeviceAttribute) -> Values:
    """The values of an attribute with their kind. One value and a list with it are equal."""
    kind = attribute.kind.removesuffix("s")
    if kind not in VALUE_KINDS:
        return NO_VALUES
    return frozenset((kind, each) for each in plain(attribute.value))


class Demand:
    """One claim's requests with the selectors of their DeviceClasses. Compared by identity.

    same: an attribute of which the devices may have to have particular values; empty: none"""

    def __init__(
        self,
        spec: DeviceClaimSpec,
        classes: Mapping[str, DeviceClassSeen],
        selectors: DeviceSelectors,
        same: str = "",
    ) -> None:
        self.spec, self.same = spec, same
        self._selectors = selectors
        self.alternatives = [each for request in spec.requests for each in request]
        self._expressions = [
            (*(classes[each.device_class].selectors), *each.selectors)
            if each.device_class in classes
            else ("false",)
            for each in self.alternatives
        ]
        named = (*(each.attribute for each in spec.constraints), *(same,) * bool(same))
        self.attributes = list(dict.fromkeys(named))
        self.takes_all = any(not each.count for each in self.alternatives)
        self.sees_taken = self.takes_all or any(each.admin for each in self.alternatives)
        self.uses_none = bool(self.alternatives) and all(each.admin for each in self.alternatives)
        used = tuple(each for each in spec.requests if not any(one.admin for one in each))
        self.least = DeviceClaimSpec(used).least_devices

    def signature(self, device: PooledDevice) -> Signature:
        found = device.signatures.get(self)
        if not isinstance(found, Signature):
            found = device.signatures[self] = self._sign(device)
        return found

    def _sign(self, device: PooledDevice) -> Signature:
        usable, tainted, shares = 0, 0, []
        for index, alternative in enumerate(self.alternatives):
            share = share_of(device.device, device.id.driver, alternative)
            shares.append(share)
            if share is not None and all(
                self._selectors.result(e, device.content) is True for e in self._expressions[index]
            ):
                if hindering(alternative, device.taints):
                    tainted |= 1 << index
                else:
                    usable |= 1 << index
        known = {each.name: values_of(each) for each in device.content.attributes}
        values = tuple(known.get(a, NO_VALUES) for a in self.attributes)
        given = () if device.device.shared is None else tuple(shares)
        return Signature(usable, tainted, values, given)

    def same_values(self, seen: Signature) -> Values:
        """Returns the values of `same` that the device has."""
        return seen.values[self.attributes.index(self.same)]

    def failed_selector(self, device: PooledDevice) -> str:
        """Returns why one of its expressions cannot be evaluated on the device; empty: all can."""
        results = (
            self._selectors.result(each, device.content)
            for some in self._expressions
            for each in some
        )
        return next((each for each in results if isinstance(each, str)), "")


def hindering(request: DeviceRequest, taints: Sequence[DeviceTaint]) -> DeviceTaint | None:
    """A taint that keeps the request from the device."""
    for taint in taints:
        if taint.effect in HINDERS and not any(t.tolerates(taint) for t in request.tolerations):
            return taint
    return None
