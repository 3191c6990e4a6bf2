"""Devices that share counters: a GPU as a whole, or parts of it."""

from collections import Counter
from dataclasses import replace

import pytest

from central.model.device_claims import (
    CounterValue,
    Device,
    DeviceClaimSpec,
    DeviceId,
    DeviceRequest,
    SliceSeen,
)
from central.model.facts import Fact
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    claim,
    device,
    gang,
    pod,
    request,
    slice_of,
    spec,
)
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster

SIZES = {"whole": 4, "half": 2, "quarter": 1}


def part(gpu: int, size: str, number: int = 0) -> Device:
    memory = CounterValue(f"gpu-{gpu}", "memory", f"{SIZES[size]}0Gi")
    return replace(device(f"{size}-{gpu}-{number}", size=size), consumes=(memory,))


def published(node: str, gpus: int = 2) -> SliceSeen:
    made = [
        part(gpu, size, number)
        for gpu in range(gpus)
        for size, amount in SIZES.items()
        for number in range(4 // amount)
    ]
    counters = [CounterValue(f"gpu-{gpu}", "memory", "40Gi") for gpu in range(gpus)]
    return slice_of(node, *made, counters=tuple(counters))


def of(size: str, name: str = "r") -> tuple[DeviceRequest, ...]:
    return request(name, 1, f'device.attributes["{DRIVER}"].size == "{size}"')


def asks(*sizes: str) -> DeviceClaimSpec:
    return spec(*(of(size, f"r{i}") for i, size in enumerate(sizes)))


def parts(cluster: Cluster, *facts: Fact) -> dict[str, list[str]]:
    found = cluster.devices(cluster.cycle(*facts))
    return {name: [each.device for each in devices] for name, devices in found.items()}


@pytest.mark.parametrize(("size", "most"), [("whole", 2), ("half", 4), ("quarter", 8)])
def test_a_gpu_is_given_as_a_whole_or_in_parts(size: str, most: int) -> None:
    cluster = Cluster(published("a"), a="r0")
    assert not cluster.step(*gang(most + 1, asks(size)))
    assert f"enough for {most}" in cluster.told["g"]
    given = parts(cluster, *gang(most, asks(size), name="h"))
    assert len(given) == most
    assert Counter(each[0].split("-")[1] for each in given.values()) == {
        "0": most // 2,
        "1": most // 2,
    }


def test_a_gpu_of_which_a_part_is_in_use_is_filled_first() -> None:
    used = claim("used", allocated=(DeviceId(DRIVER, "a", "quarter-1-3"),))
    cluster = Cluster(published("a"), used, a="r0")
    given = parts(cluster, claim("c", asks("half")), pod("p", "c"))
    assert given["p"][0].startswith("half-1-")
    given = parts(cluster, claim("d", asks("whole")), pod("q", "d"))
    assert given["q"] == ["whole-0-0"]


def test_two_halves_serve_pods_that_take_a_whole_or_a_half() -> None:
    """One of two GPUs is in use, and no whole one is left for each of the pods."""
    first = (*of("whole", "r/whole"), *of("half", "r/half"))
    used = claim("used", allocated=(DeviceId(DRIVER, "a", "whole-0-0"),))
    cluster = Cluster(published("a"), used, a="r0")
    given = parts(cluster, *gang(2, spec(first)))
    assert sorted(each[0] for each in given.values()) == ["half-1-0", "half-1-1"]


def test_requests_of_one_claim_share_a_gpu() -> None:
    cluster = Cluster(published("a", gpus=1), a="r0")
    assert not cluster.step(claim("c", asks("half", "half", "quarter")), pod("p", "c"))
    given = parts(cluster, claim("d", asks("half", "quarter", "quarter")), pod("q", "d"))
    assert len(given["q"]) == 3


def test_the_reason_counts_parts_whose_gpu_is_in_use() -> None:
    used = claim("used", allocated=(DeviceId(DRIVER, "a", "quarter-0-0"),))
    cluster = Cluster(published("a", gpus=1), used, a="r0")
    assert not cluster.step(claim("c", asks("whole")), pod("p", "c"))
    assert (
        '0 of 1 devices of gpu.example free where device.attributes["gpu.example"].size == "whole"'
        in cluster.told["p"]
    )
    assert cluster.step(replace(used, allocated=None)) == {"p": "a"}


def test_a_part_of_counters_that_are_unknown_is_not_given() -> None:
    lonely = replace(published("a", gpus=1), counters=())
    cluster = Cluster(lonely, a="r0")
    assert not cluster.step(claim("c", asks("half")), pod("p", "c"))


def test_counters_that_nodes_share_are_not_supported() -> None:
    """What is used on one node would have to be counted on another."""
    slices = [
        replace(published(name, gpus=1), pool="both", slices=2, name=f"s-{name}") for name in "ab"
    ]
    renamed = replace(
        slices[1],
        devices=tuple(replace(each, name=f"b-{each.name}") for each in slices[1].devices),
        counters=(),
    )
    cluster = Cluster(slices[0], renamed, a="r0", b="r0")
    assert not cluster.step(claim("c", asks("half")), pod("p", "c"))
    assert "have counters that nodes share, which Lockstep does not support" in cluster.told["p"]


def test_unlike_pods_of_a_gang_share_a_gpu() -> None:
    cluster = Cluster(published("a", gpus=1), a="r0")
    claims = [claim("c", asks("half")), claim("d", asks("quarter", "quarter"))]
    members = [pod(f"g-{each}", each, gang="g", size=2) for each in "cd"]
    assert len(parts(cluster, *claims, *members)) == 2
    assert not cluster.step(claim("late", asks("quarter")), pod("late", "late"))


def test_nodes_differ_in_what_their_counters_have() -> None:
    """The devices are the same: a driver may publish placements of which one GPU takes fewer at once."""
    small = replace(published("b", gpus=1), counters=(CounterValue("gpu-0", "memory", "20Gi"),))
    cluster = Cluster(published("a", gpus=1), small, a="r0", b="r0")
    assert not cluster.step(*gang(7, asks("quarter")))
    assert "enough for 6" in cluster.told["g"]
    assert len(cluster.step(*gang(6, asks("quarter"), name="h"))) == 6
