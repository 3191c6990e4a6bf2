"""The device claims of pods: what they require of a node, and the devices that are planned for them until the API
server shows the allocation.

The result (DeviceNeeds) contains no claim names unless pods share a claim or have a node, so that pods whose claims ask
for the same are of one pod class and are counted together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from central.model.amounts import Amounts
from central.model.device_claims import (
    EXTENDED,
    AllocatedDevice,
    ClaimAllocation,
    ClaimKey,
    DeviceClaimGone,
    DeviceClaimSeen,
    DeviceClaimSpec,
    DeviceFact,
    DeviceId,
    DeviceNeeds,
    Places,
    PodDeviceClaim,
    SameValues,
    uses_of,
)
from central.model.facts import DeviceClassSeen, GangSeen, PodSeen
from central.model.limits import CLAIM_CONSUMERS, CLAIM_DEVICES
from central.model.native_podgroup import podgroup_name
from central.model.phases import ENDED
from central.model.resources import Sums, add
from central.scheduler.device_claims.claim_users import ClaimUsers
from central.scheduler.device_claims.claims_on_nodes import ClaimsOnNodes
from central.scheduler.device_claims.device_allocation import DeviceAllocation, PodDevices
from protos.names import BY_CLASS


@dataclass(slots=True)
class DevicePlan:
    """Devices that are chosen for a claim and not written yet, and the uids of the pods that have nodes with them."""

    devices: tuple[AllocatedDevice, ...]
    places: Places
    pods: set[str] = field(default_factory=set)


class DeviceClaims:
    def __init__(self, allocation: DeviceAllocation) -> None:
        self.allocation = allocation
        self._claims: dict[ClaimKey, DeviceClaimSeen] = {}
        self.claims_on = ClaimsOnNodes()
        self._specs: dict[DeviceClaimSpec, DeviceClaimSpec] = {}
        self._users: dict[ClaimKey, ClaimUsers] = {}
        self.plans: dict[ClaimKey, DevicePlan] = {}
        # uids of pods with a node that the API server does not show yet
        self._placed: set[str] = set()
        # Claims of pods that have not ended, by uid. Where it and `served` are empty, only pods with claims are asked
        # about.
        self.used: dict[str, frozenset[ClaimKey]] = {}
        self.served = allocation.extended.class_of
        self._on_nodes: dict[str, frozenset[ClaimKey]] = {}  # ... of those with nodes
        self._same: dict[str, SameValues] = {}  # by uid, of pods of gangs

    def apply(self, fact: DeviceFact) -> list[str]:
        """Returns the uids of the pods whose needs may have changed."""
        if not isinstance(fact, DeviceClaimSeen | DeviceClaimGone):
            self.allocation.apply(fact)
            return []
        key = (fact.namespace, fact.name)
        before = self._claims.pop(key, None)
        self.claims_on.replace(before, fact if isinstance(fact, DeviceClaimSeen) else None)
        if isinstance(fact, DeviceClaimSeen):
            self._claims[key] = fact
            if fact.allocated is not None or (before is not None and before.uid != fact.uid):
                self.plans.pop(key, None)
            if self._replace_own(fact):
                self._hold(key)
                return sorted({*self.users(key), fact.pod})
        else:
            self.plans.pop(key, None)
        self._hold(key)
        return self.users(key)

    def apply_class(self, fact: DeviceClassSeen) -> list[str]:
        """Returns the uids of the pods whose needs may have changed."""
        known = None if fact.resource is None else fact
        if self.allocation.classes.get(fact.name) == known:
            return []
        self.allocation.set_class(fact.name, known)
        return sorted({uid for users in self._users.values() for uid in users.pods})

    def recorded(self) -> Iterator[DeviceFact]:
        """The facts that make up what is known, apart from DeviceClasses."""
        yield from self.allocation.pools.recorded()
        yield from self._claims.values()

    def _hold(self, key: ClaimKey) -> None:
        """Holds the devices that the claim has, or that are planned for it."""
        claim, plan = self._claims.get(key), self.plans.get(key)
        devices = None
        if claim is not None and claim.allocated is not None:
            devices = claim.uses
        elif plan is not None:
            devices = uses_of(plan.devices)
        kept = claim is not None and bool(claim.group)  # until its PodGroup is deleted
        self.allocation.set_allocated("/".join(key), devices, kept=kept)
        for uid in self.users(key) if self._same else ():
            self._set_member(uid)

    def devices_of(self, uid: str) -> set[DeviceId]:
        """Returns the devices that a pod with a node has by claims, or is to get."""
        found = set[DeviceId]()
        for key in self._on_nodes.get(uid, ()):
            claim, plan = self._claims.get(key), self.plans.get(key)
            if claim is not None and claim.allocated is not None:
                found |= {each.device for each in claim.uses}
            elif plan is not None:
                found |= {each.device for each in uses_of(plan.devices)}
        return found

    def asks_for(self, uid: str, device_class: str) -> bool:
        """Returns whether a claim of the pod asks for devices of the class, allocated or not."""
        claims = (self._claims.get(key) for key in self.used.get(uid, ()))
        return any(
            each.device_class == device_class
            for claim in claims
            if claim is not None
            for request in claim.spec.requests
            for each in request
        )

    def _set_member(self, uid: str) -> None:
        """Sets the devices that the pod has of those that must be alike in its gang."""
        if (same := self._same.get(uid)) is not None:
            own = (k for k in self._on_nodes.get(uid, ()) if len(self._users[k].pods) == 1)
            self.allocation.set_member(same, uid, map("/".join, sorted(own)))

    # --- claims for extended resources ------------------------------------------------

    def by_claim(self, seen: PodSeen) -> Amounts:
        """Returns the requests of the pod that a claim of its own serves, which Lockstep makes or has made."""
        extended = self.allocation.extended
        if not self.served:
            return ()
        if self._has_made(seen) or _own_key(seen.namespace, seen.uid) in self.plans:
            return extended.served(seen.spec)
        return (
            ()
            if seen.node or not seen.ours or seen.phase in ENDED
            else extended.by_claim(seen.spec)
        )

    def _has_made(self, seen: PodSeen) -> bool:
        """Returns whether the pod's status names such a claim. One that is gone is made again while the pod has no
        node."""
        return any(
            name == EXTENDED and (bool(seen.node) or (seen.namespace, claim) in self._claims)
            for name, claim, _ in seen.device_claims
        )

    def _make_own(self, seen: PodSeen, *, gone: bool) -> None:
        """Makes the claim that the API server has only when the pod is bound."""
        key = _own_key(seen.namespace, seen.uid)
        amounts = () if gone or self._has_made(seen) else self.by_claim(seen)
        if amounts:
            spec = self.allocation.extended.claim(amounts)
            self._claims[key] = DeviceClaimSeen(*key, "", self._interned(spec), pod=seen.uid)
        elif self._claims.pop(key, None) is not None:
            self.plans.pop(key, None)
            self._hold(key)

    def _replace_own(self, made: DeviceClaimSeen) -> bool:
        """Ends the plan of a pod's own claim if the API server has the claim now, with the planned devices."""
        key = _own_key(made.namespace, made.pod)
        plan = self.plans.get(key)
        if plan is None or made.allocated != tuple(each.id for each in plan.devices):
            return False
        del self.plans[key]
        self._hold(key)
        return True

    def _entries(self, seen: PodSeen) -> tuple[PodDeviceClaim, ...]:
        """The pod's claims, with the one for its extended resources."""
        key = _own_key(seen.namespace, seen.uid)
        if key not in self._claims:
            return seen.device_claims
        own = PodDeviceClaim(EXTENDED, key[1])
        return (*(each for each in seen.device_claims if each.name != EXTENDED), own)

    def _keys(self, seen: PodSeen) -> Iterator[ClaimKey]:
        for claim in dict.fromkeys(each.claim for each in self._entries(seen)):
            if claim:
                yield seen.namespace, claim

    # --- users ---------------------------------------------------------------------

    def users(self, key: ClaimKey) -> list[str]:
        return sorted(users.pods) if (users := self._users.get(key)) is not None else []

    def update_pod(self, seen: PodSeen | None, before: PodSeen | None) -> list[str]:
        """seen is None if the pod is gone, before if it is new. Returns the uids of the pods whose class may change:
        they share a claim from now on or no longer, or are charged for one."""
        pod = seen or before
        if pod is None:
            return []
        self._make_own(pod, gone=seen is None)
        had = self.used.pop(pod.uid, frozenset())
        has = frozenset() if seen is None or seen.phase in ENDED else frozenset(self._keys(seen))
        if has:
            self.used[pod.uid] = has
        if same := _same(pod) if has else None:
            self._same[pod.uid] = same
        if seen is None or seen.node:
            self._placed.discard(pod.uid)
        changed: set[str] = set()
        for key in had ^ has:
            users = self._users.setdefault(key, ClaimUsers())
            alone = len(users.pods) == 1
            changed |= users.add(pod.uid, pod.gang_key) if key in has else users.remove(pod.uid)
            if alone != (len(users.pods) == 1) or len(users.pods) >= CLAIM_CONSUMERS:
                changed |= users.pods.keys() - {pod.uid}
            if not users.pods:
                del self._users[key]
        if before is not None and before.gang_key != pod.gang_key:
            for key in had & has:
                changed |= self._users[key].set_gang(pod.uid, pod.gang_key)
        placed = bool(pod.node) or pod.uid in self._placed
        changed |= self._set_on_node(pod.uid, has if placed else frozenset())
        if not has:
            self._same.pop(pod.uid, None)
        return sorted(changed)

    def _set_on_node(self, uid: str, claims: frozenset[ClaimKey]) -> set[str]:
        """Returns the uids of the pods whose charge changed."""
        changed: set[str] = set()
        before = self._on_nodes.pop(uid, frozenset())
        if claims:
            self._on_nodes[uid] = claims
        for key in before ^ claims:
            self.allocation.change_users("/".join(key), 1 if key in claims else -1)
            if (users := self._users.get(key)) is not None:
                changed |= users.set_node(uid, key in claims)
        self._set_member(uid)
        return changed

    # --- charges -------------------------------------------------------------------

    def charges(self, seen: PodSeen, served: Sums) -> Amounts:
        """Returns the devices that queues count for the pod, by the resource name of their DeviceClass. A claim that
        several pods use is counted once. served: as by_claim() says"""
        sums = {**served}
        for key in dict.fromkeys(
            (seen.namespace, e.claim) for e in seen.device_claims if e.name != EXTENDED
        ):
            users, claim = self._users.get(key), self._claims.get(key)
            if users is None or claim is None or not users.is_charged(seen.uid, seen.gang_key):
                continue
            plan = self.plans.get(key)
            devices = claim.uses if plan is None else uses_of(plan.devices)
            every = len(devices) if plan or claim.allocated is not None else CLAIM_DEVICES
            add(sums, _most_by_class(claim.spec, every), 1)
        return tuple(sorted(sums.items()))

    # --- needs ---------------------------------------------------------------------

    def needs(self, seen: PodSeen) -> DeviceNeeds | None:
        """Returns what the pod's claims require, with the reason if they keep it from every node."""
        own: list[DeviceClaimSpec] = []
        shared: list[tuple[str, DeviceClaimSpec]] = []
        places: dict[object, None] = {}
        held: list[str] = []
        why = ""
        placed = bool(seen.node) or seen.uid in self._placed
        for name, claim, template in self._entries(seen):
            key = (seen.namespace, claim)
            found = self._claims.get(key) if claim else None
            if placed:
                if found is not None and (found.allocated is not None or key in self.plans):
                    held.append("/".join(key))
                continue
            if found is None:
                why = why or (
                    f"device claim {name}: ResourceClaim {claim} does not exist"
                    if claim
                    else f"device claim {name} is not made yet from ResourceClaimTemplate {template}"
                )
                continue
            if error := self._error(found, seen, template):
                why = why or f"device claim {name}: {error}"
            plan = self.plans.get(key)
            if found.allocated is not None or plan is not None:
                for terms in plan.places if plan is not None else found.places:
                    places[terms] = None
            elif key in self._users and self._users[key].pods.keys() - {seen.uid}:
                shared.append(("/".join(key), self._interned(found.spec)))
            else:
                own.append(self._interned(found.spec))
        needs = DeviceNeeds(
            tuple(sorted(own, key=repr) if len(own) > 1 else own),
            tuple(sorted(shared)),
            tuple(places),  # type: ignore[arg-type]
            tuple(sorted(held)),
            why,
            _same(seen) if own else None,
        )
        return None if needs == _NONE else needs

    def _interned(self, spec: DeviceClaimSpec) -> DeviceClaimSpec:
        if len(self._specs) > 2 * len(self._claims) + 100:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)

    def _error(self, claim: DeviceClaimSeen, seen: PodSeen, template: str) -> str:
        """Returns why the pod cannot use the claim, or the claim cannot be allocated."""
        if claim.deleting:
            return f"ResourceClaim {claim.name} is being deleted"
        ours = bool(claim.group) and seen.podgroup == claim.group
        if template and claim.pod != seen.uid and not ours:
            return f"ResourceClaim {claim.name} was made for another pod"
        users = self._users.get(claim.key)
        many = len(claim.reserved) >= CLAIM_CONSUMERS and seen.uid not in claim.reserved
        if users is not None and not seen.podgroup:  # a PodGroup may use the claim in place of them
            many |= users.is_over(seen.uid, CLAIM_CONSUMERS)
        if not ours and many:
            return f"ResourceClaim {claim.name} has {CLAIM_CONSUMERS} users, the most that Kubernetes allows"
        if claim.allocated is not None:
            return ""
        if claim.error:
            return f"ResourceClaim {claim.name}: {claim.error}"
        for alternative in (each for request in claim.spec.requests for each in request):
            if error := self._class_error(alternative.device_class, alternative.selectors):
                return f"request {alternative.name}: {error}"
        return ""

    def _class_error(self, name: str, selectors: Sequence[str]) -> str:
        known = self.allocation.classes.get(name)
        if known is None:
            return f"DeviceClass {name} does not exist"
        if known.error:
            return f"DeviceClass {name}: {known.error}"
        for expression in (*known.selectors, *selectors):
            if error := self.allocation.selectors.error(expression):
                return f"selector {expression:.100}: {error}"
        return ""

    # --- plans ----------------------------------------------------------------------

    def plan(
        self,
        seen: PodSeen,
        own: Iterable[tuple[DeviceClaimSpec, tuple[AllocatedDevice, ...]]],
        shared: dict[str, tuple[AllocatedDevice, ...]],
        row: int,
    ) -> set[str]:
        """Plans devices for the claims of a pod that is placed on the row. own: its claims' specs with their devices;
        shared: by claim, the devices that pods share. Returns the uids of the pods whose charge changed."""
        left: dict[DeviceClaimSpec, list[tuple[AllocatedDevice, ...]]] = {}
        for spec, devices in own:
            left.setdefault(spec, []).append(devices)
        self._placed.add(seen.uid)
        changed = self._set_on_node(seen.uid, self.used.get(seen.uid, frozenset()))
        for key in self._keys(seen):
            claim = self._claims.get(key)
            if claim is None or claim.allocated is not None:
                continue
            if key not in self.plans:
                common = shared.get("/".join(key))
                if common is None and not left.get(claim.spec):
                    continue
                devices = left[claim.spec].pop(0) if common is None else common
                self.plans[key] = DevicePlan(devices, self.allocation.places(devices, row))
                self._hold(key)
            self.plans[key].pods.add(seen.uid)
        return changed

    def restore_plan(self, key: ClaimKey, plan: DevicePlan) -> None:
        """Adds a plan of an earlier state, before the pods are known."""
        claim = self._claims.get(key)
        self._placed |= plan.pods
        if plan.pods and (_is_own(key) or (claim is not None and claim.allocated is None)):
            self.plans[key] = plan
            self._hold(key)

    def unplan(self, seen: PodSeen) -> list[str]:
        """The pod has no node any more. Returns the uids of the users of claims whose plans end or whose charge
        changed."""
        self._placed.discard(seen.uid)
        changed = self._set_on_node(seen.uid, frozenset())
        ended: list[ClaimKey] = []
        for key in self._keys(seen):
            if (plan := self.plans.get(key)) is not None:
                plan.pods.discard(seen.uid)
                if not plan.pods:
                    del self.plans[key]
                    self._hold(key)
                    ended.append(key)
        return sorted(changed.union(*map(self.users, ended)))

    def allocations(self, seen: PodSeen, gang: GangSeen | None) -> tuple[ClaimAllocation, ...]:
        """Returns what must be written to the pod's claims before it is bound. gang: its PodGroup; the pods of one of
        scheduling.k8s.io share the claims that it names"""
        found: list[ClaimAllocation] = []
        common = gang.device_claims if gang is not None else ()
        shared = {
            (seen.namespace, e.claim)
            for e in (seen.device_claims if common else ())
            if any(e.is_of_group(each) for each in common)
        }
        for key in self._keys(seen):
            claim, plan = self._claims.get(key), self.plans.get(key)
            group = (podgroup_name(gang.name), gang.uid) if gang and key in shared else ("", "")
            if claim is None or (not claim.unready and (group[1] or seen.uid) in claim.reserved):
                continue
            if plan is None or claim.allocated is not None:
                found.append(ClaimAllocation(claim.name, claim.uid, group=group))
            elif _is_own(key):
                served = tuple((each.name, each.device_class) for (each,) in claim.spec.requests)
                found.append(ClaimAllocation("", "", plan.devices, plan.places, served))
            else:
                devices = (plan.devices, plan.places)
                found.append(ClaimAllocation(claim.name, claim.uid, *devices, group=group))
        return tuple(found)


_NONE = DeviceNeeds()


def _most_by_class(spec: DeviceClaimSpec, every: int) -> Sums:
    """Returns the most devices of each class that the claim may get, as Kubernetes' quotas count them. every: the
    devices of a request for all that match."""
    found: Sums = {}
    for request in spec.requests:
        most: Sums = {}
        for each in request:
            name = BY_CLASS + each.device_class
            if not each.admin:
                most[name] = max(most.get(name, 0), each.count or every)
        add(found, most, 1)
    return found


def lots(
    needs: DeviceNeeds, devices: PodDevices
) -> list[tuple[DeviceClaimSpec, tuple[AllocatedDevice, ...]]]:
    """A pod's own claims with their devices; empty where none could be fitted."""
    return [] if devices is None else list(zip(needs.own, devices, strict=True))


def key_of(claim: str) -> ClaimKey:
    """The reverse of NAMESPACE/NAME."""
    namespace, _, name = claim.partition("/")
    return namespace, name


def _same(seen: PodSeen) -> SameValues | None:
    """Returns of which attribute all pods of the pod's gang get devices with equal values."""
    if not (seen.spec.same_attribute and seen.gang and seen.ours):
        return None
    return SameValues(f"{seen.namespace}/{seen.gang}", seen.spec.same_attribute)


def _own_key(namespace: str, uid: str) -> ClaimKey:
    """Returns the key of the claim for a pod's extended resources before the API server has it. No other claim has such
    a name."""
    return namespace, f"<{uid}>"


def _is_own(key: ClaimKey) -> bool:
    return key[1].startswith("<")
