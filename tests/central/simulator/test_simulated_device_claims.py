"""Device claims in a simulation: made from templates, allocated before their pods start, and freed with them."""

from collections import Counter

import pytest

from protos.names import RACK, SAME_ATTRIBUTE
from tests.central.simulator.device_objects import (
    DRIVER,
    asks,
    claiming,
    device_class,
    devices,
    resource_claim,
    template,
)
from tests.central.simulator.manifests import Simulate, gang, group, node, pod, where

MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def test_a_gang_gets_its_devices_in_one_rack(simulate: Simulate) -> None:
    machines = [node(name, 0, rack=rack) for name, rack in zip("abcd", "xyyz", strict=True)]
    first, *members = gang("g", 4, 0, required=RACK)
    found = simulate(
        *machines,
        *(devices(name, 4) for name in "abcd"),
        device_class(),
        template("pair", asks(2, MEMORY)),
        first,
        *(claiming(member, "pair") for member in members),
    )
    assert sorted(where(found).values()) == ["b", "b", "c", "c"]


def test_a_gang_gets_the_same_rails_on_each_node(simulate: Simulate) -> None:
    """Rail 0 is used on one node, rail 1 on another."""
    first, *members = gang("g", 2, 0)
    for member in members:
        member["metadata"].setdefault("annotations", {})[SAME_ATTRIBUTE] = f"{DRIVER}/rail"
    name = {"pool": None, "driver": DRIVER, "request": "gpu"}
    busy = [
        resource_claim(
            f"used-{node}",
            asks(),
            allocation={"devices": {"results": [{**name, "pool": node, "device": f"gpu-{i}"}]}},
        )
        for i, node in enumerate("ab")
    ]
    found = simulate(
        *(node(name, 0) for name in "abc"),
        *(devices(name, 2, rail=[0, 1]) for name in "ab"),
        devices("c", 1, rail=[0]),
        device_class(),
        template("one", asks()),
        *busy,
        first,
        *(claiming(member, "one") for member in members),
    )
    assert sorted(where(found).values()) == ["b", "c"]


@pytest.mark.parametrize("name", ["memory", f"{DRIVER}/memory"])
def test_a_request_for_capacity_gets_devices_that_have_it(simulate: Simulate, name: str) -> None:
    large, small = devices("a", 2), devices("b", 2)
    for each in small["spec"]["devices"]:
        each["capacity"]["memory"]["value"] = "40Gi"
    found = simulate(
        *(node(name, 0) for name in "ab"),
        large,
        small,
        device_class(),
        template("much", asks(1, capacity={"requests": {name: "60Gi"}})),
        template("other", asks(1, capacity={"requests": {"cores": "1"}})),
        *(claiming(pod(f"p{i}"), "much") for i in range(3)),
        claiming(pod("q"), "other"),
    )
    assert set(where(found).values()) == {"a"}
    assert len(where(found)) == 2
    (reason,) = [each["reason"] for each in found["waiting"] if each["name"] == "q"]
    assert "no devices of gpu.example.com where cores >= 1" in reason


def test_pods_share_gpus_by_their_memory(simulate: Simulate) -> None:
    """The next ones follow when the shares of the first are released."""
    there = devices("a", 2)
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}}
    for each in there["spec"]["devices"]:
        each |= {"allowMultipleAllocations": True}
        each["capacity"]["memory"]["requestPolicy"] = policy
    asked = asks(1, capacity={"requests": {"memory": "31Gi"}})  # 40Gi by the policy
    found = simulate(
        node("a", 0),
        there,
        device_class(),
        template("part", asked),
        *(claiming(pod(f"p{i}", runs_for="1h"), "part") for i in range(5)),
    )
    assert [each["at_s"] < 3600 for each in found["placements"]] == [True] * 4 + [False]


def test_a_gang_gets_parts_of_gpus(simulate: Simulate) -> None:
    """Each node has a GPU, as a whole or as two halves; the driver publishes the counters in a slice of their own."""
    published = []
    for name in "ab":
        whole, left, right = (made := devices(name, 3, part=["whole", "half", "half"]))["spec"][
            "devices"
        ]
        for each, memory in ((whole, "80Gi"), (left, "40Gi"), (right, "40Gi")):
            used = {"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}
            each["consumesCounters"] = [used]
        made["spec"]["pool"]["resourceSliceCount"] = 2
        spec = {key: made["spec"][key] for key in ("driver", "nodeName", "pool")}
        counters = {"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}
        other = {**made, "metadata": {"name": f"{name}-counters"}}
        published += [made, {**other, "spec": {**spec, "sharedCounters": [counters]}}]
    chosen = f'device.attributes["{DRIVER}"].part == '
    first, *members = gang("g", 3, 0)
    found = simulate(
        *(node(name, 0) for name in "ab"),
        *published,
        device_class(),
        template("half", asks(1, chosen + '"half"')),
        template("whole", asks(1, chosen + '"whole"')),
        first,
        *(claiming(member, "half") for member in members),
        claiming(pod("p"), "whole"),
    )
    assert Counter(where(found).values()) == {"a": 2, "b": 1}, "no GPU is left as a whole"


def test_a_gang_waits_until_all_of_its_devices_are_free(simulate: Simulate) -> None:
    busy = claiming(pod("busy", runs="30s"), "one")
    first, *members = gang("g", 4, 0)
    found = simulate(
        node("a", 0),
        devices("a", 4),
        device_class(),
        template("one", asks()),
        busy,
        first,
        *(claiming(member, "one") for member in members),
    )
    assert {p["pod"]: p["at_s"] for p in found["placements"]} == {
        "busy": 0.0,
        **{f"g-{rank}": 30.0 for rank in range(4)},
    }


def test_a_gang_that_never_fits_says_which_devices_it_lacks(simulate: Simulate) -> None:
    first, *members = gang("g", 2, 0)
    found = simulate(
        node("a", 0),
        devices("a", 3),
        device_class(),
        template("pair", asks(2)),
        first,
        *(claiming(member, "pair") for member in members),
    )
    (waits,) = found["waiting"]
    assert waits["reason"] == (
        f"needs 2 pods x 2 devices of {DRIVER}; the cluster fits 1 of 2 (short of devices of claims: enough for 1)"
    )


def test_two_halves_are_not_one_device_and_the_better_choice_comes_first(
    simulate: Simulate,
) -> None:
    """firstAvailable: a model that one node has only once."""
    h100, a100 = (f'device.attributes["{DRIVER}"].model == "{model}"' for model in ("h100", "a100"))
    choices = [
        {"name": name, "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": chosen}}]}
        for name, chosen in (("best", h100), ("other", a100))
    ]
    wish = {"devices": {"requests": [{"name": "gpu", "firstAvailable": choices}]}}
    first, *members = gang("g", 3, 0)
    found = simulate(
        node("a", 0),
        devices("a", 3, model=["h100", "a100", "a100"]),
        device_class(),
        template("wish", wish),
        first,
        *(claiming(member, "wish") for member in members),
    )
    assert len(where(found)) == 3


def test_pods_share_a_claim_on_one_node(simulate: Simulate) -> None:
    members = [claiming(pod(f"g-{i}", gang="g"), claims=("shared",)) for i in range(3)]
    found = simulate(
        node("a", 0),
        node("b", 0),
        devices("a", 1),
        devices("b", 1),
        device_class(),
        resource_claim("shared", asks()),
        group("g", 3),
        *members,
    )
    assert len(where(found)) == 3
    assert len(set(where(found).values())) == 1


def test_an_allocated_claim_keeps_its_devices(simulate: Simulate) -> None:
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    found = simulate(
        node("a", 0),
        devices("a", 1),
        device_class(),
        resource_claim("theirs", asks(), allocation={"devices": {"results": [result]}}),
        template("one", asks()),
        claiming(pod("p"), "one"),
    )
    (waits,) = found["waiting"]
    assert f"0 of 1 devices of {DRIVER} free" in waits["reason"]


def test_a_pod_of_higher_priority_gets_the_devices_of_another(simulate: Simulate) -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    found = simulate(
        urgent,
        node("a", 0),
        devices("a", 2),
        device_class(),
        template("pair", asks(2)),
        claiming(pod("low", runs="1h"), "pair"),
        claiming(pod("high", at="10s", priority_class="urgent"), "pair"),
    )
    assert [each["pod"] for each in found["evictions"]] == ["low"]
    assert where(found)["high"] == "a"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (asks(derivedAttributes=[{"name": "a"}]), "exactly.derivedAttributes: not supported"),
        (asks(allocationMode="Some"), "exactly.allocationMode: 'Some' is not supported"),
    ],
)
def test_a_claim_with_an_unsupported_field_keeps_its_pod_pending(
    simulate: Simulate, spec: dict[str, object], why: str
) -> None:
    found = simulate(
        node("a", 0),
        devices("a", 1),
        device_class(),
        resource_claim("mine", spec),
        claiming(pod("p"), claims=("mine",)),
    )
    (waits,) = found["waiting"]
    assert why in waits["reason"]


def test_admin_access_reaches_devices_in_use(simulate: Simulate) -> None:
    found = simulate(
        node("a", 0),
        devices("a", 1),
        device_class(),
        template("one", asks(1)),
        template("watch", asks(1, adminAccess=True)),
        claiming(pod("user", runs="1h"), "one"),
        claiming(pod("monitor", at="10s", runs="10s"), "watch"),
        claiming(pod("second", at="30s"), "one"),
    )
    assert where(found)["monitor"] == "a"
    assert not found["evictions"]
    at = {each["pod"]: each["at_s"] for each in found["placements"]}
    assert at["monitor"] < 60
    assert at["second"] >= 3600, "the device is still the first pod's"


def test_a_bad_template_is_named(simulate: Simulate) -> None:
    from json import dumps

    bad = template("bad", {"devices": {"requests": [{"name": "gpu"}]}})
    simulate.text(dumps(bad), code=2)
    assert (
        "spec.spec: spec.devices.requests[gpu]: needs exactly or firstAvailable" in simulate.errors
    )


def test_a_gang_that_waits_for_devices_is_not_starved_by_small_ones(simulate: Simulate) -> None:
    """Each second a pod of one device comes, and runs ten: the gang needs all four at once."""
    first, *members = gang("g", 4, 0, runs="5s")
    small = [claiming(pod(f"p{i}", at=f"{i}s", runs="10s"), "one") for i in range(60)]
    late = [claiming(member, "one") for member in members]
    for each in (first, *late):
        each["metadata"]["annotations"]["lockstep.dev/arrives-at"] = "5s"
    found = simulate(
        node("a", 0), devices("a", 4), device_class(), template("one", asks()), *small, first, *late
    )
    at = {each["pod"]: each["at_s"] for each in found["placements"]}
    assert {at[f"g-{rank}"] for rank in range(4)} == {21.0}


def test_a_dump_of_a_cluster_with_running_pods(simulate: Simulate) -> None:
    """Their claims were made and allocated by another scheduler, and are deallocated when they end."""
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    made = resource_claim(
        "runs-x7",
        asks(),
        allocation={"devices": {"results": [result]}},
        reservedFor=[{"resource": "pods", "name": "runs", "uid": "real"}],
    )
    made["metadata"]["ownerReferences"] = [{"kind": "Pod", "controller": True, "uid": "real"}]
    running = claiming(pod("runs", on="a", runs="20s"), "one")
    running["metadata"]["uid"] = "real"
    running["status"] = {"resourceClaimStatuses": [{"name": "one", "resourceClaimName": "runs-x7"}]}
    late = claiming(pod("late", at="1s"), "one")
    objects = (node("a", 0), devices("a", 1), device_class(), template("one", asks()))
    found = simulate(*objects, made, running, late)
    assert {each["pod"]: each["at_s"] for each in found["placements"]} == {"late": 20.0}


def test_an_extended_resource_that_a_class_serves(simulate: Simulate) -> None:
    """The pod that waits starts when the claim of the first one ends with it."""
    found = simulate(
        node("a", 0),
        devices("a", 2),
        device_class(extendedResourceName="nvidia.com/gpu"),
        pod("first", 2, runs="30s"),
        pod("second", 1),
    )
    assert {p["pod"]: p["at_s"] for p in found["placements"]} == {"first": 0.0, "second": 30.0}
