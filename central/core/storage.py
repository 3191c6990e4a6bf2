"""What a pod's volumes ask of its node: claims, the volumes they are bound to, storage classes, and how
many volumes a node attaches. Claims are told apart only as far as they matter: pods whose claims ask
for the same are of one kind."""

from collections.abc import Iterator

from central.core.facts import PodSeen
from central.core.rules import NodeTerms, Requirement
from central.core.volumes import (
    AttachLimits,
    ClaimGone,
    ClaimSeen,
    StorageClassGone,
    StorageClassSeen,
    StorageFact,
    VolumeGone,
    Volumes,
    VolumeSeen,
)

Name = tuple[str, str]  # namespace and claim

NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Storage:
    def __init__(self) -> None:
        self._claims: dict[Name, ClaimSeen] = {}
        self._volumes: dict[str, VolumeSeen] = {}
        self._classes: dict[str, StorageClassSeen] = {}
        self._users: dict[Name, set[str]] = {}  # uids of pods

    def apply(self, fact: StorageFact) -> list[str]:
        """The uids of the pods that it matters to."""
        match fact:
            case ClaimSeen():
                self._claims[(fact.namespace, fact.name)] = fact
                return self._using((fact.namespace, fact.name))
            case ClaimGone():
                self._claims.pop((fact.namespace, fact.name), None)
                return self._using((fact.namespace, fact.name))
            case VolumeSeen():
                self._volumes[fact.name] = fact
            case VolumeGone():
                self._volumes.pop(fact.name, None)
            case StorageClassSeen():
                self._classes[fact.name] = fact
            case StorageClassGone():
                self._classes.pop(fact.name, None)
            case AttachLimits():
                return []
        return [
            uid
            for name in sorted(self._users)
            if (claim := self._claims.get(name)) is not None
            and fact.name in (claim.volume, claim.storage_class)
            for uid in self._using(name)
        ]

    def _using(self, name: Name) -> list[str]:
        return sorted(self._users.get(name, ()))

    def file(self, seen: PodSeen) -> None:
        for name in _claims_of(seen):
            self._users.setdefault(name, set()).add(seen.uid)

    def unfile(self, seen: PodSeen) -> None:
        for name in _claims_of(seen):
            if uids := self._users.get(name):
                uids.discard(seen.uid)
                if not uids:
                    del self._users[name]

    def asks(self, seen: PodSeen) -> Volumes:
        """What the pod's claims ask, and why it can't go anywhere yet. What a node attaches for it
        counts where it is bound already, come what may of its claims."""
        places: list[NodeTerms] = []
        attach: dict[str, int] = {}
        exclusive: list[str] = []
        why = ""
        for name in _claims_of(seen):
            claim = self._claims.get(name)
            if claim is None:
                why = why or f"claim {name[1]} does not exist in namespace {name[0]}"
                continue
            if wrong := self._wrong(claim):
                why = why or f"claim {name[1]} {wrong}"
            places += self._places(claim)
            if driver := self._driver(claim):
                attach[driver] = attach.get(driver, 0) + 1
            if claim.one_pod:
                exclusive.append("/".join(name))
        return Volumes(
            tuple(dict.fromkeys(places)), tuple(sorted(attach.items())), tuple(exclusive), why
        )

    def _wrong(self, claim: ClaimSeen) -> str:
        if claim.deleting:
            return "is being deleted"
        if claim.lost:
            return "has lost its volume"
        if claim.bound:
            gone = claim.volume not in self._volumes
            return f"is bound to volume {claim.volume}, which does not exist" if gone else ""
        storage = self._classes.get(claim.storage_class)
        if storage is None or not storage.waits or claim.volume:
            return "is not bound to a volume yet"
        if storage.provisioner == NO_PROVISIONER:
            return (
                f"is not bound to a volume yet, and class {storage.name} makes none: choosing among "
                "volumes that exist is not supported"
            )
        return ""

    def _places(self, claim: ClaimSeen) -> list[NodeTerms]:
        if claim.bound:
            volume = self._volumes.get(claim.volume)
            return list(volume.places) if volume is not None else []
        storage = self._classes.get(claim.storage_class)
        places = [storage.places] if storage is not None and storage.places else []
        if claim.selected_node:
            chosen = Requirement("metadata.name", "In", (claim.selected_node,), field=True)
            places.append(((chosen,),))
        return places

    def _driver(self, claim: ClaimSeen) -> str:
        volume = self._volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return volume.driver
        storage = self._classes.get(claim.storage_class)
        return storage.provisioner if storage is not None else ""

    def unbound(self, seen: PodSeen) -> tuple[str, ...]:
        """Its claims whose volumes are made once a node is chosen."""
        return tuple(
            name[1]
            for name in _claims_of(seen)
            if (claim := self._claims.get(name)) is not None and not claim.bound
        )


def _claims_of(seen: PodSeen) -> Iterator[Name]:
    for claim in dict.fromkeys(seen.claims):
        yield seen.namespace, claim
