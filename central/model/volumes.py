"""Facts about storage objects, and what a pod's claims require of its node as a result."""

from dataclasses import dataclass

from central.model.pod_rules import Expression, Labels, NodeTerms

AVAILABLE = "Available"


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """The requirements of an unbound claim for its volume."""

    storage_class: str
    size: int = 0  # bytes, at least
    modes: tuple[str, ...] = ()  # sorted; all of them
    block: bool = False
    selector: tuple[Expression, ...] = ()
    made: tuple[NodeTerms, ...] | None = None  # where it can be provisioned; None: nowhere

    def takes(self, volume: "VolumeSeen") -> bool:
        """Returns whether the volume satisfies the request, apart from its class and whether it is free."""
        if volume.size < self.size or volume.block != self.block:
            return False
        if not set(self.modes) <= set(volume.modes):
            return False
        return not self.selector or all(e.matches(dict(volume.labels)) for e in self.selector)

    def harder(self, other: "VolumeRequest") -> bool:
        """Returns whether every volume that satisfies this request satisfies the other."""
        return (
            (self.block, self.selector) == (other.block, other.selector)
            and self.size >= other.size
            and set(self.modes) >= set(other.modes)
        )


@dataclass(frozen=True, slots=True)
class Volumes:
    """The requirements of a pod's claims for its node."""

    places: tuple[NodeTerms, ...] = ()  # the node must meet all of them
    attach: tuple[tuple[str, int], ...] = ()  # number of volumes by CSI driver
    common: tuple[tuple[str, str], ...] = ()  # (driver, claim) of claims that other pods use too
    exclusive: tuple[str, ...] = ()  # claims that no other pod may use
    why: str = ""  # why no node can run the pod yet
    # requests for existing volumes, with their number
    wants: tuple[tuple[VolumeRequest, int], ...] = ()
    # by claim: one volume for all pods that use it
    shared: tuple[tuple[str, VolumeRequest], ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str = ""
    bound: bool = False  # claim and volume name each other
    lost: bool = False
    deleting: bool = False
    storage_class: str = ""
    selected_node: str = ""  # where its volume is being provisioned
    one_pod: bool = False  # ReadWriteOncePod
    size: int = 0  # bytes
    uid: str = ""
    modes: tuple[str, ...] = ()  # sorted
    block: bool = False  # volumeMode Block
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
    claim: tuple[str, str] | None = None  # claimRef: namespace and name
    claim_uid: str = ""  # empty: any claim with that name
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
    places: NodeTerms = ()  # allowedTopologies; empty: anywhere


@dataclass(frozen=True, slots=True)
class StorageClassGone:
    name: str


@dataclass(frozen=True, slots=True)
class CapacitySeen:
    """A CSIStorageCapacity: the largest volume of the class that can be provisioned on some nodes."""

    namespace: str
    name: str
    storage_class: str = ""
    places: NodeTerms = ()  # empty: on no node
    most: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class CapacityGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class DriverSeen:
    """A CSIDriver."""

    name: str
    tells_capacity: bool = False  # volumes need a CSIStorageCapacity


@dataclass(frozen=True, slots=True)
class DriverGone:
    name: str


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """A CSINode: how many volumes of each driver the node can attach. A driver without an entry has no limit."""

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
