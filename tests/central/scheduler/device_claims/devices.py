"""Short words for devices, claims and pods that use them."""

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.device_claims import (
    Device,
    DeviceAttribute,
    DeviceClaimSeen,
    DeviceClaimSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceTaint,
    PodDeviceClaim,
    SliceSeen,
)
from central.model.facts import DeviceClassSeen, Fact, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

DRIVER = "gpu.example"
GPUS = DeviceClassSeen(DRIVER, "", (f'device.driver == "{DRIVER}"',))


def device(
    name: str, *taints: str, **attributes: str | int | bool | tuple[str | int | bool, ...]
) -> Device:
    """A tuple is a list of numbers."""
    kinds = {str: "string", int: "int", bool: "bool", tuple: "ints"}
    found = (DeviceAttribute(f"{DRIVER}/{k}", kinds[type(v)], v) for k, v in attributes.items())
    return Device(
        name, tuple(found), taints=tuple(DeviceTaint(each, "", "NoSchedule") for each in taints)
    )


def slice_of(node: str, *devices: Device, **other: object) -> SliceSeen:
    fields = {"name": f"s-{node}", "pool": node, "slices": 1, "generation": 1, **other}
    return SliceSeen(driver=DRIVER, node=node, devices=devices, **fields)  # type: ignore[arg-type]  # a test's shorthand


def gpus(node: str, count: int, **attributes: str | int | bool) -> SliceSeen:
    return slice_of(node, *(device(f"gpu-{i}", index=i, **attributes) for i in range(count)))


def request(
    name: str = "r", count: int = 1, *selectors: str, **other: object
) -> tuple[DeviceRequest, ...]:
    return (DeviceRequest(name, DRIVER, count, selectors, **other),)  # type: ignore[arg-type]  # a test's shorthand


def same(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(f"{DRIVER}/{attribute}", False, requests)


def distinct(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(f"{DRIVER}/{attribute}", True, requests)


def spec(
    *requests: tuple[DeviceRequest, ...], constraints: tuple[DeviceConstraint, ...] = ()
) -> DeviceClaimSpec:
    return DeviceClaimSpec(requests or (request(),), constraints)


def claim(name: str, of: DeviceClaimSpec | None = None, **other: object) -> DeviceClaimSeen:
    return DeviceClaimSeen("ns", name, f"uid-{name}", of or spec(), **other)  # type: ignore[arg-type]  # a test's shorthand


def pod(name: str, *claims: str, gang: str = "", size: int = 1, **other: object) -> PodSeen:
    entries = tuple(PodDeviceClaim(each, each) for each in claims)
    fields = {"gang": gang, "gang_min": size} if gang else {}
    return factories.pod(name, 0, **{**fields, "device_claims": entries, **other})  # type: ignore[arg-type]  # a test's shorthand


def gang(
    size: int, of: DeviceClaimSpec | None = None, name: str = "g", **other: object
) -> list[Fact]:
    """Pods with a claim of their own each."""
    claims = [claim(f"{name}-c{i}", of) for i in range(size)]
    pods = [pod(f"{name}-{i}", f"{name}-c{i}", gang=name, size=size, **other) for i in range(size)]
    return [*claims, *pods]


class Cycles:
    """A scheduler that has a cycle each second. told: the last reason by gang."""

    def __init__(self) -> None:
        self.scheduler: Scheduler = new_scheduler(factories.LEVELS)
        self.now = 0.0
        self.told: dict[str, str] = {}

    def step(self, *facts: Fact) -> dict[str, str]:
        """Returns the nodes of the pods that are bound now."""
        decisions = self.cycle(*facts)
        return {each.name: each.node for each in decisions if isinstance(each, Bind)}

    def cycle(self, *facts: Fact) -> list[Decision]:
        self.now += 1.0
        decisions = schedule_once(self.scheduler, facts, self.now)
        check_invariants(self.scheduler)
        for each in decisions:
            if isinstance(each, UpdateGangStatus):
                self.told[each.gang] = each.reason
        return decisions
