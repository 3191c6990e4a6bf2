"""Facts about storage, and what they come to for a pod: where its volumes can be used, and how many
its node must attach."""

from dataclasses import dataclass

from central.model.pod_rules import Expression, Labels, NodeTerms

AVAILABLE = "Available"


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """What a claim without a volume asks of the one that it gets."""

    storage_class: str
    size: int = 0  # bytes, at least
    modes: tuple[str, ...] = ()  # sorted; all of them
    block: bool = False
    selector: tuple[Expression, ...] = ()
    made: tuple[NodeTerms, ...] | None = None  # where one can be made; None: nowhere

    def takes(self, volume: "VolumeSeen") -> bool:
        """Whether the volume would do, were it free and of the class."""
        if volume.size < self.size or volume.block != self.block:
            return False
        if not set(self.modes) <= set(volume.modes):
            return False
        return not self.selector or all(e.matches(dict(volume.labels)) for e in self.selector)

    def harder(self, other: "VolumeRequest") -> bool:
        """Whatever does for it does for the other."""
        return (
            (self.block, self.selector) == (other.block, other.selector)
            and self.size >= other.size
            and set(self.modes) >= set(other.modes)
        )


@dataclass(frozen=True, slots=True)
class Volumes:
    """What a pod's claims ask of its node."""

    places: tuple[NodeTerms, ...] = ()  # all of them hold
    attach: tuple[tuple[str, int], ...] = ()  # how many volumes of which driver
    common: tuple[tuple[str, str], ...] = ()  # driver and claim, of those that other pods use too
    exclusive: tuple[str, ...] = ()  # claims that no other pod may use
    why: str = ""  # it can't go anywhere yet
    wants: tuple[tuple[VolumeRequest, int], ...] = ()  # of volumes that exist: how many like that
    shared: tuple[tuple[str, VolumeRequest], ...] = ()  # by claim: one for all the pods that use it


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
    uid: str = ""
    modes: tuple[str, ...] = ()  # sorted
    block: bool = False  # a device, not a file system
    selector: tuple[Expression, ...] = ()  # of volumes' labels


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
    storage_class: str = ""
    size: int = 0  # bytes
    modes: tuple[str, ...] = ()
    block: bool = False
    labels: Labels = ()
    phase: str = ""
    claim: tuple[str, str] | None = None  # whom it is kept for: namespace and name
    claim_uid: str = ""  # empty: whoever has that name
    deleting: bool = False

    @property
    def free(self) -> bool:
        return self.phase == AVAILABLE and self.claim is None and not self.deleting


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
