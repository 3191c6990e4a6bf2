"""Facts about storage, and what they come to for a pod: where its volumes can be used, and how many
its node must attach."""

from dataclasses import dataclass

from central.core.filters.rules import NodeTerms


@dataclass(frozen=True, slots=True)
class Volumes:
    """What a pod's claims ask of its node."""

    places: tuple[NodeTerms, ...] = ()  # all of them hold
    attach: tuple[tuple[str, int], ...] = ()  # how many volumes of which driver
    exclusive: tuple[str, ...] = ()  # claims that no other pod may use
    why: str = ""  # it can't go anywhere yet


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str = ""
    bound: bool = False  # for good: both sides know
    lost: bool = False
    deleting: bool = False
    storage_class: str = ""
    selected_node: str = ""  # where its volume is being made
    one_pod: bool = False  # ReadWriteOncePod
    size: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class ClaimGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A PersistentVolume."""

    name: str
    places: tuple[NodeTerms, ...] = ()
    driver: str = ""  # CSI


@dataclass(frozen=True, slots=True)
class VolumeGone:
    name: str


@dataclass(frozen=True, slots=True)
class StorageClassSeen:
    name: str
    provisioner: str = ""
    waits: bool = False  # WaitForFirstConsumer
    places: NodeTerms = ()  # allowedTopologies; none: anywhere


@dataclass(frozen=True, slots=True)
class StorageClassGone:
    name: str


@dataclass(frozen=True, slots=True)
class CapacitySeen:
    """A CSIStorageCapacity: how large a volume of the class can be made on which nodes."""

    namespace: str
    name: str
    storage_class: str = ""
    places: NodeTerms = ()  # none: on no node
    most: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class CapacityGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class DriverSeen:
    """A CSIDriver."""

    name: str
    tells_capacity: bool = False  # no volume is made where it does not say that there is room


@dataclass(frozen=True, slots=True)
class DriverGone:
    name: str


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """A CSINode: how many volumes of which driver the node can attach; none: nobody says."""

    node: str
    limits: tuple[tuple[str, int], ...] = ()


StorageFact = (
    ClaimSeen
    | ClaimGone
    | VolumeSeen
    | VolumeGone
    | StorageClassSeen
    | StorageClassGone
    | CapacitySeen
    | CapacityGone
    | DriverSeen
    | DriverGone
    | AttachLimits
)
