"""lockstep.dev/rdma at a hollow kubelet that behaves as the real one does."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine.facts import Machine, Port
from agent.machine.survey import survey
from agent.nics import nic_shares, selector
from agent.resources import device_files, nic_allocation
from agent.resources.device_resource import ContainerDevices, DeviceRequest
from central.server.grpc import report_bounds
from central.standalone.hollow_kubelet import Admission, Container, KubeletPod
from protos.names import GPU, GPU_SHARE, RDMA
from protos.nearest import share_id
from protos.topology import Grant, RdmaLimit
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, gpus, intent, node_box

CARDS = machines.machine(cards=8)  # and mlx5_8, for storage


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box(CARDS) as made:
        made.start()
        eventually(lambda: made.kubelet.allocatable == {GPU: 8, GPU_SHARE: 800, RDMA: 8 * 16})
        yield made


def pod(name: str, *wants: tuple[tuple[str, int], ...]) -> KubeletPod:
    containers = tuple(Container(f"c{place}", each) for place, each in enumerate(wants))
    return KubeletPod(f"uid-{name}", "team", name, containers)


def cards(name: str, *numbers: int, container: str = "c0") -> Grant:
    return Grant("team", name, container, RDMA, tuple(f"mlx5_{number}" for number in numbers))


def told(admission: Admission, container: int = 0) -> list[int]:
    assert admission.ok, admission
    names = admission.containers[container].envs["LOCKSTEP_HCAS"].split(",")
    return [int(name.removeprefix("mlx5_")) for name in names]


GPU_FIRST = ((GPU, 1), (RDMA, 1))
RDMA_FIRST = ((RDMA, 1), (GPU, 1))


def test_the_card_beside_the_gpu_by_plan_in_either_order(box: NodeBox) -> None:
    plans = [intent(f"p{gpu}", [gpu]) for gpu in range(8)]
    box.plan(*plans, *(cards(f"p{gpu}", gpu) for gpu in range(8)))
    for gpu in (5, 0, 7, 2):
        given = box.kubelet.add_pod(pod(f"p{gpu}", RDMA_FIRST if gpu % 2 else GPU_FIRST))
        assert gpus(given) == told(given) == [gpu]
    eventually(lambda: len(box.agent.node.state.grants) == 8)


def test_what_a_container_is_told(box: NodeBox) -> None:
    given = box.kubelet.add_pod(pod("a", ((GPU, 2), (RDMA, 2))))
    envs = given.containers[0].envs
    assert gpus(given) == told(given)
    assert envs["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert envs["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"
    assert given.containers[0].annotations["lockstep.dev/hcas"] == "mlx5_0,mlx5_1"


def test_pods_without_a_plan_get_the_card_of_the_gpus_just_given(box: NodeBox) -> None:
    first = box.kubelet.add_pod(pod("a", ((GPU, 3),)))
    second = box.kubelet.add_pod(pod("b", GPU_FIRST))
    assert told(second) == gpus(second) != gpus(first)[:1]
    alone = box.kubelet.add_pod(pod("c", ((RDMA, 1),)))
    assert told(alone) != told(second)  # the emptiest


def test_each_container_of_a_pod_has_its_own(box: NodeBox) -> None:
    plans = [intent("a", [1]), intent("a", [6], "c1"), cards("a", 1), cards("a", 6, container="c1")]
    box.plan(*plans)
    given = box.kubelet.add_pod(pod("a", GPU_FIRST, RDMA_FIRST))
    assert [told(given, 0), told(given, 1)] == [[1], [6]]
    assert [gpus(given, 0), gpus(given, 1)] == [[1], [6]]


def test_shares_end_and_are_never_given_twice(box: NodeBox) -> None:
    for number in range(16):
        name = f"p{number}"
        box.plan(cards(name, 3))
        assert told(box.kubelet.add_pod(pod(name, ((RDMA, 1),)))) == [3]
    box.plan(cards("late", 3))
    assert told(box.kubelet.add_pod(pod("late", ((RDMA, 1),)))) != [3]
    held = [ids for row in box.kubelet.held().values() for ids in row[RDMA]]
    assert len(held) == len(set(held)) == 17
    assert not box.kubelet.add_pod(pod("huge", ((RDMA, 128),))).ok


def test_a_link_that_goes_down_and_comes_back(box: NodeBox) -> None:
    box.change(_link(2, "DOWN"))
    eventually(lambda: box.kubelet.allocatable.get(RDMA) == 7 * 16)
    assert box.kubelet.capacity[RDMA] == 8 * 16
    box.plan(intent("a", [2]), cards("a", 2))
    assert told(box.kubelet.add_pod(pod("a", GPU_FIRST))) != [2]
    box.change(CARDS)
    eventually(lambda: box.kubelet.allocatable[RDMA] == 8 * 16)


def _link(number: int, state: str) -> Machine:
    devices = list(CARDS.sysfs.infiniband)
    devices[number] = replace(devices[number], ports=(Port(1, state, "InfiniBand"),))
    return replace(CARDS, sysfs=replace(CARDS.sysfs, infiniband=tuple(devices)))


def test_both_resources_survive_restarts(box: NodeBox) -> None:
    box.plan(intent("a", [4]), cards("a", 4))
    box.kubelet.add_pod(pod("a", GPU_FIRST))
    for _ in range(3):
        box.kubelet.restart()
        eventually(lambda: box.kubelet.allocatable.get(RDMA) == 8 * 16)
    box.restart_agent()
    eventually(lambda: box.kubelet.allocatable.get(RDMA) == 8 * 16)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == 8)  # both plugins are there again
    eventually(lambda: len(box.agent.node.state.grants) == 2)
    assert box.kubelet.start_pod("uid-a").ok


def test_which_cards_are_offered() -> None:
    seen = survey(CARDS)

    def offered(*patterns: str) -> list[str]:
        return [hca.name for hca in selector.served(seen, patterns)]

    assert offered("auto") == [f"mlx5_{number}" for number in range(8)]
    assert len(offered("all")) == 9
    assert offered("none") == offered("mlx4_*") == []
    assert offered("mlx5_8", "mlx5_[01]") == ["mlx5_0", "mlx5_1", "mlx5_8"]


def test_cards_by_what_holds_of_them() -> None:
    hcas = [
        replace(hca, driver="mlx5_core", net=f"ib{number}")
        for number, hca in enumerate(survey(CARDS).hcas)
    ]
    hcas[3] = replace(hcas[3], link_layer="Ethernet", net="ens3f0,ens3f1")
    hcas[4] = replace(hcas[4], vendor="0x14e4", driver="bnxt_en")
    hcas[5] = replace(hcas[5], physical="mlx5_4")
    seen = replace(survey(CARDS), hcas=tuple(hcas))

    def offered(text: str) -> str:
        found = selector.served(seen, selector.parse(text))
        return "".join(hca.name.removeprefix("mlx5_") for hca in found)

    assert offered("auto") == "0123467"  # virtual functions only on request
    assert offered("all") == "01234678"
    assert offered("vendor=15b3") == offered("vendor=0x15B3") == "0123678"
    assert offered("auto+vendor=15b3+link=infiniband") == "01267"
    assert offered("driver=bnxt*,net=ens3f1") == "34"
    assert offered("device=1021+pci=0000:e0:*") == "0"
    assert offered("vf") == offered("vf+pf=mlx5_4") == offered("vf+auto") == "5"
    assert offered("vf+pf=mlx5_0") == offered("mlx5_5") == ""
    assert selector.unmatched(seen, ("auto", "vf+pf=mlx5_0", "mlx5_1")) == ("vf+pf=mlx5_0",)
    shown = nic_shares.with_shares(seen, ("vf", "mlx5_1"), nic_shares.NicPolicy())
    assert [hca.shares for hca in shown.hcas] == [0, 16, 0, 0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" , ", "no NIC selected"),
        ("none,mlx5_0", "none can't be combined"),
        ("vendor=15b3+", "empty term beside a"),
        ("speed=400", "'speed=400' is not one of vendor=..., device=..."),
        ("link=", "'link=' is not one of"),
    ],
)
def test_what_says_nothing_of_cards(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        selector.parse(text)


def test_a_virtual_function_is_given_whole(caplog: pytest.LogCaptureFixture) -> None:
    """One pod per virtual function, with its own file; a pattern that matches no NIC is logged."""
    sysfs = CARDS.sysfs
    function = replace(
        sysfs.pci[8],
        address="0000:e0:00.2",
        physfn="0000:e0:00.0",
        path=f"{sysfs.pci[8].path[:-1]}2",
    )
    device = replace(sysfs.infiniband[0], name="mlx5_20", pci=function.address, uverbs="uverbs20")
    facts = replace(sysfs, pci=(*sysfs.pci, function), infiniband=(*sysfs.infiniband, device))
    with node_box(replace(CARDS, sysfs=facts)) as box:
        box.configure(rdma_devices=("vf", "mlx4_0"))
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(RDMA) == 1)
        given = box.kubelet.add_pod(pod("a", GPU_FIRST))
        assert told(given) == [20]
        assert not box.kubelet.add_pod(pod("b", ((RDMA, 1),))).ok
    assert caplog.text.count("--rdma-devices: no RDMA NIC matches mlx4_0") == 1


def test_how_many_shares_and_whether_limits_can_be_set() -> None:
    limits = (("mlx5_0", RdmaLimit(256)), ("mlx5_1", RdmaLimit()))
    seen = replace(survey(CARDS), rdma_cgroup=limits)

    def counts(policy: nic_shares.NicPolicy) -> list[int]:
        return [hca.shares for hca in nic_shares.with_shares(seen, ("mlx5_[01]",), policy).hcas[:3]]

    assert counts(nic_shares.NicPolicy(default=RdmaLimit(64))) == [4, 16, 0]
    assert counts(nic_shares.NicPolicy()) == [16, 16, 0]
    assert counts(nic_shares.NicPolicy(3, RdmaLimit(64))) == [3, 3, 0]
    seen = replace(seen, rdma_cgroup=(("mlx5_0", RdmaLimit(10_000)), ("mlx5_1", RdmaLimit(999))))
    assert counts(nic_shares.NicPolicy(default=RdmaLimit(1))) == [1000, 999, 0]
    assert nic_shares.MOST <= report_bounds.NIC_SHARES
    assert nic_shares.with_shares(
        seen, ("auto",), nic_shares.NicPolicy(settable=True)
    ).rdma_settable
    bare = replace(seen, rdma_cgroup=None)
    assert not nic_shares.with_shares(
        bare, ("auto",), nic_shares.NicPolicy(settable=True)
    ).rdma_settable


def test_pod_resources_silent_means_the_gpus_just_given() -> None:
    question = DeviceRequest(tuple(share_id(f"mlx5_{n}", 0) for n in range(8)), (), 1)
    just = (machines.uuid(5),)
    choice = nic_allocation.preferred(question, survey(CARDS), (), just_given=just)
    assert choice.device_ids == ("mlx5_5::0",)
    other = (ContainerDevices("team", "x", "c", ((GPU, just), (RDMA, ("mlx5_5::1",)))),)
    question = replace(question, listed=other)
    choice = nic_allocation.preferred(question, survey(CARDS), (), just_given=just)
    # they have their shares: the request is for another pod
    assert choice.device_ids == ("mlx5_0::0",)


def test_must_haves_are_in() -> None:
    available = tuple(share_id("mlx5_1", n) for n in range(12))
    choice = nic_allocation.preferred(
        DeviceRequest(available, (available[11],), 3), survey(CARDS), ()
    )
    assert choice.device_ids == ("mlx5_1::11", "mlx5_1::0", "mlx5_1::1")


def test_a_card_that_is_not_here_is_named() -> None:
    with pytest.raises(ValueError, match="this node has no RDMA NIC mlx5_77"):
        nic_allocation.response(["mlx5_77::0"], survey(CARDS))


def test_only_the_own_files(tmp_path: Path) -> None:
    folder = tmp_path / "infiniband"
    folder.mkdir()
    for name in ("uverbs0", "uverbs1", "rdma_cm", "umad0"):
        (folder / name).touch()
    own = ("/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm")
    assert device_files.nic_files(["uverbs1"], "auto", tmp_path) == own
    assert device_files.nic_files(["uverbs1"], "always", tmp_path) == own
    assert device_files.nic_files(["uverbs1"], "never", tmp_path) == ()
    assert device_files.nic_files(["uverbs7"], "auto", tmp_path) == ()
    with pytest.raises(ValueError, match="infiniband/uverbs7 missing below"):
        device_files.nic_files(["uverbs7"], "always", tmp_path)


def test_limits_are_written_before_the_container_starts() -> None:
    with node_box(CARDS) as made:
        folder = made.directory / "cgroup/rdma/kubepods/burstable/poduid-a"
        folder.mkdir(parents=True)
        for name in ("rdma.max", "rdma.current"):
            (folder / name).touch()
        made.configure(cgroup_root=made.directory / "cgroup", rdma_hca_handles=64)
        made.start()
        eventually(lambda: made.kubelet.allocatable.get(RDMA) == 8 * 16)
        wish = (("hca_object", 2000),)
        made.plan(intent("a", [4]), replace(cards("a", 4), limits=wish))
        assert told(made.kubelet.add_pod(pod("a", GPU_FIRST))) == [4]
        written = (folder / "rdma.max").read_text()
        assert written == "mlx5_4 hca_handle=64 hca_object=2000"
        eventually(lambda: bool(made.agent.node.state.rdma_use))

        made.plan(replace(cards("b", 5), limits=wish))
        late = made.kubelet.add_pod(pod("b", ((RDMA, 1),)))
        assert late.reason == "RunContainerError"
        assert (
            "could not set the pod's RDMA limits on mlx5_5: no cgroup for pod uid-b" in late.message
        )
