"""Devices of claims in queues: counted like GPUs, once for each claim."""

from dataclasses import replace
from fractions import Fraction

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode import policy_decoder
from central.model.decisions import Bind, Decision, Evict
from central.model.defaults import USAGE_HALF_LIFE_S
from central.model.device_claims import CounterValue, DeviceClaimGone, DeviceId, DeviceUse
from central.model.facts import DeviceClassSeen, Fact, PodGone, PodSpec
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.cycle import schedule_once
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from central.scheduler.preemption import harm
from central.scheduler.rebuild import rebuild
from central.scheduler.scheduler import Scheduler
from protos.names import BY_CLASS, GPU
from tests.central import factories
from tests.central.kube import api_fixtures
from tests.central.scheduler.device_claims import devices
from tests.central.scheduler.device_claims.devices import DRIVER, claim, gpus, pod, spec
from tests.central.scheduler.invariants import check_invariants

COUNTED = BY_CLASS + DRIVER


def queue(name: str, **fields: object) -> Fact:
    return policy_decoder.decode_queue(api_fixtures.queue(name, **fields))


class Cluster:
    """One node with eight devices of claims, which count as a GPU each."""

    def __init__(
        self,
        *facts: Fact,
        worth: Fraction = Fraction(1),
        plugin: int = 0,
        half_life_s: float = USAGE_HALF_LIFE_S,
    ) -> None:
        self.scheduler: Scheduler = new_scheduler(
            factories.LEVELS, half_life_s=half_life_s, mig_fractions={COUNTED: worth}
        )
        self.now = 0.0
        nodes: list[Fact] = [factories.node("n", gpus=plugin), gpus("n", 8)]
        self.bound = self.step(devices.GPUS, *nodes, *facts)

    def cycle(self, *facts: Fact) -> list[Decision]:
        self.now += 1.0
        decisions = schedule_once(self.scheduler, facts, self.now)
        check_invariants(self.scheduler)
        return decisions

    def step(self, *facts: Fact) -> set[str]:
        """The names of the pods that are bound now."""
        return {each.name for each in self.cycle(*facts) if isinstance(each, Bind)}

    def used(self, name: str) -> float:
        """The GPUs that a queue uses."""
        return self.scheduler.queues.by_name[name].used.get(GPU_EQUIVALENTS, 0) / GPU_UNITS

    def total(self) -> float:
        return self.scheduler.queues.total.get(GPU_EQUIVALENTS, 0) / GPU_UNITS

    def is_rebuilt_alike(self) -> None:
        before = self._all_used()
        rebuild(self.scheduler)
        self.cycle()
        assert self._all_used() == before

    def _all_used(self) -> dict[str, dict[str, int]]:
        return {each.name: {**each.used} for each in self.scheduler.queues.root}


def singles(count: int, name: str = "g", size: int = 1) -> list[Fact]:
    of = spec(devices.request(count=size))
    claims = [claim(f"{name}{i}", of) for i in range(count)]
    return [*claims, *(pod(f"{name}{i}", f"{name}{i}", queue="a") for i in range(count))]


@pytest.mark.parametrize("limit", [{GPU: 3}, {COUNTED: 3}])
def test_a_limit_holds_for_devices_of_claims(limit: dict[str, int]) -> None:
    cluster = Cluster(queue("a", capability=limit), *singles(5))
    assert len(cluster.bound) == 3
    assert cluster.used("a") == 3
    cluster.is_rebuilt_alike()


def test_claims_and_gpus_of_a_device_plugin_share_one_limit() -> None:
    plain = [factories.pod(f"p{i}", 1, queue="a", created=-1.0) for i in range(2)]
    cluster = Cluster(queue("a", capability={GPU: 3}), *singles(5), *plain, plugin=4)
    assert cluster.bound >= {"p0", "p1"}
    assert len(cluster.bound) == 3
    assert cluster.total() == 12


def test_a_part_of_a_gpu_counts_as_one() -> None:
    cluster = Cluster(queue("a", capability={GPU: 1}), *singles(8), worth=Fraction(1, 4))
    assert len(cluster.bound) == 4
    assert cluster.total() == 2


def test_a_gpu_is_worth_its_most_valuable_part_less_what_is_in_use() -> None:
    """A GPU as a whole or as two halves."""
    allocation = DeviceAllocation([])
    half = DeviceClassSeen("half", "", (f'device.attributes["{DRIVER}"].size == "half"',))
    whole = replace(half, name="whole", selectors=(half.selectors[0].replace("half", "whole"),))
    for one in (half, whole):
        allocation.set_class(one.name, one)
    sizes = {"w": ("whole", "2"), "h0": ("half", "1"), "h1": ("half", "1")}
    made = [
        replace(devices.device(name, size=size), consumes=(CounterValue("gpu", "memory", amount),))
        for name, (size, amount) in sizes.items()
    ]
    counters = (CounterValue("gpu", "memory", "2"),)
    allocation.apply(devices.slice_of("n", *made, devices.device("x"), counters=counters))
    units = {"whole": 10, "half": 5}
    assert allocation.free_worth(units, ()) == 10
    allocation.set_allocated("c", (DeviceUse(DeviceId(DRIVER, "n", "h0")),))
    assert allocation.free_worth(units, ()) == 5
    allocation.set_allocated("d", (DeviceUse(DeviceId(DRIVER, "n", "h1")),))
    assert allocation.free_worth(units, ()) == 0


def test_a_class_that_is_worth_nothing_is_not_counted() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        devices.GPUS,
        factories.node("n", gpus=0),
        gpus("n", 8),
        queue("a", capability={GPU: 0}),
    ]
    decisions = schedule_once(scheduler, [*facts, *singles(5)], 0.0)
    assert sum(isinstance(each, Bind) for each in decisions) == 5


def test_a_claim_of_a_gang_is_counted_once() -> None:
    shared = claim("all", spec(devices.request(count=2)))
    pods = [pod(f"m{i}", "all", gang="m", size=4, queue="a") for i in range(4)]
    cluster = Cluster(queue("a", capability={GPU: 2}), shared, *pods)
    assert cluster.bound == {"m0", "m1", "m2", "m3"}
    assert cluster.used("a") == 2
    for gone in range(4):
        assert cluster.used("a") == 2
        cluster.is_rebuilt_alike()
        cluster.step(PodGone(f"uid-m{gone}"))
    assert cluster.used("a") == 0


def test_each_waiting_gang_needs_room_for_a_claim_that_it_shares() -> None:
    """Else a gang in another queue, which never starts, would hide the devices."""
    shared = claim("all", spec(devices.request(count=2)))
    decoy = pod("a-decoy", "all", queue="b", gated=True)
    one = pod("m", "all", queue="a")
    queues = [queue("a", capability={GPU: 1}), queue("b", capability={GPU: 8})]
    cluster = Cluster(*queues, shared, decoy, one)
    assert not cluster.bound
    cluster.step(queue("a", capability={GPU: 2}))
    assert (cluster.used("a"), cluster.used("b")) == (2, 0)
    cluster.is_rebuilt_alike()


def test_a_second_pod_with_a_claim_in_use_needs_no_more_devices() -> None:
    shared = claim("all", spec(devices.request(count=2)))
    cluster = Cluster(queue("a", capability={GPU: 2}), shared, pod("m0", "all", queue="a"))
    assert cluster.bound == {"m0"}
    assert cluster.step(pod("m1", "all", queue="a")) == {"m1"}
    assert cluster.used("a") == 2


def test_a_prioritized_list_counts_as_the_most_that_it_may_get() -> None:
    one, two = devices.request("r/one", 1)[0], devices.request("r/two", 3)[0]
    cluster = Cluster(
        queue("a", capability={GPU: 2}), claim("c", spec((one, two))), pod("p", "c", queue="a")
    )
    assert not cluster.bound
    assert cluster.step(queue("a", capability={GPU: 3})) == {"p"}


def test_all_devices_count_as_those_that_were_allocated() -> None:
    every = claim("c", spec(devices.request(count=0)))
    cluster = Cluster(queue("a", capability={GPU: 31}), every, pod("p", "c", queue="a"))
    assert not cluster.bound
    assert cluster.step(queue("a", capability={GPU: 32})) == {"p"}
    assert cluster.used("a") == 8


def test_a_fair_share_of_devices_is_reclaimed() -> None:
    cluster = Cluster(queue("a"), queue("b"), *singles(8), half_life_s=0.0)
    assert len(cluster.bound) == 8
    cluster.now += 10_000
    claims = [claim(f"b{i}") for i in range(4)]
    late = [pod(f"b{i}", f"b{i}", queue="b", created=cluster.now) for i in range(4)]
    evicted = [each for each in cluster.cycle(*claims, *late) if isinstance(each, Evict)]
    assert len(evicted) == 4


def test_devices_of_a_node_that_is_cordoned_are_not_shared_out() -> None:
    cluster = Cluster(queue("a"))
    assert cluster.total() == 8
    cluster.step(factories.node("n", gpus=0, unschedulable=True))
    assert cluster.total() == 0
    cluster.step(factories.node("n", gpus=0), gpus("n", 4))
    assert cluster.total() == 4
    cluster.step(DeviceClassSeen(DRIVER, None))
    assert cluster.total() == 0


def test_tainted_and_unsupported_devices_are_not_shared_out() -> None:
    cluster = Cluster(queue("a"))
    there = [devices.device("good"), devices.device("bad", "xid")]
    there.append(replace(devices.device("part"), unsupported="spec.devices.consumesCounters"))
    cluster.step(devices.slice_of("n", *there))
    assert cluster.total() == 1


def test_a_pod_is_moved_for_a_claim_of_two_devices() -> None:
    """Each node has one free device of two."""
    facts: list[Fact] = [factories.node("m", gpus=0), gpus("m", 2), gpus("n", 2)]
    for node in "mn":
        given = (DeviceId(DRIVER, node, "gpu-0"),)
        facts.append(claim(node, allocated=given, reserved=(f"uid-{node}",)))
        facts.append(pod(node, node, movable=True, node=node, phase="Running", started=1.0))
    cluster = Cluster(*facts)
    cluster.now += 10_000
    decisions = cluster.cycle(claim("x", spec(devices.request(count=2))), pod("x", "x"))
    assert sum(isinstance(each, Evict) for each in decisions) == 1


@pytest.mark.long
def test_urgent_pods_evict_for_claims_in_one_cycle() -> None:
    """A device that one of them waits for is not given to the next, also while its pod ends."""
    cluster = Cluster(queue("a"), *singles(8))
    claims = [claim(f"u{i}") for i in range(4)]
    urgent = [pod(f"u{i}", f"u{i}", queue="a", priority=5) for i in range(4)]
    evicted = [each for each in cluster.cycle(*claims, *urgent) if isinstance(each, Evict)]
    assert len(evicted) == 4
    for gone in evicted[:3]:
        assert len(cluster.step(PodGone(gone.pod), DeviceClaimGone("ns", gone.name))) == 1
    late = pod("late", "late", queue="a", priority=5)
    assert not cluster.step(claim("late"), late), "the last one waits for a device that is in use"


def test_a_victim_with_a_device_is_as_large_as_one_with_a_gpu() -> None:
    one = PodSpec((("pods", 1),), charges=((BY_CLASS + "gpu.nvidia.com", 1),))
    assert harm.gpus(one) == harm.gpus(PodSpec(((GPU, 1),)))
    assert harm.gpus(PodSpec((), charges=((BY_CLASS + "nic.example", 4),))) == 0
