"""Kubernetes' controller for ResourceClaims: claims from templates, and the end of allocations without users."""

from collections.abc import Iterator
from dataclasses import replace

from central.model.decisions import Bind
from central.model.device_claims import (
    EXTENDED,
    ClaimKey,
    DeviceClaimGone,
    DeviceClaimSeen,
    DeviceClaimSpec,
    DeviceId,
    PodDeviceClaim,
)
from central.model.facts import Fact, GangSeen, PodSeen
from central.model.native_podgroup import podgroup_name


class DeviceClaimController:
    def __init__(self, templates: dict[ClaimKey, DeviceClaimSpec]) -> None:
        self._templates = templates
        self._claims: dict[ClaimKey, DeviceClaimSeen] = {}
        self._holders: dict[DeviceId, ClaimKey] = {}
        self._groups: dict[tuple[str, str], GangSeen] = {}

    def apply(self, fact: Fact) -> None:
        """Learns of claims and PodGroups in the scenario."""
        if isinstance(fact, GangSeen) and fact.device_claims:
            self._groups[fact.namespace, fact.name] = fact
        elif isinstance(fact, DeviceClaimSeen):
            self._set(fact)
        elif isinstance(fact, DeviceClaimGone) and (fact.namespace, fact.name) in self._claims:
            self._free(self._claims.pop((fact.namespace, fact.name)))

    def _set(self, claim: DeviceClaimSeen) -> DeviceClaimSeen:
        if (before := self._claims.get(claim.key)) is not None:
            self._free(before)
        for device in _whole(claim):
            if (other := self._holders.setdefault(device, claim.key)) != claim.key:
                raise AssertionError(f"device {device} is allocated to {other} and {claim.key}")
        self._claims[claim.key] = claim
        return claim

    def _free(self, claim: DeviceClaimSeen) -> None:
        for device in _whole(claim):
            self._holders.pop(device, None)

    def make_claims(self, seen: PodSeen) -> tuple[PodSeen, list[Fact]]:
        """The pod with the names of the claims that are made for it, and these claims."""
        entries, made = [], list[Fact]()
        group = self._groups.get((seen.namespace, seen.gang))
        common = group.device_claims if group is not None else ()
        for entry in seen.device_claims:
            spec = self._templates.get((seen.namespace, entry.template)) if entry.template else None
            if spec is None or (seen.namespace, entry.claim) in self._claims:
                entries.append(entry)
                continue
            name, uid, owner = f"{seen.name}-{entry.name}", seen.uid, (seen.uid, "")
            if group is not None and any(entry.is_of_group(each) for each in common):
                podgroup = podgroup_name(group.name)
                name, uid, owner = f"{podgroup}-{entry.name}", group.uid, ("", podgroup)
            if (seen.namespace, name) not in self._claims:
                key = (seen.namespace, name, f"{uid}/{entry.name}")
                claim = DeviceClaimSeen(*key, spec, pod=owner[0], group=owner[1])
                made.append(self._set(claim))
            entries.append(entry._replace(claim=name))
        return replace(seen, device_claims=tuple(entries)), made

    @staticmethod
    def named(bind: Bind, seen: PodSeen) -> PodSeen:
        """The pod with the name of the claim that is made for its extended resources."""
        if not any(planned.served for planned in bind.device_claims):
            return seen
        others = (each for each in seen.device_claims if each.name != EXTENDED)
        return replace(seen, device_claims=(*others, PodDeviceClaim(EXTENDED, _made_for(bind))))

    def bind_claims(self, bind: Bind) -> Iterator[Fact]:
        for planned in bind.device_claims:
            if planned.served:
                name, spec = _made_for(bind), DeviceClaimSpec(())
                claim = DeviceClaimSeen(
                    bind.namespace, name, f"{bind.pod}/{name}", spec, pod=bind.pod
                )
            else:
                claim = self._claims[bind.namespace, planned.claim]
            if claim.allocated is None:
                if not planned.devices:
                    raise AssertionError(
                        f"{bind.name} is bound, and {planned.claim} has no devices"
                    )
                devices = tuple(each.id for each in planned.devices)
                claim = replace(
                    claim,
                    allocated=devices,
                    consumed=tuple(each.consumed for each in planned.devices),
                    places=planned.places,
                    admin=tuple(each.admin for each in planned.devices),
                )
            user = planned.group[1] or bind.pod
            if user not in claim.reserved:
                claim = replace(
                    claim, reserved=(*claim.reserved, user), group=planned.group[0] or claim.group
                )
            yield self._set(claim)

    def pod_ended(self, seen: PodSeen) -> Iterator[Fact]:
        """The pod uses its claims no more."""
        for entry in seen.device_claims:
            claim = self._claims.get((seen.namespace, entry.claim))
            if claim is not None and seen.uid in claim.reserved:
                users = tuple(uid for uid in claim.reserved if uid != seen.uid)
                left = replace(claim, reserved=users)
                yield self._set(
                    left
                    if users
                    else replace(left, allocated=None, consumed=(), places=(), admin=())
                )

    def pod_gone(self, seen: PodSeen) -> Iterator[Fact]:
        """The claims that were made for the pod go with it."""
        yield from self.pod_ended(seen)
        for entry in seen.device_claims:
            claim = self._claims.get((seen.namespace, entry.claim))
            if claim is not None and claim.pod == seen.uid:
                gone = DeviceClaimGone(seen.namespace, entry.claim)
                self.apply(gone)
                yield gone


def _whole(claim: DeviceClaimSeen) -> list[DeviceId]:
    """The devices that the claim shares with no other."""
    return [device for device, consumed in claim.uses if consumed is None]


def _made_for(bind: Bind) -> str:
    return f"{bind.name}-extended-resources"
