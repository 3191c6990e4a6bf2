"""Admin access: devices for monitoring, also those that pods use, which it keeps from none."""

from dataclasses import replace

from central.model.device_claims import DeviceId, DeviceToleration
from central.model.facts import PodGone
from protos.names import BY_CLASS
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    claim,
    device,
    gang,
    gpus,
    pod,
    request,
    slice_of,
    spec,
)
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster
from tests.central.scheduler.device_claims.test_partitions import parts, published

ALL = spec(request(count=0, admin=True))
ONE = spec(request(admin=True))


def used(*numbers: int) -> object:
    return claim("used", allocated=tuple(DeviceId(DRIVER, "a", f"gpu-{i}") for i in numbers))


def test_it_gets_devices_in_use_and_leaves_them_free_for_others() -> None:
    cluster = Cluster(gpus("a", 2), used(0), a="r0")  # type: ignore[arg-type]
    given = parts(cluster, claim("watch", ALL), pod("monitor", "watch"))
    assert sorted(given["monitor"]) == ["gpu-0", "gpu-1"]
    assert parts(cluster, claim("c"), pod("p", "c")) == {"p": ["gpu-1"]}
    assert not cluster.step(claim("d"), pod("q", "d"))
    given = parts(cluster, *gang(5, ALL))
    assert all(len(each) == 2 for each in given.values())
    assert len(given) == 5, "any number of them"


def test_what_the_api_server_shows_is_free_for_others() -> None:
    watched = tuple(DeviceId(DRIVER, "a", f"gpu-{i}") for i in range(2))
    shown = claim("watch", ALL, allocated=watched, admin=(True, True), reserved=("u",))
    cluster = Cluster(gpus("a", 2), shown, a="r0")
    assert len(cluster.step(*gang(2))) == 2


def test_queues_do_not_count_it() -> None:
    cluster = Cluster(gpus("a", 2), a="r0")
    mixed = spec(request("mine", 1), request("watch", 1, admin=True))
    given = parts(cluster, claim("c", mixed), pod("p", "c"), claim("d", ONE), pod("q", "d"))
    assert sorted(given["p"]) == ["gpu-0", "gpu-1"], "a claim has each device once"
    charges = {each.seen.name: each.spec.charges for each in cluster.scheduler.state.pods.values()}
    assert charges == {"p": ((BY_CLASS + DRIVER, 1),), "q": ()}


def test_a_claim_has_each_device_once() -> None:
    cluster = Cluster(gpus("a", 2), a="r0")
    for mine, watched in ((request("mine"), 2), (request("mine", admin=True), 0)):
        mixed = spec(mine, request("watch", watched, admin=True))
        assert not cluster.step(claim("c", mixed), pod("p", "c"))
    taken = spec(request("watch", 2, admin=True), request("mine"))
    assert not cluster.step(claim("d", taken), pod("q", "d"))


def test_no_pod_is_evicted_for_it() -> None:
    """There are too few devices, in use or not."""
    cluster = Cluster(gpus("a", 1), a="r0")
    assert cluster.step(claim("c"), pod("low", "c", priority=1))
    both = spec(request(count=2, admin=True))
    decisions = cluster.cycle(claim("d", both), pod("high", "d", priority=9))
    assert {type(each).__name__ for each in decisions} == {"UpdateGangStatus"}
    assert cluster.step(claim("e", ONE), pod("other", "e", priority=9)) == {"other": "a"}


def test_taints_hold_for_it() -> None:
    cluster = Cluster(slice_of("a", device("gpu-0", "hot")), a="r0")
    assert not cluster.step(claim("c", ALL), pod("p", "c"))
    assert "1 tainted (hot)" in cluster.told["p"]
    tolerates = (DeviceToleration("hot", "Exists", "", ""),)
    tolerant = spec(request(count=0, admin=True, tolerations=tolerates))
    assert cluster.step(claim("d", tolerant), pod("q", "d")) == {"q": "a"}


def test_it_consumes_no_counters() -> None:
    cluster = Cluster(published("a", gpus=1), a="r0")
    given = parts(cluster, claim("c", ALL), pod("p", "c"))
    assert len(given["p"]) == 7, "the whole and all of its parts"
    assert len(parts(cluster, *gang(2, spec(request(count=2))))) == 2


def test_an_agent_is_told_that_it_keeps_its_devices_from_none() -> None:
    from central.scheduler.device_claims.claims_on_nodes import ClaimsOnNodes
    from protos.names import DRA_DRIVER
    from protos.topology import ClaimDevice

    there, on = tuple(DeviceId(DRA_DRIVER, "a", f"gpu-{i}") for i in range(2)), ClaimsOnNodes()
    shown = claim("c", ONE, allocated=there, requests=("x", "y"))
    on.replace(None, shown)
    assert not any(each.admin for each in on.plans("a")[0].devices)
    on.replace(shown, replace(shown, admin=(False, True)))
    assert on.plans("a")[0].devices == (ClaimDevice("x", "gpu-0"), ClaimDevice("y", "gpu-1", True))


def test_it_ends_with_its_pod() -> None:
    cluster = Cluster(gpus("a", 1), a="r0")
    assert cluster.step(claim("c", ONE), pod("p", "c"))
    cluster.step(PodGone("uid-p"))
    assert cluster.step(claim("d"), pod("q", "d")) == {"q": "a"}
