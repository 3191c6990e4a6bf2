"""Requirements of a pod's PersistentVolumeClaims on its node: where their volumes are reachable or can be provisioned,
and how many volumes the node must attach.

The result (Volumes) contains no claim names unless pods share a claim, so that pods whose claims ask for the
same are of one pod class and are counted together."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from central.model.facts import PodSeen
from central.model.pod_rules import NodeTerms, Requirement
from central.model.volumes import (
    AttachLimits,
    CapacityGone,
    CapacitySeen,
    ClaimGone,
    ClaimSeen,
    StorageFact,
    VolumeGone,
    VolumeRequest,
    Volumes,
    VolumeSeen,
)
from central.scheduler.quarantine import Quarantine
from central.scheduler.volumes.free_volumes import FreeVolumes
from central.scheduler.volumes.matching import MAX_UNLIKE
from central.scheduler.volumes.planned import ClaimKey, PlannedVolumes
from central.scheduler.volumes.provisioners import NO_PROVISIONER, Provisioners

CLAIM = "PersistentVolumeClaim"


@dataclass(slots=True)
class _Requirements:
    """The requirements of all claims of one pod: the fields of Volumes."""

    places: list[NodeTerms] = field(default_factory=list)
    attach: Counter[str] = field(default_factory=Counter)
    wants: Counter[VolumeRequest] = field(default_factory=Counter)
    exclusive: list[str] = field(default_factory=list)
    common: list[tuple[str, str]] = field(default_factory=list)
    shared: list[tuple[str, VolumeRequest]] = field(default_factory=list)
    why: str = ""

    def refuse(self, why: str) -> None:
        """The first reason is kept."""
        self.why = self.why or why

    def bound_unlike(self) -> None:
        """More unlike requests of one storage class than the matching of volumes takes are a reason to wait."""
        unlike = {*self.wants, *(want for _, want in self.shared)}
        classes = Counter(want.storage_class for want in unlike)
        if classes and max(classes.values()) > MAX_UNLIKE:
            self.refuse(
                f"its claims make more than {MAX_UNLIKE} different requests of one storage class"
            )
            self.wants.clear()
            self.shared.clear()

    def volumes(self) -> Volumes:
        return Volumes(
            tuple(dict.fromkeys(self.places)),
            tuple(sorted(self.attach.items())),
            tuple(sorted(self.common)),
            tuple(self.exclusive),
            self.why,
            tuple(sorted(self.wants.items(), key=repr)),
            tuple(self.shared),
        )


class VolumeClaims:
    def __init__(self, free: FreeVolumes, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self._free = free
        self.plans = PlannedVolumes(free)
        self._claims: dict[ClaimKey, ClaimSeen] = {}
        self._naming: dict[str, set[ClaimKey]] = {}  # by name of their volume and storage class
        self._volumes: dict[str, VolumeSeen] = {}
        self._provisioners = Provisioners()
        self._users: dict[ClaimKey, set[str]] = {}  # uids of pods

    def apply(self, fact: StorageFact) -> list[str]:
        """Returns the uids of the pods whose requirements may have changed."""
        match fact:
            case ClaimSeen() | ClaimGone():
                return self._claim(fact)
            case VolumeSeen() | VolumeGone():
                return self._volume(fact)
            case CapacitySeen() | CapacityGone():
                return self._users_of(self._provisioners.apply(fact), lambda claim: not claim.bound)
            case AttachLimits():
                return []
            case _:
                return self._users_of(self._provisioners.apply(fact))

    def _claim(self, fact: ClaimSeen | ClaimGone) -> list[str]:
        name = (fact.namespace, fact.name)
        if (before := self._claims.pop(name, None)) is not None:
            for named in {before.volume, before.storage_class}:
                self._naming[named].discard(name)
                if not self._naming[named]:
                    del self._naming[named]
        bound = [
            each.volume for each in (before, fact) if isinstance(each, ClaimSeen) and each.bound
        ]
        if isinstance(fact, ClaimSeen):
            self._claims[name] = fact
            for named in (fact.volume, fact.storage_class):
                self._naming.setdefault(named, set()).add(name)
            if fact.bound:
                self.plans.end(name)
        uids = self._using(name)
        for volume in dict.fromkeys(bound):
            if (known := self._volumes.get(volume)) is not None:
                uids += self._list([known.storage_class], known)
        return list(dict.fromkeys(uids))

    def _volume(self, fact: VolumeSeen | VolumeGone) -> list[str]:
        before = self._volumes.pop(fact.name, None)
        after = fact if isinstance(fact, VolumeSeen) else None
        if after is not None:
            self._volumes[fact.name] = after
        classes = {volume.storage_class for volume in (before, after) if volume is not None}
        turned = self._list(classes, after or fact)
        claims = self.plans.set_claim_ref(fact.name, after.claim if after is not None else None)
        uids = self._users_of([fact.name]) + [uid for name in claims for uid in self._using(name)]
        return list(dict.fromkeys(uids + turned))

    def _list(self, classes: Collection[str], volume: VolumeSeen | VolumeGone) -> list[str]:
        """Lists the volume as free if it is, and no claim is known to be bound to it: the API server may show the claim
        before the volume. classes: those that the volume has or had. Returns the uids of pods whose claims may get a
        volume of these classes only now, or no longer."""
        had = {name: self._free.has(name) for name in classes}
        if isinstance(volume, VolumeSeen) and volume.free and not self._is_bound(volume.name):
            self._free.put(volume)
        else:
            self._free.drop(volume.name)
        turned = [name for name in classes if had[name] != self._free.has(name)]
        return self._users_of(turned, lambda claim: not claim.bound) if turned else []

    def _is_bound(self, volume: str) -> bool:
        claims = (self._claims[name] for name in self._naming.get(volume, ()))
        return any(claim.bound and claim.volume == volume for claim in claims)

    def _users_of(
        self, named: Iterable[str], only: Callable[[ClaimSeen], bool] = lambda _: True
    ) -> list[str]:
        """The pods whose claims name one of these volumes or storage classes."""
        claims = {claim for name in named for claim in self._naming.get(name, ())}
        return [
            uid
            for claim in sorted(claims & self._users.keys())
            if only(self._claims[claim])
            for uid in self._using(claim)
        ]

    def recorded(self) -> Iterator[StorageFact]:
        """The facts that make up what is known."""
        yield from self._provisioners.recorded()
        yield from self._volumes.values()
        yield from self._claims.values()

    def users(self, claim: str) -> list[str]:
        """The uids of the pods that use the claim, which is named as in Volumes.shared."""
        namespace, _, name = claim.partition("/")
        return self._using((namespace, name))

    def _using(self, name: ClaimKey) -> list[str]:
        return sorted(self._users.get(name, ()))

    def add_pod(self, seen: PodSeen) -> list[str]:
        """Counts the pod as a user of its claims. Returns the uids of pods that no longer have a claim to
        themselves, so that their class changes."""
        others: list[str] = []
        for name in _claims_of(seen):
            users = self._users.setdefault(name, set())
            if len(users) == 1:
                others += users
            users.add(seen.uid)
        return [uid for uid in others if uid != seen.uid]

    def remove_pod(self, seen: PodSeen) -> list[str]:
        """The reverse. Returns the uids of pods that now have a claim to themselves."""
        others: list[str] = []
        for name in _claims_of(seen):
            if uids := self._users.get(name):
                uids.discard(seen.uid)
                if len(uids) == 1:
                    others += uids
                if not uids:
                    del self._users[name]
        return others

    def requirements(self, seen: PodSeen) -> Volumes:
        """Returns what the pod's claims require, with the reason if they keep it from every node. Attached volumes are
        counted for pods that are bound, even if a claim is invalid."""
        found = _Requirements()
        for name in _claims_of(seen):
            claim = self._claims.get(name)
            if claim is None:
                absence = self._quarantine.absence(CLAIM, name[1], name[0])
                found.refuse(f"claim {name[1]} {absence}")
            else:
                self._add(found, name, claim, seen)
        found.bound_unlike()
        return found.volumes()

    def _add(self, found: _Requirements, name: ClaimKey, claim: ClaimSeen, seen: PodSeen) -> None:
        called, others = "/".join(name), self._users.get(name, set()) - {seen.uid}
        if error := self._error(name, claim):
            found.refuse(f"claim {name[1]} {error}")
        want = self._want(name, claim)
        if want is None:
            found.places += self._places(name, claim)
        elif seen.node:
            pass  # it is bound; the scheduler that bound it takes care of its volumes
        elif others:
            found.shared.append((called, want))
        else:
            found.wants[want] += 1
        if driver := self._driver(name, claim):
            if others:
                found.common.append((driver, called))
            else:
                found.attach[driver] += 1
        if claim.one_pod:
            found.exclusive.append(called)

    def _error(self, name: ClaimKey, claim: ClaimSeen) -> str:
        if claim.deleting:
            return "is being deleted"
        if claim.lost:
            return "has lost its volume"
        if claim.bound:
            gone = claim.volume not in self._volumes
            return f"is bound to volume {claim.volume}, which does not exist" if gone else ""
        storage = self._provisioners.classes.get(claim.storage_class)
        if storage is None or not storage.waits or claim.volume:
            return "is not bound to a volume yet"
        if self._chosen(name, claim) is not None or self._want(name, claim) is not None:
            return ""
        if storage.provisioner in NO_PROVISIONER:
            return (
                f"waits for a volume on node {claim.selected_node}, and class {storage.name} "
                "has no provisioner"
            )
        return self._provisioners.refusal(storage, claim.size)

    def _chosen(self, name: ClaimKey, claim: ClaimSeen) -> str | None:
        """The volume that the unbound claim will get; empty: it is provisioned; None: not known yet."""
        if (planned := self.plans.volume(name)) is not None:
            return planned
        for candidate in self.plans.naming(name):
            volume = self._volumes[candidate]
            enough = volume.size >= claim.size and volume.block == claim.block
            if enough and volume.claim_uid in ("", claim.uid) and not volume.deleting:
                return candidate
        return None

    def _want(self, name: ClaimKey, claim: ClaimSeen) -> VolumeRequest | None:
        """The request of a claim that may get an existing volume; None for other claims."""
        if claim.bound or claim.volume or claim.selected_node or claim.lost:
            return None
        storage = self._provisioners.classes.get(claim.storage_class)
        if storage is None or not storage.waits or self._chosen(name, claim) is not None:
            return None
        provisioned_on = None
        if storage.provisioner not in NO_PROVISIONER:
            if not self._free.has(storage.name):
                return None
            provisioned_on = tuple(self._provisioners.places(storage, claim.size))
        return VolumeRequest(
            storage.name, claim.size, claim.modes, claim.block, claim.selector, provisioned_on
        )

    def _places(self, name: ClaimKey, claim: ClaimSeen) -> list[NodeTerms]:
        chosen = claim.volume if claim.bound else self._chosen(name, claim)
        if chosen is not None:
            volume = self._volumes.get(chosen)
            return list(volume.places) if volume is not None else []
        storage = self._provisioners.classes.get(claim.storage_class)
        places = list(self._provisioners.places(storage, claim.size)) if storage is not None else []
        if claim.selected_node:
            node = Requirement("metadata.name", "In", (claim.selected_node,), field=True)
            places.append(((node,),))
        return places

    def _driver(self, name: ClaimKey, claim: ClaimSeen) -> str:
        chosen = claim.volume or self._chosen(name, claim)
        volume = self._volumes.get(chosen) if chosen else None
        if volume is not None:
            return volume.driver
        storage = self._provisioners.classes.get(claim.storage_class)
        return storage.provisioner if storage is not None else ""

    def unbound(self, seen: PodSeen) -> tuple[tuple[str, str], ...]:
        """The pod's unbound claims, each with the volume that it gets; empty: it is provisioned."""
        return tuple(
            (name[1], self._chosen(name, claim) or "")
            for name in _claims_of(seen)
            if (claim := self._claims.get(name)) is not None and not claim.bound
        )

    def plan(
        self, seen: PodSeen, own: Iterable[tuple[VolumeRequest, str]], shared: dict[str, str]
    ) -> None:
        """Plans the volumes of a placed pod for its claims. own: its requests with their volumes;
        shared: by claim, the volumes that it shares with other pods."""
        left: dict[VolumeRequest, list[str]] = {}
        for want, volume in own:
            left.setdefault(want, []).append(volume)
        for name in _claims_of(seen):
            if (claim := self._claims.get(name)) is None:
                continue
            wanted = self._want(name, claim)
            if "/".join(name) in shared:
                self.plans.add(name, seen.uid, shared["/".join(name)])
            elif wanted is not None and left.get(wanted):
                self.plans.add(name, seen.uid, left[wanted].pop(0))
            elif self.plans.volume(name) is not None:
                self.plans.add(name, seen.uid, "")

    def unplan(self, seen: PodSeen) -> list[str]:
        """The pod has no node any more. Returns the uids of the users of claims whose plans end."""
        freed = self.plans.remove_pod(seen.uid, _claims_of(seen))
        return [uid for name in freed for uid in self._using(name)]


def _claims_of(seen: PodSeen) -> Iterator[ClaimKey]:
    for claim in dict.fromkeys(seen.claims):
        yield seen.namespace, claim
