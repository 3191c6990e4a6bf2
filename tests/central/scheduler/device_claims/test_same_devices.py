"""Gangs whose pods get devices with the same values of an attribute."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from central.model.decisions import Evict
from central.model.device_claims import DeviceClaimGone, DeviceId, SliceSeen
from central.model.facts import Fact, PodGone, PodSeen
from protos.names import RACK
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    claim,
    device,
    gang,
    pod,
    request,
    same,
    slice_of,
    spec,
)
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster
from tests.effort import seeds

RAIL = f"{DRIVER}/rail"
TWO = spec(request(count=2))


def alike(facts: list[Fact], attribute: str = RAIL) -> list[Fact]:
    return [
        replace(each, spec=replace(each.spec, same_attribute=attribute))
        if isinstance(each, PodSeen)
        else each
        for each in facts
    ]


def rails(node: str, *values: int | tuple[int, ...]) -> SliceSeen:
    return slice_of(node, *(device(f"d{i}", rail=value) for i, value in enumerate(values)))


def used(node: str, *devices: int) -> list[Fact]:
    return [
        claim(f"used-{node}-{i}", allocated=(DeviceId(DRIVER, node, f"d{i}"),)) for i in devices
    ]


def test_all_pods_get_the_same_rails() -> None:
    """Rails 0 and 1 are used on one node, 2 and 3 on another: only 4 and 5 are left for all."""
    nodes = [rails(name, *range(6)) for name in "abc"]
    cluster = Cluster(*nodes, *used("a", 0, 1), *used("b", 2, 3), a="r0", b="r0", c="r0")
    given = cluster.devices(cluster.cycle(*alike(gang(3, TWO))))
    assert [[each.device for each in given[f"g-{i}"]] for i in range(3)] == [["d4", "d5"]] * 3


def test_without_the_annotation_they_need_not() -> None:
    nodes = [rails(name, *range(4)) for name in "ab"]
    cluster = Cluster(*nodes, *used("a", 0, 1), *used("b", 2, 3), a="r0", b="r0")
    assert len(cluster.step(*gang(2, TWO))) == 2


def test_the_reason_names_the_rails_and_where_they_are_free() -> None:
    nodes = [rails(name, *range(4)) for name in "abc"]
    cluster = Cluster(*nodes, *used("a", 0, 1), *used("b", 2, 3), a="r0", b="r0", c="r0")
    assert not cluster.step(*alike(gang(3, TWO)))
    assert cluster.told["g"].endswith("; all need rail 0,1: free for 2 of 3 pods, on 2 nodes"), (
        cluster.told["g"]
    )
    assert not cluster.scheduler.state.snapshot.pod_counts.devices.taken()


def test_one_numa_side_takes_several_pods_of_a_node() -> None:
    sides = [rails(name, 0, 0, 0, 0, 1, 1, 1, 1) for name in "ab"]
    cluster = Cluster(*sides, *used("a", 0), a="r0", b="r0")
    one_side = replace(TWO, constraints=(same("rail"),))
    given = cluster.devices(cluster.cycle(*alike(gang(4, one_side))))
    assert {each.device for some in given.values() for each in some} == {"d4", "d5", "d6", "d7"}


def test_later_pods_get_the_rails_of_those_that_run() -> None:
    """Also after the state was built again from the facts."""
    cluster = Cluster(*(rails(name, *range(4)) for name in "ab"), *used("a", 0), a="r0", b="r0")
    members = alike(gang(2, TWO))
    given = cluster.devices(cluster.cycle(*members))
    chosen = {each.device for some in given.values() for each in some}
    assert chosen == {"d1", "d2"}
    more = Cluster(*(rails(name, *range(4)) for name in "abc"), a="r0", b="r0", c="r0")
    for index, node in enumerate("ab"):
        devices = tuple(DeviceId(DRIVER, node, f"d{rail}") for rail in (2, 3))
        seen = alike(
            [pod(f"g-{index}", f"g-c{index}", gang="g", size=2, node=node, phase="Running")]
        )
        own = claim(f"g-c{index}", TWO, allocated=devices, reserved=(f"uid-g-{index}",))
        more.cycle(own, *seen)
    late = [claim("late", TWO), *alike([pod("g-2", "late", gang="g", size=2)])]
    given = more.devices(more.cycle(*late))
    assert [each.device for each in given["g-2"]] == ["d2", "d3"]


def test_a_pod_waits_while_the_devices_of_members_are_not_published() -> None:
    cluster = Cluster(rails("a", *range(4)), rails("b", *range(4)), a="r0", b="r0")
    own = claim("g-c0", TWO, allocated=(DeviceId(DRIVER, "b", "d2"), DeviceId(DRIVER, "b", "d3")))
    (member,) = alike([pod("g-0", "g-c0", gang="g", size=1, node="b")])
    assert isinstance(member, PodSeen)
    cluster.cycle(own, replace(member, phase="Running"))
    gone = slice_of("b", name="s-b", slices=2, generation=2)
    late = [claim("late", TWO), *alike([pod("g-1", "late", gang="g", size=1)])]
    assert not cluster.step(gone, *late)
    assert "all need rail ?: free for 0 of 1 pods, on 0 nodes" in cluster.told["g"]
    published = replace(rails("b", *range(4)), generation=3)
    given = cluster.devices(cluster.cycle(published))
    assert [each.device for each in given["g-1"]] == ["d2", "d3"]


def test_roles_get_the_same_rails() -> None:
    """Prefill and decode, whose claims differ."""
    nodes = [rails(name, *range(4)) for name in "ab"]
    cluster = Cluster(*nodes, *used("a", 0, 1), a="r0", b="r0")
    other = spec(request("q", 2))
    facts = [claim("p", TWO), claim("d", other)]
    members = [pod("prefill", "p", gang="g", size=2), pod("decode", "d", gang="g", size=2)]
    given = cluster.devices(cluster.cycle(*facts, *alike([*members])))
    assert {each.device for some in given.values() for each in some} == {"d2", "d3"}


def test_a_narrow_domain_comes_before_a_set_that_more_nodes_have() -> None:
    """Rail 1 is on one node of each rack, rail 5 on two nodes of the last."""
    nodes = [rails(name, 1) for name in "abc"] + [rails(name, 5) for name in "de"]
    racks = {"a": "r0", "b": "r1", "c": "r2", "d": "r3", "e": "r3"}
    cluster = Cluster(*nodes, **racks)
    assert set(cluster.step(*alike(gang(2))).values()) == {"d", "e"}


def test_devices_without_the_attribute_are_not_given() -> None:
    plain = slice_of("a", *(device(f"d{i}") for i in range(4)))
    cluster = Cluster(plain, a="r0")
    assert not cluster.step(*alike(gang(1)))
    assert cluster.step(*gang(1, name="h"))


def test_pods_are_evicted_for_the_same_rails() -> None:
    """Each of two nodes has two free devices, of other rails. One pod is evicted."""
    cluster = Cluster(*(rails(name, *range(4)) for name in "ab"), a="r0", b="r0")
    for node, busy in (("a", (0, 1)), ("b", (2, 3))):
        taken = tuple(DeviceId(DRIVER, node, f"d{i}") for i in busy)
        own = claim(f"c-{node}", TWO, allocated=taken, reserved=(f"uid-low-{node}",))
        cluster.cycle(own, pod(f"low-{node}", f"c-{node}", node=node, phase="Running"))
    decisions = cluster.cycle(*alike(gang(2, TWO, priority=10)))
    (evicted,) = [each for each in decisions if isinstance(each, Evict)]
    assert not cluster.step(PodGone(evicted.pod), *alike(gang(0)))
    cluster.now += 1.0
    given = cluster.devices(cluster.cycle(DeviceClaimGone("ns", f"c-{evicted.node}")))
    assert len(given) == 2
    assert len({tuple(each.device for each in some) for some in given.values()}) == 1


def test_pods_that_name_different_attributes_are_refused() -> None:
    cluster = Cluster(rails("a", 0, 1), a="r0")
    first, second = (pod(f"g-{i}", f"c{i}", gang="g", size=2) for i in (0, 1))
    other = f"{DRIVER}/index"
    assert not cluster.step(claim("c0"), claim("c1"), *alike([first]), *alike([second], other))
    assert "its pods name different attributes of devices to be the same" in cluster.told["g"]


# --- brute force ----------------------------------------------------------------------


def fits(
    free: dict[str, list[set[int]]], size: int, count: int, racks: dict[str, str] | None
) -> bool:
    """Whether a set of values is that of `count` devices for each of the pods."""
    values = {rail for there in free.values() for each in there for rail in each}
    sets = [set(some) for n in range(1, len(values) + 1) for some in combinations(values, n)]
    for chosen in sets:
        most = {node: pods_on(there, count, chosen) for node, there in free.items()}
        groups = (
            [set(free)]
            if racks is None
            else [{node for node in free if racks[node] == rack} for rack in racks.values()]
        )
        if any(sum(most[node] for node in nodes) >= size for nodes in groups):
            return True
    return False


def pods_on(there: list[set[int]], count: int, chosen: set[int]) -> int:
    best = 0
    for some in combinations(range(len(there)), count):
        if set().union(*(there[i] for i in some)) == chosen:
            rest = [each for i, each in enumerate(there) if i not in some]
            best = max(best, 1 + pods_on(rest, count, chosen))
    return best


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(6))
def test_a_gang_gets_the_same_values_if_any_set_fits(seed: int) -> None:
    random = Random(seed)
    outcomes = Counter[bool]()
    for _ in range(60):
        names = [f"n{i}" for i in range(random.randint(1, 4))]
        racks = {name: random.choice(("r0", "r1")) for name in names}
        facts: list[Fact] = []
        free: dict[str, list[set[int]]] = {}
        for name in names:
            values: list[int | tuple[int, ...]] = []
            for _ in range(random.randint(1, 5)):
                both = random.random() < 0.1
                values.append(tuple(random.sample(range(4), 2)) if both else random.randrange(4))
            busy = [i for i in range(len(values)) if random.random() < 0.15]
            facts += [rails(name, *values), *used(name, *busy)]
            free[name] = [
                set(each) if isinstance(each, tuple) else {each}
                for i, each in enumerate(values)
                if i not in busy
            ]
        count, size, one_rack = random.randint(1, 2), random.randint(2, 4), random.random() < 0.4
        members = gang(size, spec(request(count=count)), topology_required=RACK * one_rack)
        cluster = Cluster(*facts, **racks)
        decisions = cluster.cycle(*alike(members))
        given = cluster.devices(decisions)
        expected = fits(free, size, count, racks if one_rack else None)
        outcomes[expected] += 1
        assert len(given) == (size if expected else 0), (free, size, count, one_rack)
        pools = cluster.scheduler.state.snapshot.pod_counts.devices.pools
        sets = {
            frozenset(
                v
                for one in some
                for a in pools.devices[one].content.attributes
                for v in (a.value if isinstance(a.value, tuple) else (a.value,))
            )
            for some in given.values()
        }
        assert len(sets) <= 1
    assert all(outcomes[each] > 5 for each in (True, False)), outcomes
