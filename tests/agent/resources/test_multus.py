"""NICs that one pod has alone have the ids that Multus hands to CNI plugins: a hollow kubelet, a real agent, and what
Multus does with both: it reads pod-resources, and the file of the id that it finds there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.kubelet.pod_resources import PodResourcesClient
from agent.machine.facts import Machine
from agent.machine.survey import survey
from agent.nics import nic_shares
from agent.resources import table
from agent.resources.device_info import DeviceInfoFiles
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos import nic_ids
from protos.names import GPU, RDMA
from protos.topology import Grant, NodeTopology
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box

PHYSICAL = "0000:e0:00.0"
BOTH = ("0000:e0:00.2", "0000:e0:00.3")  # virtual functions of mlx5_0


def machine() -> Machine:
    """Eight GPUs with a NIC each; two virtual functions of the first."""
    made = machines.machine(cards=8)
    sysfs = made.sysfs
    pci, nics = list(sysfs.pci), list(sysfs.infiniband)
    owner = next(each for each in sysfs.pci if each.address == PHYSICAL)
    for number, address in enumerate(BOTH, 20):
        path = f"{owner.path[:-1]}{address[-1]}"
        pci.append(replace(owner, address=address, physfn=PHYSICAL, path=path))
        nics.append(replace(nics[0], name=f"mlx5_{number}", pci=address, uverbs=f"uverbs{number}"))
    return replace(made, sysfs=replace(sysfs, pci=tuple(pci), infiniband=tuple(nics)))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[NodeBox]:
    with node_box(machine()) as made:
        made.configure(rdma_devices=("vf",), device_info_dir=tmp_path / "devinfo/dp")
        made.start()
        eventually(lambda: made.kubelet.allocatable.get(RDMA) == 2)
        yield made


def pod(name: str, nics: int) -> KubeletPod:
    return KubeletPod(f"uid-{name}", "team", name, (Container("c0", ((RDMA, nics),)),))


def networks(box: NodeBox, name: str) -> list[dict[str, str]]:
    """What Multus finds: the sorted device ids of the pod, and the file of each."""
    client = PodResourcesClient(box.directory / "pod-resources/kubelet.sock")
    try:
        [row] = [each for each in client.list(10) if each.pod == name]
    finally:
        client.close()
    folder = box.settings.device_info_dir
    assert folder is not None
    found = []
    for device in sorted(row.ids(RDMA)):
        file = folder / f"{RDMA.replace('/', '-')}-{device}-device.json"
        told = json.loads(file.read_text())
        assert (told["type"], told["version"]) == ("pci", "1.1.0")
        assert told["pci"]["pci-address"] == device
        found.append(told["pci"])
    return found


def test_the_planned_function_by_its_address(box: NodeBox) -> None:
    box.plan(Grant("team", "a", "c0", RDMA, ("mlx5_21",)))
    given = box.kubelet.add_pod(pod("a", 1))
    assert given.ok
    assert given.containers[0].envs["LOCKSTEP_HCAS"] == "mlx5_21"
    assert networks(box, "a") == [
        {"pci-address": BOTH[1], "rdma-device": "mlx5_21", "pf-pci-address": PHYSICAL}
    ]
    assert [row[RDMA] for row in box.kubelet.held().values()] == [(BOTH[1],)]
    box.restart_agent()
    eventually(lambda: box.kubelet.allocatable.get(RDMA) == 2)
    eventually(lambda: box.agent.node.state.grants != ())
    other = box.kubelet.add_pod(pod("b", 1))
    assert other.containers[0].envs["LOCKSTEP_HCAS"] == "mlx5_20"
    assert not box.kubelet.add_pod(pod("c", 1)).ok


def test_a_pod_with_two_networks_and_the_next_one_with_the_same(box: NodeBox) -> None:
    for name in ("first", "second"):
        assert box.kubelet.add_pod(pod(name, 2)).ok
        assert [each["rdma-device"] for each in networks(box, name)] == ["mlx5_20", "mlx5_21"]
        box.kubelet.remove_pod(f"uid-{name}")
        eventually(lambda: box.agent.node.state.grants == ())


def test_a_folder_that_cannot_be_written_keeps_no_pod_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with node_box(machine()) as box:
        box.configure(rdma_devices=("vf",), device_info_dir=tmp_path / "file/dp")
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(RDMA) == 2)
        assert box.kubelet.add_pod(pod("a", 1)).ok
    assert "no device-info file for Multus" in caplog.text


def shared(shares: int) -> NodeTopology:
    policy = nic_shares.NicPolicy(shares)
    return nic_shares.with_shares(survey(machine()), ("mlx5_[01]",), policy)


def test_ids_of_shared_nics_and_of_those_that_one_pod_has() -> None:
    one, four = shared(1), shared(4)
    assert nic_ids.ids(one.hcas[0], one) == (PHYSICAL,)
    assert nic_ids.ids(four.hcas[0], four) == tuple(f"mlx5_0::{number}" for number in range(4))
    for topology in (one, four):  # after a change of --rdma-shares pods hold ids of both kinds
        name = nic_ids.names(topology)
        assert [name(each) for each in (PHYSICAL, "mlx5_0::3", "mlx5_77")] == [
            *("mlx5_0", "mlx5_0"),
            "mlx5_77",
        ]
    ports = replace(one, hcas=tuple(replace(hca, pci=PHYSICAL) for hca in one.hcas))
    assert nic_ids.ids(ports.hcas[1], ports) == ("mlx5_1::0",), "two ports of one device"


def holding(resource: str, *ids: str) -> tuple[Grant, ...]:
    return (Grant("team", "old", "c0", resource, ids),)


def test_a_nic_is_not_given_twice_by_two_ids() -> None:
    topology = shared(1)
    assert nic_ids.held_otherwise(topology, holding(RDMA, "mlx5_0::0")) == {"mlx5_0"}
    assert nic_ids.held_otherwise(topology, holding(RDMA, PHYSICAL, "mlx5_2::0")) == set()
    assert nic_ids.held_otherwise(shared(4), holding(RDMA, PHYSICAL)) == set()
    by_rail = holding("lockstep.dev/rail-0", PHYSICAL)
    assert nic_ids.held_otherwise(topology, by_rail) == {"mlx5_0"}, (
        "a rail before the agent was started again"
    )


def test_a_pod_that_holds_a_function_by_its_earlier_id(box: NodeBox) -> None:
    """The kubelet takes the other id for free; the agent says that it is not."""
    resource = table.make(RDMA, box.agent._services)
    state = box.agent.node.state
    assert [each.healthy for each in resource.devices(state)] == [True, True]
    early = replace(state, grants=(Grant("team", "old", "c0", RDMA, ("mlx5_21::0",)),))
    assert [(each.id, each.healthy) for each in resource.devices(early)] == [
        (BOTH[0], True),
        (BOTH[1], False),
    ]


def test_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    files = DeviceInfoFiles(tmp_path)
    topology = shared(1)
    files.write([PHYSICAL], topology)
    files.write([PHYSICAL], replace(topology, hcas=(replace(topology.hcas[0], name="mlx5_9"),)))
    [path] = tmp_path.iterdir()
    assert path.name == f"lockstep.dev-rdma-{PHYSICAL}-device.json"
    assert json.loads(path.read_text())["pci"]["rdma-device"] == "mlx5_9"
    assert GPU not in path.name


def test_a_nic_with_one_share_is_for_one_pod() -> None:
    with node_box(machine()) as box:
        box.configure(rdma_devices=("mlx5_[01]",), rdma_shares=1)
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(RDMA) == 2)
        box.plan(Grant("team", "a", "c0", RDMA, ("mlx5_1",)))
        first = box.kubelet.add_pod(pod("a", 1))
        assert first.containers[0].envs["LOCKSTEP_HCAS"] == "mlx5_1"
        box.restart_agent()
        eventually(lambda: box.kubelet.allocatable.get(RDMA) == 2)
        eventually(lambda: box.agent.node.state.grants != ())
        box.plan(Grant("team", "b", "c0", RDMA, ("mlx5_1",)))  # the scheduler is behind
        second = box.kubelet.add_pod(pod("b", 1))
        assert second.containers[0].envs["LOCKSTEP_HCAS"] == "mlx5_0"
        assert not box.kubelet.add_pod(pod("c", 1)).ok
        box.kubelet.remove_pod("uid-a")
        assert box.kubelet.add_pod(pod("d", 1)).containers[0].envs["LOCKSTEP_HCAS"] == "mlx5_1"
