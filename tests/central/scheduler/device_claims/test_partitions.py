"""Devices that share counters: a GPU as a whole, or parts of it."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from central.model.device_claims import (
    CounterValue,
    Device,
    DeviceClaimGone,
    DeviceClaimSpec,
    DeviceId,
    DeviceNeeds,
    DeviceRequest,
    DeviceUse,
    SameValues,
    SliceGone,
    SliceSeen,
)
from central.model.facts import Fact, PodGone
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from tests.central import factories
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    GPUS,
    claim,
    device,
    gang,
    pod,
    request,
    slice_of,
    spec,
)
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster
from tests.effort import seeds

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


def test_a_part_that_is_used_on_one_node_is_missing_on_another() -> None:
    """Two nodes reach one GPU, and another slice has its counters."""
    pool = published("a", gpus=1)
    there = {name: [each for each in pool.devices if name in each.name] for name in SIZES}
    slices = [
        replace(pool, name="s-a", slices=3, devices=(*there["whole"], *there["half"]), counters=()),
        replace(pool, name="s-b", slices=3, node="b", devices=tuple(there["quarter"]), counters=()),
        replace(pool, name="s-c", slices=3, node="", devices=()),
    ]
    cluster = Cluster(*slices, a="r0", b="r0")
    assert parts(cluster, claim("c", asks("half")), pod("p", "c")) == {"p": ["half-0-0"]}
    assert not cluster.step(*gang(5, asks("quarter")))
    assert "enough for 2" in cluster.told["g"]
    assert len(cluster.step(*gang(2, asks("quarter"), name="h"))) == 2
    assert not cluster.step(claim("d", asks("half")), pod("q", "d"))
    assert not cluster.step(PodGone("uid-h-0"), DeviceClaimGone("ns", "h-c0"))
    assert cluster.step(PodGone("uid-h-1"), DeviceClaimGone("ns", "h-c1")) == {"q": "a"}


def test_a_part_that_a_draft_takes_is_missing_on_other_nodes_at_once() -> None:
    nodes = [factories.node(name, gpus=0) for name in "ab"]
    allocation = DeviceAllocation(nodes)
    allocation.set_class(DRIVER, GPUS)
    for row, node in enumerate(nodes):
        allocation.put_node(row, node, None)
    pool = replace(published("a", gpus=1), slices=2)
    allocation.apply(replace(pool, devices=pool.devices[:3]))
    allocation.apply(replace(pool, name="s-b", node="b", devices=pool.devices[3:], counters=()))
    half, quarter = (DeviceNeeds(own=(asks(size),)) for size in ("half", "quarter"))
    assert [*allocation.capacity(half)] == [2, 0]
    assert [*allocation.capacity(quarter)] == [0, 4]
    assert allocation.spans_nodes(quarter)
    allocation.count(1, quarter, 1)
    assert [*allocation.capacity(half)] == [1, 0]
    allocation.count(0, half, 1)
    assert [*allocation.capacity(quarter)] == [0, 1]
    allocation.count(1, quarter, -1)
    allocation.count(0, half, -1)
    assert [*allocation.capacity(half)] == [2, 0]


def test_victims_free_parts_with_the_same_values() -> None:
    """All of the GPU is in use; evictions would free any part of it."""
    node = factories.node("a", gpus=0)
    allocation = DeviceAllocation([node])
    allocation.set_class(DRIVER, GPUS)
    allocation.put_node(0, node, None)
    allocation.apply(published("a", gpus=1))
    allocation.set_allocated("c", (DeviceUse(DeviceId(DRIVER, "a", "whole-0-0")),))
    alike = SameValues("ns/g", f"{DRIVER}/size")
    needs = DeviceNeeds(own=(asks("half"),), same=alike)
    assert not allocation.choices([needs], empty=False)
    (values,) = allocation.choices([needs], empty=True)
    assert values == {("string", "half")}


def test_queues_count_a_gpu_that_several_nodes_reach_once() -> None:
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    pool = replace(published("a", gpus=1), slices=2)
    allocation.apply(replace(pool, devices=pool.devices[:3]))
    allocation.apply(replace(pool, name="s-b", node="b", devices=pool.devices[3:], counters=()))
    assert allocation.free_worth({DRIVER: 100}, ()) == 100
    allocation.set_allocated("c", (DeviceUse(DeviceId(DRIVER, "a", "quarter-0-0")),))
    assert allocation.free_worth({DRIVER: 100}, ()) == 0
    allocation.apply(SliceGone("s-b"))
    assert allocation.free_worth({DRIVER: 100}, ()) == 0, "the pool is incomplete"


def test_a_part_that_is_shared_already_is_charged_on_its_node_alone() -> None:
    """Both nodes have used up their GPU, each with another part that any number may share."""
    made = [replace(part(0, size), shared=()) for size in ("half", "quarter")]
    pools = []
    for node, name in (("a", "half-0-0"), ("b", "quarter-0-0")):
        left = (CounterValue("gpu-0", "memory", f"{SIZES[name.split('-')[0]]}0Gi"),)
        pools.append(slice_of(node, *made, counters=left))
        pools.append(
            claim(name, allocated=(DeviceId(DRIVER, node, name),), consumed=((),))  # type: ignore[arg-type]
        )
    for size, node in (("half", "a"), ("quarter", "b")):
        cluster = Cluster(*pools, a="r0", b="r0")
        members = gang(3, asks(size))
        assert {*cluster.step(*members).values()} == {node}
        assert not cluster.step(claim("x", asks("half", "quarter")), pod("x", "x"))
        for lacks in ("half", "quarter"):  # on the other node, and on this one
            assert (
                f"devices of gpu.example free where {of(lacks)[0].selectors[0]}"
                in cluster.told["x"]
            )


@pytest.mark.parametrize("seed", seeds(6))
def test_gangs_of_parts_that_several_nodes_reach(seed: int) -> None:
    """Random parts of one pool on nodes of their own, on labelled nodes or on all; equal pods get parts of a size."""
    random, outcomes = Random(seed), Counter[bool]()
    for _ in range(40):
        nodes = ["a", "b", "c"][: random.randint(2, 3)]
        made: list[tuple[str, Device]] = []
        for gpu in range(random.randint(1, 2)):
            for number in range(random.randint(1, 4)):
                one = part(gpu, random.choice((*SIZES,)), number)
                made.append(
                    (random.choice((*nodes, "")), replace(one, name=f"{one.name}-{number}"))
                )
        counters = [CounterValue(f"gpu-{gpu}", "memory", "40Gi") for gpu in range(2)]
        found = [
            slice_of(
                node, *(one for at, one in made if at == node), pool="p", slices=len(nodes) + 2
            )
            for node in (*nodes, "")
        ]
        found.append(
            slice_of(
                "a", name="s-counters", pool="p", slices=len(nodes) + 2, counters=tuple(counters)
            )
        )
        size, count = random.choice(made)[1].name.split("-")[0], random.randint(1, 3)
        used = [one for _, one in made if random.random() < 0.2]
        claims = [
            claim(f"used-{one.name}", allocated=(DeviceId(DRIVER, "p", one.name),)) for one in used
        ]
        cluster = Cluster(*found, *claims, **dict.fromkeys(nodes, "r0"))
        left = {each.counters: 4 for each in counters}
        for one in used:
            left[one.consumes[0].counters] -= SIZES[one.name.split("-")[0]]
        fitting = sum(
            min(max(left[gpu], 0) // SIZES[size], amount)
            for gpu, amount in Counter(
                one.consumes[0].counters
                for _, one in made
                if one not in used and one.name.startswith(size)
            ).items()
        )
        bound = cluster.step(*gang(count, asks(size)))
        assert len(bound) == (count if fitting >= count else 0), (made, used, size, count)
        outcomes[bool(bound)] += 1
    assert all(outcomes[each] > 5 for each in (True, False)), outcomes


def test_shares_of_a_part_consume_its_counters_once() -> None:
    """Half of a GPU is shared by any number; the rest of the GPU is given as before."""
    half = replace(part(0, "half"), shared=())
    pool = published("a", gpus=1)
    cluster = Cluster(replace(pool, devices=(half, *pool.devices[3:])), a="r0")
    assert not cluster.step(*gang(3, asks("half", "quarter")))
    assert "enough for 2" in cluster.told["g"]
    given = parts(cluster, *gang(2, asks("half", "quarter"), name="h"))
    assert [each[0] for each in given.values()] == ["half-0-0"] * 2
    assert not cluster.step(claim("q", asks("quarter")), pod("q", "q"))
    assert cluster.step(claim("c", asks("half")), pod("p", "c")) == {"p": "a"}


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
