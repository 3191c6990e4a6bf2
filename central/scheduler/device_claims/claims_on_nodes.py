"""The allocated claims that have devices of Lockstep's agents, by node: their agents may not read claims.

Design: docs/design/device-claims.md
"""

from itertools import zip_longest

from central.model.device_claims import ClaimKey, DeviceClaimSeen
from protos.names import DRA_DRIVER
from protos.topology import ClaimDevice, ClaimPlan


class ClaimsOnNodes:
    def __init__(self) -> None:
        self._there: dict[str, dict[ClaimKey, ClaimPlan]] = {}
        self._changed: set[str] = set()

    def replace(self, before: DeviceClaimSeen | None, now: DeviceClaimSeen | None) -> None:
        """Replaces a claim's plans, and notes the nodes where they change. before, now: None: no such claim"""
        had, has = _plans(before), _plans(now)
        for node in had.keys() | has.keys():
            if had.get(node) == has.get(node):
                continue
            self._changed.add(node)
            there = self._there.setdefault(node, {})
            if before is not None:
                there.pop(before.key, None)
            if now is not None and node in has:
                there[now.key] = has[node]
            if not there:
                del self._there[node]

    def plans(self, node: str) -> tuple[ClaimPlan, ...]:
        return tuple(sorted(self._there.get(node, {}).values()))

    def take_changed(self) -> set[str]:
        """Returns the nodes whose claims have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed


def _plans(claim: DeviceClaimSeen | None) -> dict[str, ClaimPlan]:
    found: dict[str, list[ClaimDevice]] = {}
    if claim is None or not claim.allocated:
        return {}
    devices = zip_longest(claim.requests, claim.allocated, claim.admin)
    for request, device, admin in devices if claim.requests else ():
        if device.driver == DRA_DRIVER:
            made = ClaimDevice(request, device.device, bool(admin))
            found.setdefault(device.pool, []).append(made)
    return {
        node: ClaimPlan(claim.namespace, claim.name, claim.uid, tuple(devices))
        for node, devices in found.items()
    }
