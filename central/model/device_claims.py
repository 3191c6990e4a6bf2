"""Device claims: ResourceClaims of the API group resource.k8s.io (dynamic resource allocation), and the devices that
drivers publish in ResourceSlices.

The words are those of the API: a claim has requests, a request has one or several alternatives (firstAvailable), and
an alternative selects devices of a DeviceClass. Design: docs/design/device-claims.md
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from central.model.pod_rules import NodeTerms
from protos.names import DRA_DRIVER

ClaimKey = tuple[str, str]  # namespace and name
# Of devices that Lockstep publishes: pods have it from the device plugin, or are to get it.
BY_PLUGIN = f"{DRA_DRIVER}/device-plugin"
Places = tuple[NodeTerms, ...]  # a node must meet all of them; empty: every node


CONDITION_MOST = 120  # characters
VALUE_KINDS = ("string", "int", "bool", "version")
Scalar = str | int | bool
Values = frozenset[tuple[str, Scalar]]  # of an attribute, with their kinds


class DeviceAttribute(NamedTuple):
    name: str  # with its domain: gpu.example.com/model
    kind: str  # of VALUE_KINDS; with an s: a list of them
    value: Scalar | tuple[Scalar, ...]


class CounterValue(NamedTuple):
    counters: str  # the counter set
    name: str
    amount: str  # a quantity as written


def qualified(name: str, driver: str) -> str:
    """The name of an attribute or capacity with its domain, which is the driver's by default."""
    return name if "/" in name else f"{driver}/{name}"


class DeviceTaint(NamedTuple):
    key: str
    value: str
    effect: str  # NoSchedule, NoExecute; None: only for information


class DeviceToleration(NamedTuple):
    key: str  # empty with Exists: every key
    operator: str  # Exists or Equal
    value: str
    effect: str  # empty: every effect

    def tolerates(self, taint: DeviceTaint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    @property
    def is_agents_gpu(self) -> bool:
        """Returns whether it is a GPU of one of Lockstep's agents, and no MIG slice."""
        return self.driver == DRA_DRIVER and self.device.startswith("gpu-")

    def __str__(self) -> str:
        return "/".join(self)


# Of one share of a device: its capacities, as the driver writes their names, and a quantity of each.
Consumed = tuple[tuple[str, str], ...]


class DeviceUse(NamedTuple):
    """A device that a claim has, or a share of one."""

    device: DeviceId
    consumed: Consumed | None = None  # by the share; None: the claim has the whole device


class SharedCapacity(NamedTuple):
    """The rule for what a share consumes of one capacity of its device. Quantities as written; empty: not given."""

    name: str  # as the driver writes it
    value: str
    default: str = ""  # where the request does not name the capacity; empty: all of it
    values: tuple[str, ...] = ()  # requests are rounded up to the next of them
    least: str = ""  # requests are rounded up to it, and to whole steps beyond it
    most: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    attributes: tuple[DeviceAttribute, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()  # with its domain, and a quantity as written
    taints: tuple[DeviceTaint, ...] = ()
    places: Places = ()  # of a device that no single node has
    # Of the counters that it shares with other devices of its pool.
    consumes: tuple[CounterValue, ...] = ()
    unsupported: str = ""  # why it is not allocated: the field that Lockstep does not support
    shared: tuple[SharedCapacity, ...] | None = None  # None: it is allocated as a whole
    binds_to_node: bool = False  # its allocation holds for the node that was chosen alone
    # Conditions that must be true before a pod with it is bound, and those that forbid that.
    conditions: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True, slots=True)
class SliceSeen:
    """A ResourceSlice: some or all devices of one generation of a pool."""

    name: str
    driver: str
    pool: str
    generation: int
    slices: int  # that the generation has
    node: str = ""  # whose devices they are; empty: they have places
    devices: tuple[Device, ...] = ()
    counters: tuple[CounterValue, ...] = ()  # that devices of the pool share


@dataclass(frozen=True, slots=True)
class SliceGone:
    name: str


@dataclass(frozen=True, slots=True)
class TaintRuleSeen:
    """A DeviceTaintRule: a taint on all devices of a driver, of a pool or with a name; empty: any."""

    name: str
    taint: DeviceTaint
    driver: str = ""
    pool: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class TaintRuleGone:
    name: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One alternative of a request."""

    name: str  # of the request, or request/subrequest
    device_class: str
    count: int  # 0: all devices that match
    selectors: tuple[str, ...] = ()  # CEL expressions; all of them hold
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()  # with its domain or without, and a quantity
    # By admin access: it gets devices that are in use, too, and uses none of them up.
    admin: bool = False

    @property
    def condition(self) -> str:
        """Returns what its devices meet, for a sentence: " where device.driver == ...". Empty: all of the class do."""
        least = (f"{name} >= {amount}" for name, amount in self.capacity)
        whole = " && ".join(" ".join(each.split()) for each in (*self.selectors, *least))
        cut = f"{whole[: CONDITION_MOST - 3]}..." if len(whole) > CONDITION_MOST else whole
        return f" where {cut}" if whole else ""


class DeviceConstraint(NamedTuple):
    attribute: str  # with its domain
    distinct: bool  # all devices differ in it; false: all have the same value
    requests: tuple[str, ...] = ()  # empty: all of the claim

    def covers(self, request: str) -> bool:
        """request: as in DeviceRequest.name."""
        return (
            not self.requests
            or request in self.requests
            or request.partition("/")[0] in self.requests
        )


@dataclass(frozen=True, slots=True)
class DeviceClaimSpec:
    """The requests of a claim. Equal for claims that ask for the same."""

    requests: tuple[tuple[DeviceRequest, ...], ...]  # with the alternatives of each, best first
    constraints: tuple[DeviceConstraint, ...] = ()

    @property
    def least_devices(self) -> int:
        """Returns how many devices the claim has at least. All devices that match are at least one."""
        return sum(min(each.count or 1 for each in request) for request in self.requests)


@dataclass(frozen=True, slots=True)
class DeviceClaimSeen:
    namespace: str
    name: str
    uid: str
    spec: DeviceClaimSpec
    allocated: tuple[DeviceId, ...] | None = None  # None: it is not allocated
    places: Places = ()  # nodes from which its devices can be used
    reserved: tuple[str, ...] = ()  # uids of its consumers
    pod: str = ""  # uid of the pod for which it was made from a template
    group: str = ""  # PodGroup of scheduling.k8s.io that it was made for, or that uses it
    deleting: bool = False
    # Why Lockstep cannot allocate it: a field that it does not support, or an invalid one.
    error: str = ""
    consumed: tuple[Consumed | None, ...] = ()  # by device, as in DeviceUse; empty: all are whole
    requests: tuple[str, ...] = ()  # by device, as in DeviceRequest.name
    unready: bool = False  # a pod with it is not bound yet, because of its devices' conditions
    admin: tuple[bool, ...] = ()  # by device, as in DeviceRequest; empty: no device

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """Returns what no other claim can have."""
        every = zip_longest(self.allocated or (), self.consumed, self.admin)
        return tuple(DeviceUse(device, consumed) for device, consumed, admin in every if not admin)

    @property
    def key(self) -> ClaimKey:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class DeviceClaimGone:
    namespace: str
    name: str


DeviceFact = (
    SliceSeen | SliceGone | TaintRuleSeen | TaintRuleGone | DeviceClaimSeen | DeviceClaimGone
)


EXTENDED = "extended resources"  # no valid name of an entry


class PodDeviceClaim(NamedTuple):
    """An entry of a pod's resourceClaims, or the claim that was made for its extended resources."""

    name: str  # within the pod
    claim: str  # the ResourceClaim's name; empty: it is not made yet
    template: str = ""  # from which it is made; empty: the pod names the claim

    def is_of_group(self, entry: "PodDeviceClaim") -> bool:
        """Returns whether this entry of a pod is that entry of its PodGroup, whose claim all of its pods share."""
        if self.template or entry.template:
            return (self.name, self.template) == (entry.name, entry.template)
        return self[:2] == entry[:2]


class SameValues(NamedTuple):
    """An attribute of which all pods of a gang get devices with the same values."""

    gang: str  # NAMESPACE/NAME
    attribute: str


@dataclass(frozen=True, slots=True)
class DeviceNeeds:
    """Requirements of a pod's claims on its node. They name no claim unless pods share it, so that pods whose claims
    ask for the same are of one class."""

    own: tuple[DeviceClaimSpec, ...] = ()  # claims that only this pod uses
    # NAMESPACE/NAME and spec: claims that several pods use.
    shared: tuple[tuple[str, DeviceClaimSpec], ...] = ()
    places: tuple[NodeTerms, ...] = ()  # of allocated claims
    # Allocated claims of a pod with a node; its last user frees their devices.
    held: tuple[str, ...] = ()
    why: str = ""  # why the pod can use no node
    same: SameValues | None = None  # of devices of own

    @property
    def asks(self) -> bool:
        """Returns whether devices must be allocated for the pod."""
        return bool(self.own or self.shared)


class AllocatedDevice(NamedTuple):
    request: str  # as in DeviceRequest.name
    driver: str
    pool: str
    device: str
    consumed: Consumed | None = None  # as in DeviceUse
    conditions: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # as in Device
    admin: bool = False  # as in DeviceRequest

    @property
    def id(self) -> DeviceId:
        return DeviceId(*self[1:4])

    @property
    def use(self) -> DeviceUse:
        return DeviceUse(self.id, self.consumed)


def uses_of(devices: Iterable[AllocatedDevice]) -> tuple[DeviceUse, ...]:
    """Returns what no other claim can have of the devices."""
    return tuple(each.use for each in devices if not each.admin)


class ClaimAllocation(NamedTuple):
    """Devices that are written to a claim before its pod is bound."""

    claim: str  # in the pod's namespace; empty: it is made for extended resources
    uid: str
    # None: it is allocated, and is only reserved for the pod.
    devices: tuple[AllocatedDevice, ...] = ()
    places: Places = ()  # nodes from which the devices can be used
    served: tuple[tuple[str, str], ...] = ()  # extended resources, and the DeviceClass of each
    # Name and uid of the PodGroup that uses it in place of its pods.
    group: tuple[str, str] = ("", "")
