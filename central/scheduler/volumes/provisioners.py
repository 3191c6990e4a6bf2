"""Where volumes can be made: storage classes, and drivers that tell how much room there is where."""

from collections.abc import Iterator

from central.model import wording
from central.model.pod_rules import NodeTerms, Requirement
from central.model.volumes import (
    CapacityGone,
    CapacitySeen,
    DriverGone,
    DriverSeen,
    StorageClassGone,
    StorageClassSeen,
)
from central.scheduler.volumes.planned import ClaimKey

NOBODY = ("", "kubernetes.io/no-provisioner")  # makes volumes
ProvisionerFact = (
    StorageClassSeen | StorageClassGone | CapacitySeen | CapacityGone | DriverSeen | DriverGone
)


class Provisioners:
    def __init__(self) -> None:
        self.classes: dict[str, StorageClassSeen] = {}
        self._room: dict[str, dict[ClaimKey, CapacitySeen]] = {}  # by class
        self._drivers: dict[str, DriverSeen] = {}

    def apply(self, fact: ProvisionerFact) -> set[str]:
        """The classes that it matters to."""
        match fact:
            case StorageClassSeen():
                self.classes[fact.name] = fact
            case StorageClassGone():
                self.classes.pop(fact.name, None)
            case CapacitySeen() | CapacityGone():
                return self._capacity(fact)
            case DriverSeen() | DriverGone():
                self._drivers.pop(fact.name, None)
                if isinstance(fact, DriverSeen):
                    self._drivers[fact.name] = fact
                return {name for name, c in self.classes.items() if c.provisioner == fact.name}
        return {fact.name}

    def _capacity(self, fact: CapacitySeen | CapacityGone) -> set[str]:
        name = (fact.namespace, fact.name)
        classes = {kind for kind, room in self._room.items() if room.pop(name, None) is not None}
        if isinstance(fact, CapacitySeen):
            self._room.setdefault(fact.storage_class, {})[name] = fact
            classes.add(fact.storage_class)
        return classes

    def places(self, storage: StorageClassSeen, size: int) -> Iterator[NodeTerms]:
        """Where a volume of the class can be made that large; all of them hold."""
        if storage.places:
            yield storage.places
        if self._tells_capacity(storage):
            yield self._roomy(storage, size)

    def refusal(self, storage: StorageClassSeen, size: int) -> str:
        """Why none can be made anywhere; empty: somewhere one can."""
        if not self._tells_capacity(storage) or self._roomy(storage, size):
            return ""
        asked = wording.amount("memory", size)
        return f"asks for {asked}, and driver {storage.provisioner} has no node with so much room"

    def _tells_capacity(self, storage: StorageClassSeen) -> bool:
        driver = self._drivers.get(storage.provisioner)
        return driver is not None and driver.tells_capacity

    def _roomy(self, storage: StorageClassSeen, size: int) -> NodeTerms:
        """Terms that only name a value of the same label are one term."""
        values: dict[str, set[str]] = {}
        terms = set()
        for room in self._room.get(storage.name, {}).values():
            if room.most < size or not room.places:
                continue
            (term,) = room.places
            if len(term) == 1 and term[0].operator == "In":
                values.setdefault(term[0].key, set()).update(term[0].values)
            else:
                terms.add(term)
        named = ((Requirement(key, "In", tuple(sorted(of))),) for key, of in sorted(values.items()))
        return (*named, *sorted(terms, key=repr))
