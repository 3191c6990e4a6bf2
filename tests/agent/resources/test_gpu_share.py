"""GPU shares at a hollow kubelet: a GPU is allocated whole or in shares, never both."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import allocations
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.survey import survey
from agent.resources.device_resource import ContainerDevices, DeviceRequest
from agent.resources.gpu_share import preferred
from agent.settings import Settings
from agent.sharing.enforcement import Capabilities, with_sharing
from agent.sharing.sharing_mode import parse
from central.standalone.hollow_kubelet import Admission, Container, KubeletPod
from protos.gpu_sharing import SHARE
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.topology import Grant
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, intent, node_box, pod

TOPOLOGY = with_sharing(survey(machines.machine()), parse("all"), Capabilities("", "", ""), {}, {})


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box() as made:
        made.start()
        eventually(lambda: made.kubelet.allocatable.get(GPU_SHARE) == 800)
        yield made


def part(name: str, *sizes: int, init: int = 0) -> KubeletPod:
    return KubeletPod(
        f"uid-{name}",
        "team",
        name,
        tuple(Container(f"c{i}", ((GPU_SHARE, size),)) for i, size in enumerate(sizes)),
        (Container("i0", ((GPU_SHARE, init),)),) if init else (),
    )


def plan(name: str, gpu: int, size: int, container: str = "c0") -> Grant:
    return Grant("team", name, container, GPU_SHARE, (machines.uuid(gpu),), ((SHARE, size),))


def told(admission: Admission, container: int = 0) -> tuple[str, str]:
    """The GPU and the share, from the container's variables."""
    assert admission.ok, admission
    envs = admission.containers[container].envs
    assert envs["NVIDIA_VISIBLE_DEVICES"] == machines.uuid(int(envs["LOCKSTEP_GPUS"]))
    return envs["LOCKSTEP_GPUS"], envs["LOCKSTEP_GPU_SHARE"]


def assert_allocatable(box: NodeBox, whole: int, shares: int) -> None:
    eventually(
        lambda: (
            (box.kubelet.allocatable.get(GPU), box.kubelet.allocatable.get(GPU_SHARE))
            == (whole, shares)
        )
    )


def test_unequal_shares_fill_one_gpu_before_the_next(box: NodeBox) -> None:
    first = told(box.kubelet.add_pod(part("a", 30)))
    for name, size in (("b", 50), ("c", 20)):
        assert told(box.kubelet.add_pod(part(name, size))) == (first[0], str(size))
    assert told(box.kubelet.add_pod(part("d", 1)))[0] != first[0]


def test_a_gpu_in_shares_leaves_the_whole_ones_and_comes_back(box: NodeBox) -> None:
    box.kubelet.add_pod(part("a", 30))
    assert_allocatable(box, 7, 800)
    box.kubelet.add_pod(pod("w", 7))
    assert_allocatable(box, 7, 100)
    box.kubelet.end_pod("uid-a")
    assert_allocatable(box, 8, 100)
    box.kubelet.end_pod("uid-w")
    assert_allocatable(box, 8, 800)


def test_the_plan_names_the_gpu(box: NodeBox) -> None:
    box.plan(plan("a", 5, 30), plan("b", 5, 60), plan("c", 2, 10))
    for name, gpu, size in (("b", "5", 60), ("c", "2", 10), ("a", "5", 30)):
        assert told(box.kubelet.add_pod(part(name, size))) == (gpu, str(size))


def test_all_containers_of_a_pod_share_one_gpu(box: NodeBox) -> None:
    box.plan(plan("a", 3, 30), plan("a", 3, 40, "c1"))
    admission = box.kubelet.add_pod(part("a", 30, 40, init=20))
    assert {told(admission, 0)[0], told(admission, 1)[0], told(admission, 2)[0]} == {"3"}


def test_strangers_keep_off_what_is_promised(box: NodeBox) -> None:
    box.plan(plan("a", 0, 80), intent("w", [1, 2, 3, 4, 5, 6]))
    assert told(box.kubelet.add_pod(part("stranger", 30)))[0] == "7"
    assert told(box.kubelet.add_pod(part("small", 15)))[0] == "0"  # beside a


def test_more_than_any_gpu_has_left_is_refused(box: NodeBox) -> None:
    box.kubelet.add_pod(pod("w", 7))
    assert_allocatable(box, 8, 100)
    assert told(box.kubelet.add_pod(part("a", 60)))
    assert not box.kubelet.add_pod(part("b", 50)).ok
    refused = box.kubelet.add_pod(part("c", 101))
    assert not refused.ok


def test_shares_across_two_gpus_are_refused_with_a_sentence(box: NodeBox) -> None:
    for number in range(8):
        box.plan(plan(f"p{number}", number, 60))
        assert told(box.kubelet.add_pod(part(f"p{number}", 60)))[0] == str(number)
    box.plan()
    refused = box.kubelet.add_pod(part("b", 50))
    assert "a share must fit on one GPU" in refused.message


def test_an_old_list_does_not_sell_a_gpu_twice() -> None:
    """The kubelet allocates from a list that is older than the other allocation."""
    with node_box(machines.machine(1)) as box:
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 100)
        node = box.agent.node
        node.record_allocation(GPU_SHARE, (share_id(machines.uuid(0), 4),), 0.0)
        with pytest.raises(ValueError, match="GPU 0 is in use in shares"):
            node.record_allocation(GPU, (machines.uuid(0),), 0.0)
        node.record_allocation(GPU_SHARE, (share_id(machines.uuid(0), 5),), 0.0)


def test_a_restarted_agent_sells_nothing_twice(box: NodeBox) -> None:
    box.plan(plan("a", 4, 30), intent("w", [0, 1]))
    box.kubelet.add_pod(part("a", 30))
    box.kubelet.add_pod(pod("w", 2))
    box.restart_agent()
    assert_allocatable(box, 7, 600)
    box.kubelet.restart()
    assert_allocatable(box, 7, 600)
    held = box.kubelet.held()
    assert len(held["team", "a", "c0"][GPU_SHARE]) == 30


def test_what_the_checkpoint_alone_knows_is_sold(tmp_path: Path) -> None:
    """A restarted kubelet lists a pod only after it has admitted it again."""
    entry = {"PodUID": "u-1", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": ["g0"]}
    data = {"PodDeviceEntries": [entry, {**entry, "PodUID": "u-2", "DeviceIDs": ["g1"]}]}
    plugins, groups = tmp_path / "plugins", tmp_path / "cgroup"
    plugins.mkdir()
    (plugins / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 0}))
    (groups / "kubepods" / "podu-1").mkdir(parents=True)
    unlisted = UnlistedPods(plugins, groups)
    mine = allocations.Allocation(GPU, ("g0",), uid="u-1")
    assert unlisted.allocations(()) == (mine,)  # u-2 has ended
    assert unlisted.allocations([Grant("ns", "p", "c", GPU, ("g0",))]) == ()
    assert len(unlisted.allocations(None)) == 2


def test_a_sale_that_is_never_listed_is_forgotten() -> None:
    allocation = allocations.Allocation(GPU_SHARE, ("g0::1",), at=100.0)
    assert allocations.unconfirmed([allocation], [], 101.0) == (allocation,)
    assert allocations.unconfirmed([allocation], [], 100.0 + allocations.KEPT_S) == ()
    listed = [Grant("ns", "p", "c", GPU_SHARE, ("g0::1",))]
    assert allocations.unconfirmed([allocation], listed, 101.0) == ()


def test_gpus_may_be_kept_whole() -> None:
    with node_box() as box:
        box.configure(share_gpus="1,2")
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 200)
        assert told(box.kubelet.add_pod(part("a", 30)))[0] in "12"
    assert parse(Settings(node="n").share_gpus).of(63).by == "auto"


def test_sharing_is_configured_while_pods_run(tmp_path: Path) -> None:
    """The file named after the node takes precedence over the default."""
    with node_box() as box:
        box.configure(share_config=tmp_path, share_gpus="none")
        (tmp_path / "default").write_text("all\n")
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 800)
        box.plan(plan("a", 6, 30))
        assert told(box.kubelet.add_pod(part("a", 30)))[0] == "6"
        (tmp_path / "node-1").write_text("0, 1\n")
        assert_allocatable(box, 7, 200)
        assert len(box.kubelet.held()["team", "a", "c0"][GPU_SHARE]) == 30
        assert told(box.kubelet.add_pod(part("b", 30)))[0] in "01"
        (tmp_path / "node-1").write_text("0, first")  # invalid: the last configuration stays
        assert told(box.kubelet.add_pod(part("c", 30)))[0] in "01"
        box.kubelet.end_pod("uid-a")
        assert_allocatable(box, 7, 200)
        (tmp_path / "node-1").unlink()
        (tmp_path / "default").write_text("none")
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == 0)
        assert box.kubelet.held()["team", "b", "c0"]
        box.kubelet.end_pod("uid-b")
        box.kubelet.end_pod("uid-c")
        eventually(lambda: box.kubelet.allocatable.get(GPU) == 8)


def test_a_single_share_opens_the_gpu_that_pairs_miss_least() -> None:
    """Shares leave NVLink pairs whole while that is possible."""
    machine = survey(machines.machine(bridged=True))
    topology = with_sharing(machine, parse("all"), Capabilities("", "", ""), {}, {})
    free = [0, 1, 2, 4, 5, 6, 7]  # 3 is in use: 2 has lost its peer
    ids = tuple(share_id(machines.uuid(gpu), n) for gpu in free for n in range(100))
    rows = (ContainerDevices("t", "p", "c"),)
    choice = preferred(DeviceRequest(ids, (), 10, rows), topology, ())
    assert {each.partition("::")[0] for each in choice.device_ids} == {machines.uuid(2)}
