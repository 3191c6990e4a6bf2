"""MIG slices at a hollow kubelet: one resource per profile, which comes and goes. A GPU is
allocated whole or in slices, never both."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.health.gpu_health import XidEvent
from agent.machine.facts import GpuFacts, Machine
from central.standalone.hollow_kubelet import Admission, Container, KubeletPod
from protos.names import GPU, GPU_SHARE, RDMA
from tests.captures.mig import part, sliced
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, gpus, node_box, pod

ONE, TWO, THREE = (f"nvidia.com/mig-{name}" for name in ("1g.5gb", "2g.10gb", "3g.20gb"))
UNEQUAL = {1: "3g.20gb", 5: "2g.10gb", 11: "1g.5gb", 12: "1g.5gb"}
EQUAL = dict.fromkeys(range(7, 14), "1g.5gb")
MIG = dict[int, dict[int, str]]  # profiles by GPU instance, by GPU


def machine(mig: MIG, cards: int = 0) -> Machine:
    made = machines.machine(4, cards=cards)
    parts = tuple(sliced(g, mig[g.index]) if g.index in mig else g for g in made.nvml.gpus)
    return replace(made, nvml=replace(made.nvml, gpus=parts))


def uuid(gpu: int, gi: int, profile: str = "1g.5gb", ci: int = 0) -> str:
    return part(GpuFacts(gpu, uuid=machines.uuid(gpu)), gi, profile, ci).uuid


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box(machine({2: UNEQUAL, 3: EQUAL})) as made:
        made.start()
        assert_allocatable(made, {GPU: 2, GPU_SHARE: 200, ONE: 9, TWO: 1, THREE: 1})
        yield made


def assert_allocatable(box: NodeBox, expected: dict[str, int]) -> None:
    """Waits until the kubelet can allocate these numbers."""

    def now() -> bool:
        given = box.kubelet.allocatable
        return {name: given.get(name, 0) for name in expected} == expected

    eventually(now)


def wants(name: str, *resources: tuple[str, int]) -> KubeletPod:
    return KubeletPod(f"uid-{name}", "team", name, (Container("c0", resources),))


def told(admission: Admission) -> dict[str, str]:
    assert admission.ok, admission
    return dict(admission.containers[0].envs)


def slices(admission: Admission) -> set[str]:
    return set(told(admission)["LOCKSTEP_SLICES"].split(","))


def test_a_container_is_told_of_its_slice_and_its_gpu(box: NodeBox) -> None:
    env = told(box.kubelet.add_pod(wants("a", (TWO, 1))))
    assert env["NVIDIA_VISIBLE_DEVICES"] == env["LOCKSTEP_SLICES"] == uuid(2, 5, "2g.10gb")
    assert env["LOCKSTEP_GPUS"] == "2"
    assert env["LOCKSTEP_GPU_UUIDS"] == machines.uuid(2)
    assert env["LOCKSTEP_SLICE_PROFILE"] == "2g.10gb"
    assert env["LOCKSTEP_GPU_ENFORCEMENT"] == "mig"
    eventually(lambda: [g.resource for g in box.agent.node.state.grants] == [TWO])
    assert_allocatable(box, {GPU: 2, GPU_SHARE: 200})


def test_few_fill_the_gpu_that_has_the_least_left_and_many_are_of_one_gpu(box: NodeBox) -> None:
    assert slices(box.kubelet.add_pod(wants("many", (ONE, 3)))) <= {uuid(3, gi) for gi in EQUAL}
    assert slices(box.kubelet.add_pod(wants("few", (ONE, 1)))) <= {uuid(3, gi) for gi in EQUAL}
    assert told(box.kubelet.add_pod(wants("big", (THREE, 1))))["LOCKSTEP_GPUS"] == "2"
    # Now GPU 2 has 20 GB left in slices, GPU 3 fifteen.
    assert slices(box.kubelet.add_pod(wants("more", (ONE, 2)))) <= {uuid(3, gi) for gi in EQUAL}
    assert slices(box.kubelet.add_pod(wants("rest", (ONE, 3)))) == {
        uuid(2, 11),
        uuid(2, 12),
        *({uuid(3, gi) for gi in EQUAL} - box_held(box)),
    }


def box_held(box: NodeBox) -> set[str]:
    held = box.kubelet.held()
    return {each for who, mine in held.items() if who[1] != "rest" for each in mine.get(ONE, ())}


def test_too_many_are_refused_by_the_kubelet(box: NodeBox) -> None:
    refused = box.kubelet.add_pod(wants("a", (THREE, 2)))
    assert not refused.ok
    assert f"2 {THREE} wanted, 1 available" in refused.message


def test_divided_anew_while_pods_run(box: NodeBox) -> None:
    held = slices(box.kubelet.add_pod(wants("a", (THREE, 1))))
    assert held == {uuid(2, 1, "3g.20gb")}
    box.change(machine({2: {1: "3g.20gb", 2: "3g.20gb"}, 3: EQUAL}))
    assert_allocatable(box, {GPU: 2, ONE: 7, TWO: 0, THREE: 2})
    assert TWO in box.kubelet.capacity
    assert box.kubelet.capacity[TWO] == 0
    assert slices(box.kubelet.add_pod(wants("b", (THREE, 1)))) == {uuid(2, 2, "3g.20gb")}
    assert set(box.kubelet.held()["team", "a", "c0"][THREE]) == held
    refused = box.kubelet.add_pod(wants("c", (TWO, 1)))
    assert "0 available" in refused.message or "is gone" in refused.message
    box.change(machine({2: UNEQUAL, 3: EQUAL}))
    assert_allocatable(box, {ONE: 9, TWO: 1, THREE: 1})
    assert told(box.kubelet.add_pod(wants("d", (TWO, 1))))["LOCKSTEP_GPUS"] == "2"


def test_a_profile_that_nobody_had_before(box: NodeBox) -> None:
    box.change(machine({2: {0: "7g.40gb"}, 3: EQUAL}))
    whole = "nvidia.com/mig-7g.40gb"
    assert_allocatable(box, {whole: 1, ONE: 7, THREE: 0})
    assert told(box.kubelet.add_pod(wants("a", (whole, 1))))["LOCKSTEP_SLICE_PROFILE"] == "7g.40gb"
    box.kubelet.restart()
    assert_allocatable(box, {whole: 1, ONE: 7, GPU: 2})


def test_the_place_of_a_slice_that_is_gone_is_its_holders(box: NodeBox) -> None:
    """The holder's device files would open the slice that is created there next."""
    box.kubelet.add_pod(wants("a", (THREE, 1)))
    box.change(machine({2: {1: "2g.10gb", 2: "3g.20gb"}, 3: EQUAL}))
    assert_allocatable(box, {TWO: 0, THREE: 1, ONE: 7})
    assert box.kubelet.capacity[TWO] == 1
    box.restart_agent()
    assert_allocatable(box, {TWO: 0, THREE: 1, ONE: 7})
    box.kubelet.end_pod("uid-a")
    assert_allocatable(box, {TWO: 1, THREE: 1, ONE: 7})


def test_a_gpu_out_of_mig_mode_is_whole_when_the_last_slice_is_given_back(box: NodeBox) -> None:
    box.kubelet.add_pod(wants("a", (TWO, 1)))
    box.change(machine({3: EQUAL}))
    assert_allocatable(box, {GPU: 2, GPU_SHARE: 200, ONE: 7, TWO: 0, THREE: 0})
    eventually(lambda: box.kubelet.capacity[GPU] == 3)  # its list may arrive after that of slices
    box.restart_agent()
    assert_allocatable(box, {GPU: 2, GPU_SHARE: 200, ONE: 7})
    assert gpus(box.kubelet.add_pod(pod("w", 2))) == [0, 1]
    box.kubelet.end_pod("uid-a")
    assert_allocatable(box, {GPU: 3, GPU_SHARE: 100, ONE: 7})
    assert gpus(box.kubelet.add_pod(pod("v", 1))) == [2]


def test_slices_of_a_gpu_that_is_in_use_as_a_whole_wait(box: NodeBox) -> None:
    box.kubelet.add_pod(pod("w", 2))
    box.change(machine({1: EQUAL, 2: UNEQUAL, 3: EQUAL}))
    eventually(lambda: box.kubelet.capacity.get(ONE) == 16)
    assert_allocatable(box, {GPU: 1, ONE: 9})
    assert box.kubelet.held()["team", "w", "c0"][GPU]
    box.kubelet.end_pod("uid-w")
    assert_allocatable(box, {GPU: 1, ONE: 16})


def test_an_old_list_sells_nothing_twice(box: NodeBox) -> None:
    """The kubelet allocates from an outdated list."""
    node = box.agent.node
    with pytest.raises(ValueError, match="GPU 2 is in MIG mode; only its slices"):
        node.record_allocation(GPU, (machines.uuid(2),), time.monotonic())
    with pytest.raises(ValueError, match=r"no slice MIG-none of nvidia\.com/mig-1g\.5gb"):
        node.record_allocation(ONE, ("MIG-none",), time.monotonic())
    node.record_allocation(ONE, (uuid(2, 11),), time.monotonic())
    box.change(machine({3: EQUAL}))
    eventually(lambda: not node.state.topology.gpus[2].mig)
    with pytest.raises(ValueError, match="GPU 2 has slices in use"):
        node.record_allocation(GPU, (machines.uuid(2),), time.monotonic())
    node.record_allocation(GPU, (machines.uuid(0),), time.monotonic())
    box.change(machine({0: EQUAL, 3: EQUAL}))
    eventually(lambda: node.state.topology.gpus[0].mig)
    with pytest.raises(ValueError, match="GPU 0 is in use as a whole"):
        node.record_allocation(ONE, (uuid(0, 7),), time.monotonic())


def test_a_restarted_agent_and_kubelet_know_who_has_which(box: NodeBox) -> None:
    mine = slices(box.kubelet.add_pod(wants("a", (ONE, 2))))
    box.restart_agent()
    assert_allocatable(box, {GPU: 2, ONE: 9})
    box.kubelet.restart()
    assert_allocatable(box, {GPU: 2, ONE: 9})
    assert not mine & slices(box.kubelet.add_pod(wants("b", (ONE, 7))))


def test_all_slices_of_a_gpu_follow_it(box: NodeBox) -> None:
    made = machine({2: UNEQUAL, 3: EQUAL})
    lost = replace(made.nvml.gpus[3], uuid="", pci="", fault="lost", slices=(), mig=False)
    box.change(replace(made, nvml=replace(made.nvml, gpus=(*made.nvml.gpus[:3], lost))))
    assert_allocatable(box, {GPU: 2, ONE: 2, TWO: 1})
    assert box.kubelet.capacity[ONE] == 9
    assert not any(part.healthy for part in box.agent.node.state.topology.gpus[3].slices)
    box.change(made)
    assert_allocatable(box, {GPU: 2, ONE: 9})


def test_an_error_in_one_instance_is_that_slices_alone(box: NodeBox) -> None:
    hardware = box.agent._monitor

    def unfit() -> set[str]:
        gpus = box.agent.node.state.topology.gpus
        return {part.uuid for gpu in gpus for part in gpu.slices if not part.healthy}

    hardware.refresh([XidEvent(machines.uuid(3), 94, 9, 0)])
    assert unfit() == {uuid(3, 9)}
    assert all(gpu.healthy for gpu in box.agent.node.state.topology.gpus)
    eventually(lambda: not unfit())
    hardware.refresh([XidEvent(machines.uuid(3), 31, 9, 0)])  # a fault of the program
    assert not unfit()
    hardware.refresh(
        [XidEvent(machines.uuid(3), 94)]
    )  # without an instance: one process of the GPU
    assert not unfit()
    hardware.refresh([XidEvent(machines.uuid(3), 79, 9, 0)])  # needs a reset: all slices
    assert unfit() == {uuid(3, gi) for gi in EQUAL}


def test_slices_and_network_cards_are_neighbours() -> None:
    """In either order of the resources."""
    with node_box(machine({0: EQUAL, 3: EQUAL}, cards=2)) as box:
        box.start()
        assert_allocatable(box, {ONE: 14})
        eventually(lambda: box.kubelet.allocatable.get(RDMA, 0) > 0)
        near = {"0": "mlx5_0", "3": "mlx5_1"}
        for number in range(6):
            order = ((ONE, 1), (RDMA, 1)) if number % 2 else ((RDMA, 1), (ONE, 1))
            env = told(box.kubelet.add_pod(wants(f"p{number}", *order)))
            assert env["LOCKSTEP_HCAS"] == near[env["LOCKSTEP_GPUS"]]
            assert env["LOCKSTEP_NEAREST_HCAS"] == env["LOCKSTEP_HCAS"]


def test_slices_that_divide_an_instance_have_its_memory_together() -> None:
    made = machine({3: {}})
    both = tuple(part(made.nvml.gpus[3], 1, "1c.3g.20gb", ci) for ci in (0, 1))
    halves = replace(made.nvml.gpus[3], slices=both)
    made = replace(made, nvml=replace(made.nvml, gpus=(*made.nvml.gpus[:3], halves)))
    name = "nvidia.com/mig-1c.3g.20gb"
    with node_box(made) as box:
        box.start()
        assert_allocatable(box, {name: 2})
        assert (
            told(box.kubelet.add_pod(wants("a", (name, 1))))["LOCKSTEP_GPU_ENFORCEMENT"] == "none"
        )
        assert_allocatable(box, {name: 2})
        box.agent._monitor.refresh([XidEvent(machines.uuid(3), 94, 1, 0)])
        parts = box.agent.node.state.topology.gpus[3].slices
        assert [each.healthy for each in parts] == [False, True]


def test_a_node_of_slices_alone_offers_no_whole_gpu() -> None:
    with node_box(machine(dict.fromkeys(range(4), EQUAL))) as box:
        box.agent.start()
        assert_allocatable(box, {ONE: 28})
        assert GPU not in box.kubelet.capacity
        box.change(machine({3: EQUAL}))
        assert_allocatable(box, {GPU: 3, ONE: 7})
        box.change(machine(dict.fromkeys(range(4), EQUAL)))
        assert_allocatable(box, {GPU: 0, ONE: 28})
        assert box.agent._unready() == ""
        box.change(machine({3: EQUAL}))
        assert_allocatable(box, {GPU: 3, ONE: 7})
