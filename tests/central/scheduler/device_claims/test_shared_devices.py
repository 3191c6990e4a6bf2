"""Devices that several claims share, each with a part of their capacity."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from central.model.decisions import Bind
from central.model.device_claims import (
    AllocatedDevice,
    CounterValue,
    Device,
    DeviceClaimSpec,
    DeviceId,
    DeviceNeeds,
    DeviceRequest,
    DeviceUse,
    SharedCapacity,
)
from central.model.facts import NodeSeen
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from tests.central import factories
from tests.central.scheduler.device_claims.devices import (
    DRIVER,
    GPUS,
    claim,
    device,
    distinct,
    gang,
    pod,
    request,
    same,
    slice_of,
    spec,
)
from tests.central.scheduler.device_claims.test_claims_of_gangs import Cluster
from tests.effort import seeds

GIB = 2**30
COUNTERS = (CounterValue("set", "x", "4"), CounterValue("set", "y", "3"))


def shared(name: str, *capacities: SharedCapacity, **attributes: str | int) -> Device:
    amounts = tuple((f"{DRIVER}/{each.name}", each.value) for each in capacities)
    return replace(device(name, **attributes), capacity=amounts, shared=capacities)


def memory(**policy: object) -> SharedCapacity:
    return SharedCapacity("memory", "80Gi", **policy)  # type: ignore[arg-type]  # a test's shorthand


def of(amount: str, name: str = "r", count: int = 1) -> tuple[DeviceRequest, ...]:
    return request(name, count, capacity=(("memory", amount),) if amount else ())


def given(cluster: Cluster, *facts: object) -> dict[str, list[AllocatedDevice]]:
    found = cluster.cycle(*facts)  # type: ignore[arg-type]  # facts
    return {
        each.name: [one for written in each.device_claims for one in written.devices]
        for each in found
        if isinstance(each, Bind)
    }


def test_pods_share_a_device_until_its_capacity_is_used_up() -> None:
    cluster = Cluster(slice_of("a", shared("gpu-0", memory())), a="r0")
    asked = spec(of("30Gi"))
    assert not cluster.step(*gang(3, asked))
    assert "enough for 2" in cluster.told["g"]
    got = given(cluster, *gang(2, asked, name="h"))
    consumed = (("memory", str(30 * GIB)),)
    assert [one for (one,) in got.values()] == [
        AllocatedDevice("r", DRIVER, "a", "gpu-0", consumed)
    ] * 2
    assert cluster.step(claim("d", spec(of("15Gi"))), pod("q", "d")) == {"q": "a"}
    assert not cluster.step(claim("c", spec(of("6Gi"))), pod("p", "c"))
    assert "0 of 1 devices of gpu.example free where memory >= 6Gi" in cluster.told["p"]


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        ({}, "", 80),
        ({}, "3Gi", 3),
        ({"default": "10Gi"}, "", 10),
        ({"default": "10Gi", "values": ("10Gi", "20Gi")}, "11Gi", 20),
        ({"default": "10Gi", "values": ("10Gi", "20Gi")}, "20Gi", 20),
        ({"default": "10Gi", "values": ("10Gi", "20Gi")}, "21Gi", None),
        ({"default": "10Gi", "least": "4Gi"}, "1Gi", 4),
        ({"default": "10Gi", "least": "4Gi"}, "5Gi", 5),
        ({"default": "10Gi", "least": "4Gi", "most": "24Gi", "step": "8Gi"}, "5Gi", 12),
        ({"default": "10Gi", "least": "4Gi", "most": "20Gi", "step": "8Gi"}, "12Gi", 12),
        ({"default": "10Gi", "least": "4Gi", "most": "20Gi", "step": "8Gi"}, "20Gi", 20),
        ({"default": "10Gi", "least": "4Gi", "most": "20Gi", "step": "8Gi"}, "21Gi", None),
        ({"default": "10Gi", "least": "4Gi", "most": "20Gi"}, "21Gi", None),
        ({"least": "0", "step": "500m"}, "1200m", 1.5),
        ({}, "81Gi", None),
    ],
)
def test_a_request_is_rounded_as_the_policy_says(
    policy: dict[str, object], asked: str, consumed: float | None
) -> None:
    cluster = Cluster(slice_of("a", shared("gpu-0", memory(**policy))), a="r0")
    got = given(cluster, claim("c", spec(of(asked))), pod("p", "c"))
    if consumed is None:
        assert not got
        assert "no devices of gpu.example where memory >= " in cluster.told["p"]
        return
    expected = "1500000000n" if consumed == 1.5 else str(int(consumed * GIB))
    assert got["p"][0].consumed == (("memory", expected),)


def test_a_device_without_capacity_is_shared_by_any_number() -> None:
    cluster = Cluster(slice_of("a", shared("gpu-0")), a="r0")
    got = given(cluster, *gang(20, spec(request())))
    assert len(got) == 20
    assert all(one.consumed == () for (one,) in got.values())


def test_shares_that_others_allocated_count() -> None:
    """As the API server shows them, with a name that the device does not have any more."""
    consumed = ((("memory", "50Gi"), ("gone", "1")),)
    theirs = claim("theirs", allocated=(DeviceId(DRIVER, "a", "gpu-0"),), consumed=consumed)
    cluster = Cluster(slice_of("a", shared("gpu-0", memory())), theirs, a="r0")
    assert not cluster.step(claim("c", spec(of("31Gi"))), pod("p", "c"))
    assert cluster.step(claim("d", spec(of("30Gi"))), pod("q", "d")) == {"q": "a"}
    freed = replace(theirs, allocated=None, consumed=())
    assert cluster.step(freed) == {"p": "a"}


def test_a_device_that_is_allocated_as_a_whole_has_no_shares() -> None:
    whole = claim("whole", allocated=(DeviceId(DRIVER, "a", "gpu-0"),))
    cluster = Cluster(slice_of("a", shared("gpu-0", memory())), whole, a="r0")
    assert not cluster.step(claim("c", spec(of("1Gi"))), pod("p", "c"))


def test_a_device_with_shares_is_not_given_as_a_whole() -> None:
    """Its driver has changed its mind."""
    consumed = ((("memory", "1Gi"),),)
    theirs = claim("theirs", allocated=(DeviceId(DRIVER, "a", "gpu-0"),), consumed=consumed)
    cluster = Cluster(slice_of("a", device("gpu-0")), theirs, a="r0")
    assert not cluster.step(claim("c"), pod("p", "c"))
    assert cluster.step(replace(theirs, allocated=None, consumed=())) == {"p": "a"}


def test_the_fullest_device_that_has_enough_is_filled_first() -> None:
    used = claim(
        "used", allocated=(DeviceId(DRIVER, "a", "gpu-1"),), consumed=((("memory", "60Gi"),),)
    )
    gpus = [shared(f"gpu-{i}", memory()) for i in range(3)]
    cluster = Cluster(slice_of("a", *gpus), used, a="r0")
    assert given(cluster, claim("c", spec(of("15Gi"))), pod("p", "c"))["p"][0].device == "gpu-1"
    assert given(cluster, claim("d", spec(of("15Gi"))), pod("q", "d"))["q"][0].device == "gpu-0"


def test_requests_of_a_claim_share_a_device_unless_they_must_differ() -> None:
    both = (of("10Gi", "r0"), of("10Gi", "r1"))
    cluster = Cluster(slice_of("a", shared("gpu-0", memory(), index=0)), a="r0")
    apart = spec(*both, constraints=(distinct("index"),))
    assert not cluster.step(claim("c", apart), pod("p", "c"))
    assert not cluster.step(claim("d", spec(of("10Gi", "r", 2))), pod("q", "d"))
    got = given(cluster, claim("e", spec(*both)), pod("r", "e"))
    assert [one.device for one in got["r"]] == ["gpu-0", "gpu-0"]


def test_the_reason_counts_devices_that_have_just_enough() -> None:
    gpus = [shared("gpu-0", SharedCapacity("memory", "6Gi")), shared("gpu-1", memory())]
    used = claim(
        "used", allocated=(DeviceId(DRIVER, "a", "gpu-1"),), consumed=((("memory", "75Gi"),),)
    )
    cluster = Cluster(slice_of("a", *gpus), used, a="r0")
    assert not cluster.step(claim("c", spec(of("6Gi", count=2))), pod("p", "c"))
    assert "1 of 2 devices of gpu.example free where memory >= 6Gi" in cluster.told["p"]


def test_nodes_differ_in_which_device_has_more() -> None:
    """Their devices are the same but for the order of the driver, and what each has."""
    large, small = (SharedCapacity("memory", each) for each in ("9", "3"))
    cluster = Cluster(
        slice_of("a", shared("x", large, model="x"), shared("y", small, model="y")),
        slice_of("b", shared("y", large, model="y"), shared("x", small, model="x")),
        a="r0",
        b="r0",
    )
    chosen = f'device.attributes["{DRIVER}"].model == "x"'
    asked = spec(request("r", 1, chosen, capacity=(("memory", "3"),)))
    assert not cluster.step(*gang(5, asked))
    assert "enough for 4" in cluster.told["g"]


@pytest.mark.parametrize(("expression", "chosen"), [("", "gpu-1"), ("!", "gpu-0")])
def test_a_selector_asks_whether_a_device_is_shared(expression: str, chosen: str) -> None:
    cluster = Cluster(slice_of("a", device("gpu-0"), shared("gpu-1")), a="r0")
    asked = spec(request("r", 1, f"{expression}device.allowMultipleAllocations"))
    assert given(cluster, claim("c", asked), pod("p", "c"))["p"][0].device == chosen


def test_a_reservation_withholds_shares() -> None:
    allocation = DeviceAllocation([factories.node("n", gpus=0)])
    allocation.set_class(DRIVER, GPUS)
    allocation.put_node(0, factories.node("n", gpus=0), None)
    allocation.apply(slice_of("n", shared("gpu-0", memory())))
    needs = DeviceNeeds(own=(spec(of("20Gi")),))
    allocation.count(0, needs, 3)
    taken = allocation.taken()
    allocation.count(0, needs, -3)
    assert int(allocation.capacity(needs)[0]) == 4
    allocation.withhold(taken)
    assert int(allocation.capacity(needs)[0]) == 1
    allocation.withhold({})
    assert int(allocation.capacity(needs)[0]) == 4


# --- compared with all ways ----------------------------------------------------

POLICIES: tuple[dict[str, object], ...] = (
    {},
    {"default": "2"},
    {"default": "2", "values": ("1", "2", "4")},
    {"default": "1", "least": "1", "most": "5", "step": "2"},
    {"default": "2", "least": "2"},
)


def expected(capacity: SharedCapacity, asked: str) -> int | None:
    """Looks through all amounts, apart from the code."""
    if not asked:
        return int(capacity.default or capacity.value)
    valid = list(range(int(capacity.value) + 1))
    if capacity.values:
        valid = [int(each) for each in capacity.values]
    elif capacity.least:
        step = int(capacity.step or 1)
        valid = list(range(int(capacity.least), int(capacity.most or capacity.value) + 1, step))
    return next((v for v in valid if v >= int(asked) and v <= int(capacity.value)), None)


Left = dict[tuple[str, str], int]  # by device and capacity; (device, ""): 1, it is free as a whole


def use(one: Device, alternative: DeviceRequest, left: Left) -> Left | None:
    """What is left after one request got the device."""
    asked, now = dict(alternative.capacity), dict(left)
    if not now[one.name, "in use"]:  # its counters are consumed once
        now[one.name, "in use"] = 1
        for counter in one.consumes:
            now["", counter.name] -= int(counter.amount)
            if now["", counter.name] < 0:
                return None
    if one.shared is None:
        now[one.name, ""] -= 1
        has = {name.partition("/")[2]: int(value) for name, value in one.capacity}
        fits = all(has.get(name, -1) >= int(amount) for name, amount in asked.items())
        return now if fits and not now[one.name, ""] else None
    if not left[one.name, ""] or asked.keys() - {each.name for each in one.shared}:
        return None
    for each in one.shared:
        amount = expected(each, asked.get(each.name, ""))
        if amount is None or now[one.name, each.name] < amount:
            return None
        now[one.name, each.name] -= amount
    return now


def ways(of_claim: DeviceClaimSpec, there: Sequence[Device], left: Left) -> Iterator[Left]:
    def requests(place: int, now: Left, values: list[tuple[str, object]]) -> Iterator[Left]:
        if place == len(of_claim.requests):
            yield now
            return
        for alternative in of_claim.requests[place]:
            for some in combinations(there, alternative.count):
                after: Left | None = now
                seen = list(values)
                for one in some:
                    after = None if after is None else use(one, alternative, after)
                    seen.append((alternative.name, one.attributes[0].value))
                if after is not None and agree(of_claim, seen):
                    yield from requests(place + 1, after, seen)

    yield from requests(0, left, [])


def agree(of_claim: DeviceClaimSpec, seen: Sequence[tuple[str, object]]) -> bool:
    for constraint in of_claim.constraints:
        values = [value for _, value in seen]
        if constraint.distinct and len(set(values)) < len(values):
            return False
        if not constraint.distinct and len(set(values)) > 1:
            return False
    return True


def possible(claims: Sequence[DeviceClaimSpec], there: Sequence[Device], left: Left) -> bool:
    if not claims:
        return True
    states = {tuple(sorted(each.items())) for each in ways(claims[0], there, left)}
    return any(possible(claims[1:], there, dict(state)) for state in states)


def random_devices(random: Random) -> list[Device]:
    made = []
    for index in range(random.randint(1, 3)):
        capacities = [
            SharedCapacity(name, str(random.randint(5, 8)), **random.choice(POLICIES))  # type: ignore[arg-type]
            for name in random.sample(("memory", "cores"), random.choice((0, 1, 1, 2)))
        ]
        one = shared(f"d{index}", *capacities, model=random.choice("ab"))
        part = CounterValue("set", random.choice("xy"), str(random.randint(0, 3)))
        one = replace(one, consumes=(part,) * (random.random() < 0.6))
        made.append(one if random.random() < 0.75 else replace(one, shared=None))
    return made


def random_spec(random: Random) -> DeviceClaimSpec:
    requests = []
    for name in ("r0", "r1")[: random.randint(1, 2)]:
        some = random.randint(1, 2) if random.random() < 0.3 else 1
        requests.append(
            tuple(
                DeviceRequest(
                    name if some == 1 else f"{name}/{index}",
                    DRIVER,
                    random.choice((1, 1, 2)),
                    capacity=tuple(
                        (each, str(random.randint(0, 6)))
                        for each in ("cores", "memory")
                        if random.random() < 0.3
                    ),
                )
                for index in range(some)
            )
        )
    kinds = [kind("model") for kind in (same, distinct) if random.random() < 0.15]
    return spec(*requests, constraints=tuple(kinds))


def in_use(random: Random, there: Sequence[Device]) -> tuple[list[DeviceUse], Left]:
    """Random uses by others, and what is left beside them."""
    left = {(one.name, ""): 1 for one in there}
    left |= {(one.name, each.name): int(each.value) for one in there for each in one.shared or ()}
    left |= {(one.name, "in use"): 0 for one in there}
    left |= {("", each.name): int(each.amount) for each in COUNTERS}
    uses = []
    for one in there:
        if random.random() < 0.5:
            continue
        consumed = None
        if one.shared is None or random.random() < 0.1:
            left[one.name, ""] = 0
        else:
            amounts = {each.name: random.randint(0, 4) for each in one.shared}
            consumed = tuple((name, str(amount)) for name, amount in amounts.items())
            for name, amount in amounts.items():
                left[one.name, name] -= amount
        uses.append(DeviceUse(DeviceId(DRIVER, "n", one.name), consumed))
        left[one.name, "in use"] = 1
        for counter in one.consumes:
            left["", counter.name] -= int(counter.amount)
    return uses, left


MOST = 4


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(8))
def test_the_pods_that_fit_are_exact(seed: int) -> None:
    random, outcomes = Random(seed), Counter[object]()
    node: NodeSeen = factories.node("n", gpus=0)
    for _ in range(100):
        there = random_devices(random)
        uses, left = in_use(random, there)
        allocation = DeviceAllocation([node])
        allocation.set_class(DRIVER, GPUS)
        allocation.put_node(0, node, None)
        allocation.apply(slice_of("n", *there, counters=COUNTERS))
        for index, each in enumerate(uses):
            allocation.set_allocated(f"c{index}", (each,))
        one, other = (random_spec(random) for _ in range(2))
        needs, others = DeviceNeeds(own=(one,)), DeviceNeeds(own=(other,))
        most = max(n for n in range(MOST + 1) if possible([one] * n, there, left))
        found = min(int(allocation.capacity(needs)[0]), MOST)
        assert found == most, (one, there, left)
        outcomes[most] += 1
        if 0 < most < MOST:
            allocation.count(0, needs, 1)
            assert int(allocation.capacity(needs)[0]) == most - 1
            allocation.count(0, needs, -1)
        pods = [(needs, random.randint(0, 2)), (others, random.randint(0, 2))]
        claims = [each.own[0] for each, count in pods for _ in range(count)]
        fits = allocation.fits(0, pods)
        assert fits == possible(claims, there, left), (claims, there, left)
        outcomes[fits] += 1
        if fits:
            check(allocation, pods, there, left)
    assert all(outcomes[each] > 3 for each in (0, 1, 2, MOST, True, False)), outcomes


def check(
    allocation: DeviceAllocation,
    pods: Sequence[tuple[DeviceNeeds, int]],
    there: Sequence[Device],
    left: Mapping[tuple[str, str], int],
) -> None:
    """What the pods get is there, and serves their requests."""
    by_name, now = {one.name: one for one in there}, dict(left)
    for needs, count in pods:
        if count:
            allocation.count(0, needs, count)
    for needs, count in pods:
        lots, _ = allocation.confirm(0, needs, count) if count else ([], {})
        assert len(lots) == count
        alternatives = {each.name: each for some in needs.own[0].requests for each in some}
        for lot in lots:
            assert lot is not None
            (devices,) = lot
            names = Counter((each.request, each.device) for each in devices)
            assert not devices or max(names.values()) == 1
            for each in devices:
                one = by_name[each.device]
                after = use(one, alternatives[each.request], now)
                assert after is not None
                if one.shared is not None:
                    assert {n: now[one.name, n] - after[one.name, n] for n, _ in each.consumed or ()} == {
                        name: int(amount) for name, amount in each.consumed or ()
                    }  # fmt: skip
                now = after
