"""Places where volumes can be provisioned: by StorageClass, and by CSIStorageCapacity for drivers that publish it."""

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

NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
ProvisionerFact = (
    StorageClassSeen | StorageClassGone | CapacitySeen | CapacityGone | DriverSeen | DriverGone
)


class Provisioners:
    def __init__(self) -> None:
        self.classes: dict[str, StorageClassSeen] = {}
        self._capacities: dict[str, dict[ClaimKey, CapacitySeen]] = {}  # by class
        self._drivers: dict[str, DriverSeen] = {}

    def apply(self, fact: ProvisionerFact) -> set[str]:
        """Returns the names of the storage classes that the fact affects."""
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
        classes = {c for c, known in self._capacities.items() if known.pop(name, None) is not None}
        if isinstance(fact, CapacitySeen):
            self._capacities.setdefault(fact.storage_class, {})[name] = fact
            classes.add(fact.storage_class)
        return classes

    def recorded(self) -> Iterator[StorageClassSeen | CapacitySeen | DriverSeen]:
        """The facts that make up what is known."""
        yield from self.classes.values()
        yield from self._drivers.values()
        for known in self._capacities.values():
            yield from known.values()

    def places(self, storage: StorageClassSeen, size: int) -> Iterator[NodeTerms]:
        """Yields the terms of nodes where a volume of the class and size can be provisioned. A node must meet all
        terms."""
        if storage.places:
            yield storage.places
        if self._publishes_capacity(storage):
            yield self._with_capacity(storage, size)

    def refusal(self, storage: StorageClassSeen, size: int) -> str:
        """Returns why no node can get such a volume; empty if one can."""
        if not self._publishes_capacity(storage) or self._with_capacity(storage, size):
            return ""
        asked = wording.amount("memory", size)
        return f"asks for {asked}, and driver {storage.provisioner} has no node with that capacity"

    def _publishes_capacity(self, storage: StorageClassSeen) -> bool:
        driver = self._drivers.get(storage.provisioner)
        return driver is not None and driver.tells_capacity

    def _with_capacity(self, storage: StorageClassSeen, size: int) -> NodeTerms:
        """Nodes on which the driver has the capacity. Terms with values of the same label become one term."""
        values: dict[str, set[str]] = {}
        terms = set()
        for capacity in self._capacities.get(storage.name, {}).values():
            if capacity.most < size or not capacity.places:
                continue
            (term,) = capacity.places
            if len(term) == 1 and term[0].operator == "In":
                values.setdefault(term[0].key, set()).update(term[0].values)
            else:
                terms.add(term)
        named = ((Requirement(key, "In", tuple(sorted(of))),) for key, of in sorted(values.items()))
        return (*named, *sorted(terms, key=repr))
