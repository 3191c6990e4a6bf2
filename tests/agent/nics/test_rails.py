"""NICs by rail: lockstep.dev/rail-0 and on, at a hollow kubelet that behaves as the real one does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine.survey import survey
from agent.nics import nic_shares, rails
from central.standalone.hollow_kubelet import Admission, Container, KubeletPod
from protos import nic_access, nic_ids, wire
from protos.names import GPU, GPU_SHARE, RAIL, RDMA
from protos.topology import Grant, NodeTopology
from tests.agent.resources.test_multus import BOTH, PHYSICAL, machine
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box

EIGHT = machines.machine(cards=8)  # and mlx5_8, for storage


def offered(*patterns: str, shares: int = 0) -> NodeTopology:
    return nic_shares.with_shares(survey(EIGHT), patterns, nic_shares.NicPolicy(shares))


def by_rail(topology: NodeTopology) -> dict[str, str]:
    return {hca.name: hca.rail.removeprefix(RAIL) for hca in topology.hcas if hca.shares}


def test_the_rail_of_gpu_0_first() -> None:
    found = rails.with_rails(offered("auto"), ("auto",))
    assert by_rail(found) == {f"mlx5_{number}": str(number) for number in range(8)}
    assert found.hcas[8].rail == "", "a NIC that is not offered is on no rail"
    turned = replace(EIGHT.sysfs, infiniband=tuple(reversed(EIGHT.sysfs.infiniband)))
    again = survey(replace(EIGHT, sysfs=turned))
    again = nic_shares.with_shares(again, ("auto",), nic_shares.NicPolicy())
    assert by_rail(rails.with_rails(again, ("auto",))) == by_rail(found)


def test_the_gpus_give_the_order_not_the_names() -> None:
    """The names of NICs follow their PCI addresses, the wiring to rails follows the GPUs."""
    topology = offered("auto")
    count = len(topology.gpus)
    mirror = [*reversed(range(count)), *range(count, count + len(topology.hcas))]
    links = tuple(tuple(topology.links[row][column] for column in mirror) for row in mirror)
    found = rails.with_rails(replace(topology, links=links), ("auto",))
    assert by_rail(found)["mlx5_7"] == "0"
    assert by_rail(found)["mlx5_0"] == "7"


def test_a_list_says_which_nic_is_which_rail() -> None:
    found = rails.with_rails(offered("mlx5_[0-3]"), ("mlx5_2", ["mlx5_0", "mlx5_1"][0], "mlx5_7"))
    assert by_rail(found) == {"mlx5_0": "1", "mlx5_1": "", "mlx5_2": "0", "mlx5_3": ""}
    assert rails.empty(found, ("mlx5_2", "mlx5_0", "mlx5_7")) == ("mlx5_7",)
    assert rails.with_rails(offered("auto"), ("none",)) == offered("auto")


@pytest.mark.parametrize("text", ["auto,mlx5_0", "all", "", ",".join(["mlx5_0"] * 129)])
def test_what_is_no_list_of_rails(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rails.parse(text)


def test_names_of_rails() -> None:
    for name in (f"{RAIL}0", f"{RAIL}127"):
        assert nic_ids.is_rail(name)
        assert nic_ids.are_nics(name)
    for name in (RDMA, RAIL, f"{RAIL}x", f"{RAIL}1234", "rail-0", f"{RAIL}\u0663", GPU):
        assert not nic_ids.is_rail(name)


def test_rails_reach_the_scheduler_and_its_users() -> None:
    found = rails.with_rails(offered("auto"), ("auto",))
    assert wire.from_topology(wire.to_topology(found)) == found
    [line] = nic_access.lines(found)
    assert "mlx5_3 (lockstep.dev/rail-3)" in line


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box(EIGHT) as made:
        made.configure(rdma_rails=("auto",), rdma_shares=2)
        made.start()
        shares = {f"{RAIL}{number}": 2 for number in range(8)}
        eventually(lambda: made.kubelet.allocatable == {GPU: 8, GPU_SHARE: 800, **shares})
        yield made


def pod(name: str, *wants: tuple[str, int]) -> KubeletPod:
    return KubeletPod(f"uid-{name}", "team", name, (Container("c0", wants),))


def variables(admission: Admission) -> dict[str, str]:
    assert admission.ok, admission
    return dict(admission.containers[0].envs)


def test_a_pod_gets_the_rails_that_it_names(box: NodeBox) -> None:
    given = variables(box.kubelet.add_pod(pod("a", (f"{RAIL}6", 1), (GPU, 2), (f"{RAIL}1", 1))))
    assert given["LOCKSTEP_RAIL_1"] == "mlx5_1"
    assert given["LOCKSTEP_RAIL_6"] == "mlx5_6"
    assert given["PCIDEVICE_LOCKSTEP_DEV_RAIL_6"] == survey(EIGHT).hcas[6].pci
    assert "NCCL_IB_HCA" not in given, "the kubelet would keep the value of one rail"
    assert variables(box.kubelet.add_pod(pod("b", (f"{RAIL}6", 1))))["LOCKSTEP_RAIL_6"] == "mlx5_6"
    assert not box.kubelet.add_pod(pod("c", (f"{RAIL}6", 1))).ok, "both shares are taken"
    box.kubelet.remove_pod("uid-a")
    eventually(lambda: box.kubelet.add_pod(pod("d", (f"{RAIL}6", 1))).ok)


def test_a_rail_of_virtual_functions_for_multus(tmp_path: Path) -> None:
    with node_box(machine()) as box:
        box.configure(
            rdma_devices=("vf",), rdma_rails=("auto",), device_info_dir=tmp_path / "devinfo/dp"
        )
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(f"{RAIL}0") == 2)
        assert RDMA not in box.kubelet.allocatable
        given = variables(box.kubelet.add_pod(pod("a", (f"{RAIL}0", 2))))
        assert given["PCIDEVICE_LOCKSTEP_DEV_RAIL_0"] == ",".join(BOTH)
        assert [row[f"{RAIL}0"] for row in box.kubelet.held().values()] == [BOTH]
        for address, name in zip(BOTH, ("mlx5_20", "mlx5_21"), strict=True):
            file = tmp_path / f"devinfo/dp/lockstep.dev-rail-0-{address}-device.json"
            assert json.loads(file.read_text())["pci"] == {
                "pci-address": address,
                "rdma-device": name,
                "pf-pci-address": PHYSICAL,
            }


def test_a_nic_that_changes_its_resource_is_not_given_twice(box: NodeBox) -> None:
    """The kubelet takes its share for free, because it is of another resource."""
    box.agent.stop()
    box.configure(rdma_shares=1)
    box.agent.start()
    eventually(lambda: box.kubelet.allocatable.get(f"{RAIL}3") == 1)
    assert box.kubelet.add_pod(pod("a", (f"{RAIL}3", 1))).ok
    box.agent.stop()
    box.configure(rdma_rails=("none",))
    box.agent.start()
    eventually(lambda: box.kubelet.allocatable.get(RDMA) == 7)
    assert not box.kubelet.add_pod(pod("b", (RDMA, 8))).ok
    given = variables(box.kubelet.add_pod(pod("c", (RDMA, 7))))
    assert "mlx5_3" not in given["LOCKSTEP_HCAS"].split(",")


def test_a_resource_that_is_gone_is_refused(box: NodeBox) -> None:
    from agent.resources import nic_allocation

    state = box.agent.node.state
    with pytest.raises(ValueError, match=r"not offered as lockstep[.]dev/rail-2"):
        nic_allocation.response(["mlx5_0::0"], state.topology, resource=f"{RAIL}2")


def test_observed_rails_are_reported(box: NodeBox) -> None:
    assert box.kubelet.add_pod(pod("a", (f"{RAIL}5", 1))).ok
    held = Grant("team", "a", "c0", f"{RAIL}5", ("mlx5_5::0",))
    eventually(lambda: box.agent.node.state.grants == (held,))
