"""Resource claims at the agent's sockets, as the kubelet asks for them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.node import AgentNode
from agent.service import Agent
from protos import wire
from protos.claim_devices import device_name
from protos.names import GPU, GPU_SHARE
from protos.stubs import drahealth_pb2 as health
from protos.topology import ClaimDevice, ClaimPlan, Gpu, NodeTopology
from tests.agent.resources.test_mig_slice import machine as sliced_machine
from tests.agent.resources.test_mig_slice import uuid as slice_uuid
from tests.agent.resources.test_mig_slice import wants
from tests.fakes import machines
from tests.fakes.claim_kubelet import claim_box, named, plan_claims, planned
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.nodebox import NodeBox, gpus, pod


def uuids(*numbers: int) -> list[str]:
    return [machines.uuid(number) for number in numbers]


def records(box: NodeBox) -> dict[str, Any]:
    """The CDI specs of claims, by file name."""
    files = (box.directory / "cdi").glob("lockstep.dev-claim-*.json")
    return {file.name: json.loads(file.read_text()) for file in files}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_claim_gets_the_planned_devices_until_it_ends(version: str) -> None:
    with claim_box() as (box, kubelet):
        kubelet.version = version
        box.start()
        plan_claims(box, planned("a", *uuids(3, 5)))
        first = kubelet.prepare("a")
        assert not first.error
        assert [(d.pool_name, d.device_name) for d in first.devices] == [
            ("node-1", device_name(uuid)) for uuid in uuids(3, 5)
        ]
        assert {tuple(d.request_names) for d in first.devices} == {("main",)}
        (spec,) = records(box).values()
        (device,) = spec["devices"]
        assert f"{spec['kind']}={device['name']}" in first.devices[0].cdi_device_ids
        env = dict(line.split("=", 1) for line in device["containerEdits"]["env"])
        assert env["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuids(3, 5))
        assert env["LOCKSTEP_GPUS"] == "3,5"
        assert kubelet.prepare("a") == first, "the kubelet asks again"
        box.wait_for(6)
        assert kubelet.unprepare("a") == ""
        assert kubelet.unprepare("a") == ""
        assert records(box) == {}
        plan_claims(box)
        box.wait_for(8)


def test_gpus_of_claims_are_off_the_lists_of_the_device_plugin() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        plan_claims(box, planned("a", *uuids(0)), planned("b", *uuids(1)))
        assert not kubelet.prepare("a").error
        box.wait_for(6)  # also the planned one
        eventually(lambda: box.kubelet.allocatable[GPU_SHARE] == 600)
        taken = [gpu for name in "xyz" for gpu in gpus(box.kubelet.add_pod(pod(name, 2)))]
        assert sorted(taken) == [2, 3, 4, 5, 6, 7]


def test_a_gpu_of_a_pod_is_no_claims() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        (mine,) = gpus(box.kubelet.add_pod(pod("web", 1)))
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 700)
        shared = box.kubelet.add_pod(wants("s", (GPU_SHARE, 50)))
        part = int(shared.containers[0].envs["LOCKSTEP_GPUS"])
        eventually(lambda: len(box.agent.node.state.grants) == 2)
        plan_claims(box, planned("a", *uuids(mine)), planned("b", *uuids(part)))
        assert "pod team/web" in kubelet.prepare("a").error
        assert f"GPU {part} is in use in shares" in kubelet.prepare("b").error
        assert records(box) == {}
        assert not box.agent.node.state.prepared
        box.kubelet.remove_pod("uid-web")
        assert not kubelet.prepare("a").error, "the agent looks whether the pod has ended"


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_the_kubelet_hears_of_the_health_of_devices(version: str) -> None:
    with claim_box() as (box, kubelet):
        box.start()
        info = kubelet.register()
        assert f"{version}.DRAResourceHealth" in info.supported_versions
        with grpc.insecure_channel(f"unix:{info.endpoint}") as channel:
            call = channel.unary_stream(
                f"/{version}.DRAResourceHealth/NodeWatchResources",
                request_serializer=health.NodeWatchResourcesRequest.SerializeToString,
                response_deserializer=health.NodeWatchResourcesResponse.FromString,
            )
            lists = call(health.NodeWatchResourcesRequest(), timeout=60)
            first = next(lists).devices
            assert [d.health for d in first] == [health.HEALTHY] * 8
            assert {d.device.pool_name for d in first} == {"node-1"}
            box.change(machines.machine(7))
            last = next(
                found for each in lists if (found := each.devices)[7].health != health.HEALTHY
            )
            assert last[7].device.device_name == device_name(uuids(7)[0])
            assert last[7].message
            lists.cancel()


def test_two_claims_do_not_get_one_gpu() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        plan_claims(box, planned("a", *uuids(0, 1)), planned("b", *uuids(1, 2)))
        assert not kubelet.prepare("a").error
        assert "GPU 1 is in claim team/a" in kubelet.prepare("b").error
        kubelet.unprepare("a")
        assert not kubelet.prepare("b").error


def test_admin_access_reaches_gpus_that_others_have_and_holds_none() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        watched = tuple(ClaimDevice("all", device_name(u), True) for u in uuids(0, 1))
        plan_claims(box, planned("a", *uuids(0)), replace(planned("b"), devices=watched))
        assert not kubelet.prepare("a").error
        answer = kubelet.prepare("b")
        assert not answer.error
        assert [each.device_name for each in answer.devices] == [each.device for each in watched]
        eventually(lambda: box.kubelet.allocatable.get("nvidia.com/gpu") == 7)
        box.restart_agent()
        eventually(lambda: len(box.agent.node.state.prepared) == 2)
        claims = {claim.uid: claim for claim in box.agent.node.state.prepared}
        assert claims["uid-of-b"].devices == watched, "as the record says"
        assert box.agent.node.state.allocated().claimed.keys() == {*uuids(0)}


def test_a_claim_waits_for_its_plan_and_says_so() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        driver = box.agent._claims
        assert driver is not None
        driver._plan_s = 0.1
        assert "the scheduler has not sent its devices" in kubelet.prepare("a").error
        plan_claims(box, replace(planned("a", *uuids(0)), name="other"))
        assert "its uid is that of claim team/other" in kubelet.prepare("a").error
        plan_claims(box, planned("a", *uuids(0)))
        assert not kubelet.prepare("a").error


def test_each_request_has_its_own_devices() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        named = [ClaimDevice("big", device_name(u)) for u in uuids(0, 1)]
        plan = ClaimPlan("team", "a", "uid-of-a", (*named, ClaimDevice("one/x", "gpu-nowhere")))
        plan_claims(box, plan)
        assert "this node has no device GPU-nowhere" in kubelet.prepare("a").error
        small = ClaimDevice("one/x", device_name(uuids(2)[0]))
        plan_claims(box, replace(plan, devices=(*named, small)))
        answer = kubelet.prepare("a")
        asked = {d.request_names[0] for d in answer.devices}
        assert sorted(asked) == ["big", "one/x"]
        assert [len(d.cdi_device_ids) for d in answer.devices] == [1, 0, 1], "once for a request"
        (spec,) = records(box).values()
        assert [
            next(
                line
                for line in device["containerEdits"]["env"]
                if line.startswith("LOCKSTEP_GPUS=")
            )
            for device in spec["devices"]
        ] == ["LOCKSTEP_GPUS=0,1", "LOCKSTEP_GPUS=2"]


def test_slices_are_claimed_one_by_one() -> None:
    equal = {3: dict.fromkeys(range(7, 14), "1g.5gb")}
    with claim_box(sliced_machine(equal)) as (box, kubelet):
        box.start()
        one, two = slice_uuid(3, 7), slice_uuid(3, 8)
        plan_claims(box, planned("a", one), planned("b", two), planned("c", *uuids(3)))
        assert not kubelet.prepare("a").error
        resource = "nvidia.com/mig-1g.5gb"
        eventually(lambda: box.kubelet.allocatable.get(resource) == 5)
        assert "MIG mode" in kubelet.prepare("c").error
        given = box.kubelet.add_pod(wants("p", (resource, 5))).containers[0].envs
        assert {one, two}.isdisjoint(given["LOCKSTEP_SLICES"].split(","))
        assert not kubelet.prepare("b").error
        box.kubelet.remove_pod("uid-p")
        box.kubelet.list_pods()
        box.change(machines.machine(4))  # the slices are gone, and claims have them
        eventually(lambda: not box.agent.node.state.topology.gpus[3].slices)
        eventually(lambda: not box.agent.node.state.grants)
        assert box.agent.node.state.allocated().sliced == {machines.uuid(3)}
        box.restart_agent()
        eventually(lambda: box.agent.node.state.topology.gpus)
        assert {machines.uuid(3)} <= box.agent.node.state.allocated().sliced


def test_a_failing_gpu_is_not_prepared() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        plan_claims(box, planned("a", *uuids(7)))
        box.change(machines.machine(7))
        eventually(lambda: not box.agent.node.state.topology.gpus[7].healthy)
        assert "is not healthy" in kubelet.prepare("a").error


def test_claims_outlive_the_agent_and_the_records_are_the_ledger() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        plan_claims(box, planned("a", *uuids(2)))
        before = kubelet.prepare("a")
        (box.directory / "cdi" / "lockstep.dev-claim-rubbish.json").write_text("{")
        (box.directory / "cdi" / "lockstep.dev-claim-x.json").write_text(
            '{"annotations": {"lockstep.dev/claim": "[1, 2]"}}'
        )
        box.restart_agent()
        assert [claim.name for claim in box.agent.node.state.prepared] == ["a"]
        box.wait_for(7)
        assert kubelet.prepare("a") == before, "without a plan"
        assert kubelet.unprepare("a") == ""
        box.wait_for(8)


def test_a_new_agent_knows_the_pods_devices_before_its_first_claim() -> None:
    with claim_box() as (box, _):
        box.start()
        (mine,) = gpus(box.kubelet.add_pod(pod("web", 1)))
        box.agent.stop()
        agent = Agent(box.settings)
        driver = agent._claims
        assert driver is not None
        driver.begin()
        assert agent.node.state.taken(GPU) == {uuids(mine)[0]: "pod team/web"}
        agent.stop()


def test_a_socket_that_was_removed_comes_back() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        info = kubelet.register("it is too old")
        for path in (*kubelet.registry.iterdir(), Path(info.endpoint)):
            path.unlink()
            eventually(lambda: Path(info.endpoint).exists() and [*kubelet.registry.iterdir()])
            assert kubelet.unprepare("none") == ""
        box.agent.stop()
        assert not [*kubelet.registry.iterdir()], "the kubelet sees that the driver has gone"


def test_a_record_that_cannot_be_written_prepares_nothing() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        (box.directory / "cdi").write_text("no folder")
        plan_claims(box, planned("a", *uuids(0)))
        assert "cannot prepare claim team/a: " in kubelet.prepare("a").error
        assert not box.agent.node.state.prepared
        (box.directory / "cdi").unlink()
        assert not kubelet.prepare("a").error


def test_a_late_allocate_of_a_claimed_gpu_is_refused() -> None:
    """The kubelet acts on a list from before the claim."""
    node = AgentNode("n")
    node.set_topology(
        NodeTopology(gpus=tuple(Gpu(i, u, "A", 1, "") for i, u in enumerate(uuids(0, 1))))
    )
    node.set_intents((), 1, (planned("a", *uuids(0)),))
    assert node.state.taken(GPU) == {uuids(0)[0]: "claim team/a"}
    for resource, device in ((GPU, uuids(0)[0]), (GPU_SHARE, f"{uuids(0)[0]}::3")):
        with pytest.raises(ValueError, match="claim team/a"):
            node.record_allocation(resource, (device,), 0.0)
    node.record_allocation(GPU, tuple(uuids(1)), 0.0)
    with pytest.raises(ValueError, match="just admitted"):
        node.record_claim(planned("b", *uuids(1)))


def test_the_scheduler_sends_claims_and_hears_which_are_prepared(tmp_path: Path) -> None:
    fleet = FakeScheduler(tmp_path)
    fleet.start()
    endpoint = {"server": fleet.address, "ca_file": fleet.ca_file, "token_file": fleet.token_file}
    with claim_box(**endpoint) as (box, kubelet):
        box.start()
        claim = planned("a", *uuids(0))
        fleet.plan(claims=[claim])
        assert not kubelet.prepare("a").error
        eventually(lambda: [r for r in fleet.reports if r.prepared])
        last = [r for r in fleet.reports if r.prepared][-1]
        assert wire.values(ClaimPlan, last.prepared) == (claim,)
        assert last.claims == "beside"
        assert all(gpu.healthy for gpu in box.agent.node.state.topology.gpus), "for the scheduler"
    fleet.stop()


def test_hostile_calls() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        path = replace(planned("a", *uuids(0)), uid="../../x")
        plan_claims(box, path, replace(path, uid="u", name="n\n"))
        claims = [named("a"), named("a")]
        claims[0].uid, claims[1].uid, claims[1].name = "../../x", "u", "n\n"
        for answer in kubelet.call("NodePrepareResources", claims).values():
            assert "not valid in Kubernetes" in answer.error
        for answer in kubelet.call("NodeUnprepareResources", claims).values():
            assert not answer.error
        with pytest.raises(Exception, match="257 claims; a call may have 256"):
            kubelet.call("NodePrepareResources", [named(str(i)) for i in range(257)])


def test_without_whole_gpus_of_the_device_plugin() -> None:
    with claim_box(device_claims="only") as (box, kubelet):
        box.agent.start()
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 800)
        plan_claims(box, planned("a", *uuids(0)))
        assert not kubelet.prepare("a").error
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 700)
        assert GPU not in box.kubelet.capacity


def test_prepared_claims_count_where_claims_are_turned_off() -> None:
    with claim_box() as (box, kubelet):
        box.start()
        plan_claims(box, planned("a", *uuids(2)))
        kubelet.prepare("a")
        box.agent.stop()
        box.configure(device_claims="off")
        box.agent.start()
        box.wait_for(7)
        assert not [*kubelet.registry.iterdir()]
