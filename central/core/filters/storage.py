"""What a pod's volumes ask of its node: claims, the volumes they are bound to, storage classes, and how
many volumes a node attaches. Claims are told apart only as far as they matter: pods whose claims ask
for the same are of one kind."""

from collections.abc import Callable, Iterator

from central.core.facts import PodSeen
from central.core.filters.rules import NodeTerms, Requirement
from central.core.filters.volumes import (
    AttachLimits,
    CapacityGone,
    CapacitySeen,
    ClaimGone,
    ClaimSeen,
    DriverGone,
    DriverSeen,
    StorageClassGone,
    StorageClassSeen,
    StorageFact,
    VolumeGone,
    Volumes,
    VolumeSeen,
)
from central.core.saying import words

Name = tuple[str, str]  # namespace and claim

NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Storage:
    def __init__(self) -> None:
        self._claims: dict[Name, ClaimSeen] = {}
        self._volumes: dict[str, VolumeSeen] = {}
        self._classes: dict[str, StorageClassSeen] = {}
        self._users: dict[Name, set[str]] = {}  # uids of pods
        self._room: dict[str, dict[Name, CapacitySeen]] = {}  # by class
        self._drivers: dict[str, DriverSeen] = {}

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
            case CapacitySeen() | CapacityGone():
                return self._capacity(fact)
            case DriverSeen() | DriverGone():
                self._drivers.pop(fact.name, None)
                if isinstance(fact, DriverSeen):
                    self._drivers[fact.name] = fact
                made_by = {name for name, c in self._classes.items() if c.provisioner == fact.name}
                return self._concerned(lambda claim: claim.storage_class in made_by)
            case AttachLimits():
                return []
        return self._concerned(lambda claim: fact.name in (claim.volume, claim.storage_class))

    def _capacity(self, fact: CapacitySeen | CapacityGone) -> list[str]:
        name = (fact.namespace, fact.name)
        classes = {kind for kind, room in self._room.items() if room.pop(name, None) is not None}
        if isinstance(fact, CapacitySeen):
            self._room.setdefault(fact.storage_class, {})[name] = fact
            classes.add(fact.storage_class)
        return self._concerned(lambda claim: not claim.bound and claim.storage_class in classes)

    def _concerned(self, concerns: Callable[[ClaimSeen], bool]) -> list[str]:
        return [
            uid
            for name in sorted(self._users)
            if (claim := self._claims.get(name)) is not None and concerns(claim)
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
        if self._tells_capacity(storage) and not self._roomy(claim):
            size = words.amount("memory", claim.size)
            return (
                f"asks for {size}, and driver {storage.provisioner} has no node with so much room"
            )
        return ""

    def _tells_capacity(self, storage: StorageClassSeen) -> bool:
        driver = self._drivers.get(storage.provisioner)
        return driver is not None and driver.tells_capacity

    def _roomy(self, claim: ClaimSeen) -> NodeTerms:
        """Where a volume that large can be made. Terms that only name a value of the same label are
        one term."""
        values: dict[str, set[str]] = {}
        terms = set()
        for room in self._room.get(claim.storage_class, {}).values():
            if room.most < claim.size or not room.places:
                continue
            (term,) = room.places
            if len(term) == 1 and term[0].operator == "In":
                values.setdefault(term[0].key, set()).update(term[0].values)
            else:
                terms.add(term)
        named = ((Requirement(key, "In", tuple(sorted(of))),) for key, of in sorted(values.items()))
        return (*named, *sorted(terms, key=repr))

    def _places(self, claim: ClaimSeen) -> list[NodeTerms]:
        if claim.bound:
            volume = self._volumes.get(claim.volume)
            return list(volume.places) if volume is not None else []
        storage = self._classes.get(claim.storage_class)
        places = [storage.places] if storage is not None and storage.places else []
        if storage is not None and self._tells_capacity(storage):
            places.append(self._roomy(claim))
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
