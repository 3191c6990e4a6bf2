"""The search for the devices of several claims on one node, judged by trying every assignment."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest

from central.model.device_claims import (
    CounterValue,
    DeviceClaimSpec,
    DeviceId,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
)
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from central.scheduler.device_claims.device_fitting import MANY, NodeDevices, SearchLimit, most_pods
from central.scheduler.device_claims.device_pools import CounterKey, PooledDevice
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    GPUS,
    device,
    distinct,
    request,
    same,
    slice_of,
    spec,
)
from tests.effort import seeds

MODELS, RAILS = ("a", "b"), (0, 1, 2)
NAMES = ("r0", "r1", "r2")


def random_spec(random: Random) -> DeviceClaimSpec:
    requests = []
    for name in NAMES[: random.randint(1, 2)]:
        some = random.randint(1, 2) if random.random() < 0.3 else 1
        alternatives: list[DeviceRequest] = []
        for index in range(some):
            count = 0 if random.random() < 0.1 else random.choice((1, 1, 2, 3))
            chosen = (f'device.attributes["{DRIVER}"].model == "{random.choice(MODELS)}"',)
            tolerates = (DeviceToleration("hot", "Exists", "", ""),) * (random.random() < 0.2)
            called = name if some == 1 else f"{name}/{index}"
            admin = some == 1 and random.random() < 0.25
            alternatives += request(
                called, count, *chosen * (random.random() < 0.5), tolerations=tolerates, admin=admin
            )
        requests.append(tuple(alternatives))
    constraints = [
        kind(random.choice(("rail", "model")), *random.sample(NAMES[:2], random.randint(0, 1)))
        for kind in (same, distinct)
        if random.random() < 0.3
    ]
    return spec(*requests, constraints=tuple(constraints))


def usable(one: PooledDevice, alternative: DeviceRequest) -> bool:
    """As the API describes it, apart from the code."""
    return selects(one, alternative) and all(
        any(t.tolerates(taint) for t in alternative.tolerations) for taint in one.taints
    )


def selects(one: PooledDevice, alternative: DeviceRequest) -> bool:
    values = {each.name: each.value for each in one.device.attributes}
    return all(f'"{values[f"{DRIVER}/model"]}"' in each for each in alternative.selectors)


def ways(
    claim: DeviceClaimSpec, there: Sequence[PooledDevice], free: frozenset[DeviceId]
) -> Iterator[frozenset[DeviceId]]:
    """Every set of free devices that satisfies the claim, without those by admin access."""

    def requests(
        place: int, taken: list[tuple[str, PooledDevice]]
    ) -> Iterator[frozenset[DeviceId]]:
        if place == len(claim.requests):
            if agrees(claim, taken):
                yield frozenset(one.id for name, one in taken if name not in admin)
            return
        used = {one.id for _, one in taken}
        for alternative in claim.requests[place]:
            matching = [one for one in there if selects(one, alternative)]
            fine = [
                one
                for one in matching
                if usable(one, alternative)
                and (one.id in free or alternative.admin)
                and one.id not in used
            ]
            if not alternative.count and len(fine) != len(matching):
                continue
            count = alternative.count or len(matching)
            for some in combinations(fine, count) if count else ():
                yield from requests(place + 1, [*taken, *((alternative.name, one) for one in some)])

    admin = {each.name for some in claim.requests for each in some if each.admin}
    yield from requests(0, [])


def agrees(claim: DeviceClaimSpec, taken: Sequence[tuple[str, PooledDevice]]) -> bool:
    for constraint in claim.constraints:
        found = [
            {each.name: each.value for each in one.device.attributes}.get(constraint.attribute)
            for name, one in taken
            if constraint.covers(name)
        ]
        if None in found:
            return False
        values = [set(each if isinstance(each, tuple) else (each,)) for each in found]
        if constraint.distinct and any(one & other for one, other in combinations(values, 2)):
            return False
        if values and not constraint.distinct and not set.intersection(*values):
            return False
    return True


Left = dict[CounterKey, Fraction]


def possible(
    claims: Sequence[DeviceClaimSpec],
    there: Sequence[PooledDevice],
    free: frozenset[DeviceId],
    left: Left,
) -> bool:
    """left: of the counters that devices share"""
    if not claims:
        return True
    for taken in set(ways(claims[0], there, free)):
        now = without(left, (one for one in there if one.id in taken))
        if all(now[key] >= 0 for one in there if one.id in taken for key in one.consumes) and (
            possible(claims[1:], there, free - taken, now)
        ):
            return True
    return False


def without(left: Left, devices: Iterable[PooledDevice]) -> Left:
    found = dict(left)
    for one in devices:
        for key, amount in one.consumes.items():
            found[key] -= amount
    return found


def random_node(
    random: Random,
) -> tuple[DeviceAllocation, list[PooledDevice], frozenset[DeviceId], Left]:
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    made, parted = [], random.random() < 0.5
    for index in range(random.randint(1, 6)):
        attributes: dict[str, str | int | tuple[int, ...]] = {"model": random.choice(MODELS)}
        if random.random() < 0.6:
            attributes["rail"] = random.choice(RAILS)
        elif random.random() < 0.8:
            attributes["rail"] = tuple(random.choices(RAILS, k=random.randint(1, 2)))
        part = replace(
            device(f"d{index}", *("hot",) * (random.random() < 0.2), **attributes),
            consumes=tuple(
                CounterValue(gpu, name, str(random.randint(1, 3)))
                for name in random.sample(("memory", "cores"), random.randint(1, 2))
            )
            if parted and random.random() < 0.6 and (gpu := random.choice(("gpu-0", "gpu-1")))
            else (),
        )
        made.append(part)
    counters = tuple(
        CounterValue(gpu, name, str(random.randint(3, 6)))
        for gpu in ("gpu-0", "gpu-1")
        for name in ("memory", "cores")
    )
    allocation.apply(slice_of("n", *made, counters=counters))
    there = allocation.pools.by_node["n"]
    free = frozenset(one.id for one in there if random.random() < 0.85)
    total = allocation.pools.counters[DRIVER, "n"]
    return allocation, there, free, without(total, (one for one in there if one.id not in free))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(8))
def test_the_search_is_exact(seed: int) -> None:
    random = Random(seed)
    outcomes = Counter[bool]()
    for _ in range(150):
        allocation, there, free, left = random_node(random)
        claims = [random_spec(random) for _ in range(random.randint(1, 2))]
        claims += claims[:1] * random.randint(0, 1)
        unlike = list(dict.fromkeys(claims))
        taken = {one.id for one in there} - free
        demands = [allocation.demand(each) for each in unlike]
        node = NodeDevices(demands, there, taken, (), left)
        found = node.fit([unlike.index(each) for each in claims])
        outcomes[found is not None] += 1
        assert (found is not None) == possible(claims, there, free, left), (claims, there, free)
        if found is not None:
            check(claims, found, there, free, left)
    assert all(outcomes[each] > 20 for each in (True, False)), outcomes


def check(claims, found, there, free, left) -> None:  # type: ignore[no-untyped-def]  # as in the search
    given = [one.id for devices in found for one in devices if not one.admin]
    for devices in found:
        assert len({one.id for one in devices}) == len(devices)
    assert len(given) == len(set(given))
    assert set(given) <= free
    by_id = {one.id: one for one in there}
    rest = without(left, (by_id[each] for each in given))
    assert all(rest[key] >= 0 for each in given for key in by_id[each].consumes)
    for claim, devices in zip(claims, found, strict=True):
        assert agrees(claim, [(one.request, by_id[one.id]) for one in devices])
        alternatives = {each.name: each for some in claim.requests for each in some}
        for one in devices:
            assert usable(by_id[one.id], alternatives[one.request])
            assert one.admin == alternatives[one.request].admin


@pytest.mark.parametrize("seed", seeds(8))
def test_the_number_of_pods_is_exact(seed: int) -> None:
    random = Random(seed)
    for _ in range(60):
        allocation, there, free, left = random_node(random)
        own = random_spec(random)
        taken = {one.id for one in there} - free
        node = NodeDevices([allocation.demand(own)], there, taken, (), left)
        most = max(n for n in range(len(there) + 1) if possible([own] * n, there, free, left))
        admin = all(each.admin for some in own.requests for each in some)
        found = most_pods(node, [], [0])
        if admin:
            assert found == (MANY if most else 0)
            continue
        assert node.most([0]) >= most
        assert found == most, (own, there, free)


def test_the_first_alternative_comes_first() -> None:
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    allocation.apply(slice_of("n", device("a", model="old"), device("b", model="new")))
    wish = f'device.attributes["{DRIVER}"].model == '
    both = (*request("r/0", 1, wish + '"new"'), *request("r/1", 1, wish + '"old"'))
    node = NodeDevices([allocation.demand(spec(both))], allocation.pools.by_node["n"], ())
    assert [each.device for (each,) in node.fit([0, 0]) or ()] == ["b", "a"]
    assert [each.request for (each,) in node.fit([0, 0]) or ()] == ["r/0", "r/1"]


def test_groups_that_match_exactly_are_used_up_first() -> None:
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    made = [device(f"d{i}", root=0 if i < 4 else 1) for i in range(6)]
    allocation.apply(slice_of("n", *made))
    pair = spec(request(count=2), constraints=(same("root"),))
    node = NodeDevices([allocation.demand(pair)], allocation.pools.by_node["n"], ())
    found = node.fit([0])
    assert found is not None
    assert [each.device for each in found[0]] == ["d4", "d5"]


def test_a_search_that_grows_is_stopped() -> None:
    """Every device is a kind of its own, and one of them lacks the partner that it needs."""
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    allocation.apply(slice_of("n", *(device(f"d{i}", uuid=i) for i in range(40))))
    wide = spec(request(count=20), constraints=(distinct("uuid"),))
    node = NodeDevices([allocation.demand(wide)], allocation.pools.by_node["n"], ())
    with pytest.raises(SearchLimit):
        node.fit([0])


def test_a_taint_is_tolerated_by_key_value_and_effect() -> None:
    taint = DeviceTaint("xid", "79", "NoExecute")
    tolerations = {
        DeviceToleration("", "Exists", "", ""): True,
        DeviceToleration("xid", "Exists", "", ""): True,
        DeviceToleration("xid", "Equal", "79", "NoExecute"): True,
        DeviceToleration("xid", "Equal", "78", ""): False,
        DeviceToleration("xid", "Exists", "", "NoSchedule"): False,
        DeviceToleration("other", "Exists", "", ""): False,
        DeviceToleration("", "Equal", "79", ""): False,
    }
    assert {each: each.tolerates(taint) for each in tolerations} == tolerations


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [("rails.includes(1)", ["a", "b"]), ("rails.includes(2)", ["b"]), ("rails.includes(3)", [])],
)
def test_a_selector_asks_whether_a_value_or_list_includes_one(
    expression: str, chosen: list[str]
) -> None:
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    allocation.apply(slice_of("n", device("a", rails=1), device("b", rails=(1, 2))))
    asked = allocation.demand(spec(request("r", 1, f'device.attributes["{DRIVER}"].{expression}')))
    there = allocation.pools.by_node["n"]
    assert [one.id.device for one in there if asked.signature(one).usable] == chosen


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        (f'device.attributes["{DRIVER}"].exists(name, name == "index")', ["b"]),
        (f'device.attributes["{DRIVER}"].all(name, name == "model")', ["a"]),
        (f'device.attributes["{DRIVER}"].size() == 1', ["a"]),
        (f"device.attributes['{DRIVER}'].size () == 2", ["b"]),
        (f'device.attributes["{DRIVER}"].model.size() == 4', ["a", "b"]),
        ('quantity("1Gi").sub(quantity("2Gi")).sign() == -1', ["a", "b"]),
        ('quantity("2Gi").sub(quantity("2Gi")).sign() == 0', ["a", "b"]),
        ('quantity("2k").asInteger() == 2000', ["a", "b"]),
        ('quantity("1500m").asInteger() == 1', []),  # as in Kubernetes: it is no integer
        ('quantity("1500m").isInteger() || quantity("9223372036854775808").isInteger()', []),
    ],
)
def test_a_selector_is_evaluated_on_each_device_that_it_may_tell_apart(
    expression: str, chosen: list[str]
) -> None:
    allocation = DeviceAllocation([])
    allocation.set_class(DRIVER, GPUS)
    allocation.apply(slice_of("n", device("a", model="fast"), device("b", model="fast", index=1)))
    asked = allocation.demand(spec(request("r", 1, expression)))
    there = allocation.pools.by_node["n"]
    assert [one.id.device for one in there if asked.signature(one).usable] == chosen
