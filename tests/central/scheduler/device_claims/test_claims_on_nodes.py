"""The claims of which each node's agent is told: those with its devices, whoever allocated them."""

import random
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.device_claims import DeviceClaimGone, DeviceClaimSeen, DeviceId
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from protos.names import DRA_DRIVER
from protos.topology import ClaimDevice, ClaimPlan
from tests.central.scheduler.device_claims.devices import claim
from tests.effort import seeds


def allocated(name: str, *devices: str, uid: str = "") -> DeviceClaimSeen:
    """devices: DRIVER/POOL/NAME"""
    ids = tuple(DeviceId(*each.split("/")) for each in devices)
    requests = tuple(f"r{number}" for number in range(len(ids)))
    made = claim(name, allocated=ids, requests=requests)
    return replace(made, uid=uid or made.uid)


def apply(scheduler: Scheduler, *facts: DeviceClaimSeen | DeviceClaimGone) -> set[str]:
    """Returns the nodes whose agents are told."""
    scheduler.state.nodes_to_notify.clear()
    cycle.apply_facts(scheduler, facts, 0.0)
    return set(scheduler.state.nodes_to_notify)


def test_a_claim_goes_to_the_node_of_its_devices_and_leaves_it_when_it_ends() -> None:
    made = new_scheduler(("rack",))
    own = allocated("c", "gpu.example/a/x", f"{DRA_DRIVER}/a/gpu-1", f"{DRA_DRIVER}/a/gpu-0")
    assert apply(made, own) == {"a"}
    plan = ClaimPlan("ns", "c", "uid-c", (ClaimDevice("r1", "gpu-1"), ClaimDevice("r2", "gpu-0")))
    assert made.state.node_plan("a").claims == (plan,)
    assert made.state.node_plan("b").claims == ()
    assert apply(made, replace(own, reserved=("uid-p",))) == set(), "its devices are the same"
    assert apply(made, claim("c")) == {"a"}
    assert made.state.node_plan("a").claims == ()
    assert apply(made, own) == {"a"}
    assert apply(made, DeviceClaimGone("ns", "c")) == {"a"}
    assert made.state.node_plan("a").claims == ()


def test_claims_of_other_drivers_concern_no_agent() -> None:
    made = new_scheduler(("rack",))
    assert apply(made, allocated("c", "gpu.example/a/x")) == set()
    assert made.state.node_plan("a").claims == ()


def test_a_claim_that_was_made_again_has_another_uid() -> None:
    made = new_scheduler(("rack",))
    apply(made, allocated("c", f"{DRA_DRIVER}/a/gpu-0"))
    assert apply(made, allocated("c", f"{DRA_DRIVER}/b/gpu-0", uid="new")) == {"a", "b"}
    assert made.state.node_plan("a").claims == ()
    assert [each.uid for each in made.state.node_plan("b").claims] == ["new"]


@pytest.mark.parametrize("seed", seeds(5))
def test_any_history_of_claims_ends_with_those_that_are_allocated(seed: int) -> None:
    rng = random.Random(seed)
    made, there = new_scheduler(("rack",)), dict[str, DeviceClaimSeen]()
    shown = {node: made.state.node_plan(node).claims for node in "ab"}
    for _ in range(200):
        name = rng.choice("stuv")
        devices = [
            f"{rng.choice((DRA_DRIVER, 'gpu.example'))}/{rng.choice('ab')}/gpu-{rng.randrange(4)}"
            for _ in range(rng.randrange(3))
        ]
        gone = rng.random() < 0.3
        fact = allocated(name, *devices, uid=rng.choice(("1", "2")))
        told = apply(made, DeviceClaimGone("ns", name) if gone else fact)
        if gone:
            there.pop(name, None)
        else:
            there[name] = fact
        for node in "ab":
            wanted = {
                each.uid + each.name: {
                    device.device
                    for device in each.allocated or ()
                    if (device.driver, device.pool) == (DRA_DRIVER, node)
                }
                for each in there.values()
            }
            found = made.state.node_plan(node).claims
            assert {each.uid + each.name: {d.device for d in each.devices} for each in found} == {
                key: names for key, names in wanted.items() if names
            }
            assert node in told or found == shown[node], "an agent is told of each change"
            shown[node] = found
