"""What Kubernetes' own allocator does at the limits: devices of one claim, invalid pools, the order of devices."""

from dataclasses import replace

import pytest

from central.model.device_claims import CounterValue, SliceSeen
from central.model.facts import PodGone
from tests.central import factories
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    claim,
    device,
    gpus,
    pod,
    request,
    slice_of,
    spec,
)
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster

MEMORY = CounterValue("set", "memory", "1")


def test_a_claim_gets_32_devices_at_most() -> None:
    """The API server refuses to store more, so that the pod would never start."""
    some = request("all", 0)[0]
    first, two = replace(some, name="r/all"), replace(some, name="r/two", count=2)
    cluster = Cluster(gpus("a", 40), a="r0")
    decisions = cluster.cycle(claim("c", spec((first, two))), pod("p", "c"))
    assert len(cluster.devices(decisions)["p"]) == 2
    more = spec(
        request("x", 20),
        (replace(some, name="y/many", count=13), replace(some, name="y/few", count=12)),
    )
    decisions = cluster.cycle(claim("d", more), pod("q", "d"))
    assert len(cluster.devices(decisions)["q"]) == 32
    assert not cluster.step(claim("e", spec((some,))), pod("r", "e"))


def test_a_claim_for_all_of_more_than_32_devices_reads_why() -> None:
    cluster = Cluster(gpus("a", 33), a="r0")
    assert not cluster.step(claim("c", spec(request(count=0))), pod("p", "c"))
    assert f"33 devices of {DRIVER}, a claim has at most 32" in cluster.told["p"]


def test_a_claim_has_256_users_at_most() -> None:
    """The API server refuses more, so that a gang above that would be bound in part, and undone, for ever."""
    cluster = Cluster(factories.node("a", gpus=0, pods=500), gpus("a", 1))
    members = [pod(f"g-{i}", "c", gang="g", size=257) for i in range(257)]
    assert not cluster.step(claim("c"), *members)
    assert "ResourceClaim c has 256 users, the most that Kubernetes allows" in cluster.told["g"]
    fewer = [replace(each, gang_min=256) for each in members]
    assert len(cluster.step(*fewer)) == 256
    (left,) = (each for each in cluster.scheduler.state.pods.values() if not each.node)
    first = next(each for each in members if each.uid != left.seen.uid)
    assert len(cluster.step(PodGone(first.uid))) == 1


def pool(*slices: SliceSeen) -> list[SliceSeen]:
    return [
        replace(each, name=f"s{i}", pool="p", slices=len(slices)) for i, each in enumerate(slices)
    ]


@pytest.mark.parametrize(
    "slices",
    [
        pool(
            slice_of(
                "a",
                replace(device("x"), consumes=(MEMORY._replace(counters="other"),)),
                counters=(MEMORY,),
            )
        ),
        pool(
            slice_of(
                "a",
                replace(device("x"), consumes=(MEMORY._replace(name="other"),)),
                counters=(MEMORY,),
            )
        ),
        pool(slice_of("a", device("x"), counters=(MEMORY,)), slice_of("a", counters=(MEMORY,))),
        pool(slice_of("a", device("x")), slice_of("a", device("x"))),
    ],
    ids=["no such counter set", "no such counter", "a counter set twice", "a device twice"],
)
def test_no_device_of_an_invalid_pool_is_given(slices: list[SliceSeen]) -> None:
    cluster = Cluster(*slices, gpus("b", 0), a="r0", b="r0")
    assert not cluster.step(claim("c"), pod("p", "c"))
    assert "pool p is incomplete or invalid" in cluster.told["p"]


def test_devices_that_must_be_made_ready_are_taken_last() -> None:
    slow = replace(device("gpu-0"), conditions=(("Attached",), ()))
    cluster = Cluster(slice_of("a", slow, device("gpu-1"), device("gpu-2")), a="r0")
    decisions = cluster.cycle(claim("c", spec(request(count=2))), pod("p", "c"))
    assert {each.device for each in cluster.devices(decisions)["p"]} == {"gpu-1", "gpu-2"}
    assert cluster.step(claim("d"), pod("q", "d")), "the last one"


def test_pools_and_slices_are_used_in_the_order_of_their_names() -> None:
    """Drivers choose the names, and a restart must not change the order."""
    slices = [
        slice_of("a", device(f"d-{name}-{number}"), name=f"{name}-{number}", pool=name, slices=2)
        for name in ("p2", "p1")
        for number in (2, 1)
    ]
    cluster = Cluster(*slices, a="r0")
    decisions = cluster.cycle(claim("c", spec(request(count=3))), pod("p", "c"))
    found = [each.device for each in cluster.devices(decisions)["p"]]
    assert found == ["d-p1-1", "d-p1-2", "d-p2-1"]
