"""Extended resources that a DeviceClass serves: pods that request them get devices by a claim of their own."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, UpdateGangStatus
from central.model.device_claims import (
    EXTENDED,
    ClaimAllocation,
    DeviceClaimGone,
    DeviceClaimSeen,
    DeviceId,
    PodDeviceClaim,
)
from central.model.facts import BindFailed, DeviceClassSeen, Fact, NodeGone, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.rebuild import rebuild
from central.scheduler.scheduler import Scheduler
from protos.names import BY_CLASS, GPU, RACK
from tests.central import factories
from tests.central.scheduler.device_claims import devices
from tests.central.scheduler.device_claims.devices import DRIVER, gpus
from tests.central.scheduler.invariants import check_invariants

SERVING = replace(devices.GPUS, resource=GPU)


class Cluster:
    """Nodes with devices, and no device plugin. What is bound is known at the API server at once, with its claim."""

    def __init__(self, *facts: Fact, serving: DeviceClassSeen = SERVING, **nodes: int) -> None:
        """nodes: the number of devices."""
        self.scheduler: Scheduler = new_scheduler(factories.LEVELS)
        self.now = 0.0
        made: list[Fact] = [serving]
        for name, count in nodes.items():
            made += [factories.node(name, gpus=0, rack=name), gpus(name, count)]
        self.cycle(*made)
        self.bound = self.step(*facts)

    def cycle(self, *facts: Fact) -> list[Decision]:
        self.now += 1.0
        decisions = schedule_once(self.scheduler, facts, self.now)
        check_invariants(self.scheduler)
        return decisions

    def step(self, *facts: Fact) -> dict[str, Bind]:
        return {each.name: each for each in self.cycle(*facts) if isinstance(each, Bind)}

    def seen(self, name: str) -> PodSeen:
        return self.scheduler.state.pods[f"uid-{name}"].seen

    def api_server(self, bind: Bind) -> list[Fact]:
        """What it shows of a binding, with the claim that was made."""
        (planned,) = bind.device_claims
        name = f"{bind.name}-extended-resources-1"
        made = DeviceClaimSeen(
            "ns", name, f"uid-{name}", devices.spec(), tuple(each.id for each in planned.devices),
            planned.places, (bind.pod,), bind.pod,
        )  # fmt: skip
        known = (PodDeviceClaim(EXTENDED, name),)
        pod = replace(self.seen(bind.name), device_claims=known)
        return [made, pod, replace(pod, node=bind.node, phase="Running", started=self.now)]

    def reason(self, name: str, *facts: Fact) -> str:
        told = [each for each in self.cycle(*facts) if isinstance(each, UpdateGangStatus)]
        return next(each.reason for each in told if each.gang == name)


def pods(count: int, size: int = 1, gang: str = "", name: str = "p", **other: object) -> list[Fact]:
    more = {"gang": gang, "gang_min": count} if gang else {}
    return [factories.pod(f"{name}{i}", size, **{**more, **other}) for i in range(count)]  # type: ignore[arg-type]  # a test's shorthand


def taken(binds: dict[str, Bind]) -> list[str]:
    return sorted(str(each.id) for bind in binds.values() for each in bind.device_claims[0].devices)


def test_pods_get_devices_by_a_claim_that_is_made() -> None:
    cluster = Cluster(*pods(3, 2), n=8)
    assert len(set(taken(cluster.bound))) == 6
    (made,) = cluster.bound["p0"].device_claims
    assert isinstance(made, ClaimAllocation)
    assert (made.claim, made.uid) == ("", "")
    assert {each.request for each in made.devices} == {GPU}


def test_a_gang_is_placed_as_a_whole_in_its_rack() -> None:
    gang = pods(3, 4, "g", topology_required=RACK)
    assert not Cluster(*gang, a=8, b=8).bound
    assert len(Cluster(*gang, a=8, b=12).bound) == 3


def test_a_class_serves_the_resource_of_its_name() -> None:
    asks = factories.pod("p", 0)
    own = tuple(sorted((*asks.spec.requests, (BY_CLASS + DRIVER, 2))))
    pod = replace(asks, spec=replace(asks.spec, requests=own))
    assert len(taken(Cluster(pod, serving=devices.GPUS, n=4).bound)) == 2


def test_a_device_plugin_goes_before_the_class() -> None:
    cluster = Cluster(factories.node("old", gpus=2), *pods(3), n=8)
    assert [bind.node for bind in cluster.bound.values()] == ["old", "old"]
    assert not any(bind.device_claims for bind in cluster.bound.values())
    later = cluster.step(NodeGone("old"))
    assert [bind.node for bind in later.values()] == ["n"]
    assert len(taken(later)) == 1


def test_a_device_plugin_that_comes_serves_the_pods_that_wait() -> None:
    cluster = Cluster(*pods(2), n=1)
    assert taken(cluster.bound) == [f"{DRIVER}/n/gpu-0"]
    later = cluster.step(factories.node("new", gpus=2))
    assert [(bind.node, bind.device_claims) for bind in later.values()] == [("new", ())]
    assert cluster.scheduler.state.pods["uid-p0"].spec.request(GPU) == 0, "its claim is being made"
    for fact in cluster.api_server(cluster.bound["p0"]):
        cluster.step(fact)
    assert cluster.scheduler.state.pods["uid-p0"].spec.request(GPU) == 0


def test_a_request_for_none_is_no_claim() -> None:
    none = factories.pod("p0", 0)
    requests = tuple(sorted((*none.spec.requests, (GPU, 0))))
    cluster = Cluster(replace(none, spec=replace(none.spec, requests=requests)), n=1)
    assert cluster.bound["p0"].device_claims == ()


def test_a_claim_with_other_devices_leaves_the_plan() -> None:
    cluster = Cluster(*pods(1, 2), n=4)
    (made, *_) = cluster.api_server(cluster.bound["p0"])
    assert isinstance(made, DeviceClaimSeen)
    others = tuple(DeviceId(DRIVER, "n", f"gpu-{i}") for i in (2, 3))
    cluster.cycle(replace(made, allocated=others))
    assert not cluster.step(*pods(1, 1, name="late")), "all four devices are in use"


def test_a_pod_waits_for_a_class() -> None:
    cluster = Cluster(*pods(1), serving=devices.GPUS, n=8)
    assert not cluster.bound
    assert len(cluster.step(SERVING)) == 1


def test_of_two_classes_the_newest_serves() -> None:
    never = DeviceClassSeen("none", GPU, ("false",), created=1.0)
    assert Cluster(*pods(1), never, serving=replace(SERVING, created=2.0), n=1).bound
    assert not Cluster(*pods(1), never, serving=replace(SERVING, created=0.5), n=1).bound
    alike = replace(never, created=SERVING.created)
    assert Cluster(*pods(1), alike, n=1).bound, "gpu.example comes before none"


def test_devices_stay_in_use_by_the_claim_of_the_api_server() -> None:
    cluster = Cluster(*pods(2, 2), n=4)
    for bind in list(cluster.bound.values()):
        for fact in cluster.api_server(bind):
            assert not cluster.step(fact, *pods(1, 1, name="late"))
    rebuild(cluster.scheduler)
    assert not cluster.step()
    gone = DeviceClaimGone("ns", "p0-extended-resources-1")
    assert not cluster.step(PodGone("uid-p0"))
    assert set(cluster.step(gone)) == {"late0"}


def test_a_binding_that_failed_is_planned_again() -> None:
    cluster = Cluster(*pods(1, 4), n=4)
    again: dict[str, Bind] = {}
    cluster.cycle(BindFailed("uid-p0", "n", "conflict"))
    for _ in range(20):
        cluster.now += 30
        again |= cluster.step()
    assert taken(again) == taken(cluster.bound)


def test_a_claim_that_is_gone_before_the_binding_is_made_again() -> None:
    named = factories.pod("p0", 4, device_claims=(PodDeviceClaim(EXTENDED, "gone"),))
    cluster = Cluster(named, n=4)
    assert cluster.bound["p0"].device_claims[0].claim == ""


def test_queues_count_them_as_gpus() -> None:
    from tests.central.scheduler.queues.test_devices_in_queues import queue

    limit = queue("a", capability={GPU: 3})
    cluster = Cluster(limit, *pods(4, queue="a"), n=8)
    assert len(cluster.bound) == 3
    used = cluster.scheduler.queues.by_name["a"].used
    assert used[GPU] == 3
    assert cluster.scheduler.queues.total["gpu-equivalents"] == 8 * 8400
    for bind in list(cluster.bound.values()):
        cluster.step(*cluster.api_server(bind))
    assert cluster.scheduler.queues.by_name["a"].used[GPU] == 3
    cluster.cycle()
    assert cluster.scheduler.queues.total["gpu-equivalents"] == 8 * 8400


def test_urgent_pods_evict_for_them() -> None:
    cluster = Cluster(*pods(4, 2), n=8)
    for bind in list(cluster.bound.values()):
        cluster.step(*cluster.api_server(bind))
    evicted = [e for e in cluster.cycle(*pods(2, 2, name="u", priority=5)) if isinstance(e, Evict)]
    assert len(evicted) == 2


def test_the_reason_names_the_devices() -> None:
    reason = Cluster(n=4).reason("p0", *pods(1, 8))
    assert "4 of 4 devices of gpu.example free" in reason
