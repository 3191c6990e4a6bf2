"""The device plugins at a hollow kubelet that behaves as the real one does."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from agent.health.gpu_health import ABSENT
from agent.kubelet.registration import SERVERS
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU, GPU_SHARE, RDMA
from tests.agent.health.test_gpu_health import without
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.kubelets import Kubelet137, OlderKubelet
from tests.fakes.nodebox import NodeBox, gpus, intent, node_box, pod


def test_registers_and_gives_the_closest() -> None:
    with node_box(machines.machine(bridged=True)) as box:
        box.start()
        eventually(lambda: box.kubelet.capacity == {GPU: 8, GPU_SHARE: 800})
        assert gpus(box.kubelet.add_pod(pod("a", 2))) == [0, 1]
        assert gpus(box.kubelet.add_pod(pod("b", 1))) == [2]
        assert gpus(box.kubelet.add_pod(pod("c", 2))) == [4, 5]
        refused = box.kubelet.add_pod(pod("d", 4))
        assert refused.reason == "UnexpectedAdmissionError"
        assert "4 nvidia.com/gpu wanted, 3 available" in refused.message
        box.kubelet.remove_pod("uid-a")
        assert gpus(box.kubelet.add_pod(pod("e", 2))) == [6, 7]
        eventually(lambda: box.truth() == {"b": [2], "c": [4, 5], "e": [6, 7]})


def test_topology_is_told_where_there_is_one() -> None:
    for numa in (True, False):
        with node_box(machines.machine(4, numa=numa)) as box:
            box.start()
            seen = [gpu.numa for gpu in box.agent.node.state.topology.gpus]
            assert seen == ([0, 0, 1, 1] if numa else [-1] * 4)


def test_plans_are_carried_out_exactly() -> None:
    with node_box() as box:
        box.start()
        box.plan(intent("a", [7, 0]), intent("b", [5, 2]), intent("c", [1]))
        assert gpus(box.kubelet.add_pod(pod("b", 2))) == [2, 5]
        assert gpus(box.kubelet.add_pod(pod("stranger", 2))) == [4, 6]
        assert gpus(box.kubelet.add_pod(pod("c", 1))) == [1]
        assert gpus(box.kubelet.add_pod(pod("a", 2))) == [0, 7]


@pytest.mark.slow
def test_twenty_identical_pods_in_any_order_get_their_own() -> None:
    with node_box(machines.machine(24, bridged=True)) as box:
        box.start()
        order = random.Random(5)
        plan = order.sample(range(24), 20)
        box.plan(*(intent(f"p{i}", [gpu]) for i, gpu in enumerate(plan)))
        names = [f"p{i}" for i in range(20)]
        order.shuffle(names)
        with ThreadPoolExecutor(20) as pool:
            admitted = dict(
                zip(names, pool.map(box.kubelet.add_pod, map(_one, names)), strict=True)
            )
        assert {name: gpus(one) for name, one in admitted.items()} == {
            f"p{i}": [gpu] for i, gpu in enumerate(plan)
        }
        eventually(lambda: box.truth() == {f"p{i}": [gpu] for i, gpu in enumerate(plan)})


def _one(name: str) -> object:
    return pod(name, 1)


def test_pods_that_come_and_end_at_once_never_share() -> None:
    with node_box() as box:
        box.start()

        def lives(number: int) -> int:
            admitted = 0
            for done in range(8):
                name = f"w{number}-{done}"
                if box.kubelet.add_pod(pod(name, 2)).ok:
                    admitted += 1
                    held = [ids for row in box.kubelet.held().values() for ids in row[GPU]]
                    assert len(held) == len(set(held)), box.kubelet.held()
                    box.kubelet.end_pod(f"uid-{name}")
                box.kubelet.remove_pod(f"uid-{name}")
            return admitted

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(lives, range(4))) > 10


def test_containers_of_a_pod_and_an_init_container() -> None:
    with node_box() as box:
        box.start()
        box.plan(intent("a", [3, 6], "c0"), intent("a", [1], "c1"))
        admitted = box.kubelet.add_pod(pod("a", 2, 1, init=[1]))
        assert set(gpus(admitted, 0)) <= {1, 3, 6}
        assert len(set(gpus(admitted, 1) + gpus(admitted, 2))) == 3
        assert set(gpus(admitted, 0)) <= set(gpus(admitted, 1))  # used again


def test_late_missing_and_stale_plans() -> None:
    with node_box() as box:
        box.start()
        box.plan(intent("a", [4, 5]))
        assert gpus(box.kubelet.add_pod(pod("late", 2))) == [6, 7]
        box.plan(intent("a", [4, 5]), intent("late", [0, 1]))  # it has devices already
        assert gpus(box.kubelet.add_pod(pod("missing", 2))) == [0, 1]
        box.plan(intent("a", [4, 5]), intent("stale", [6, 7]))  # late still has those
        assert gpus(box.kubelet.add_pod(pod("stale", 2))) == [2, 3]
        assert gpus(box.kubelet.add_pod(pod("a", 2))) == [4, 5]


def test_a_pod_that_was_refused_does_not_stand_in_the_way() -> None:
    with node_box() as box:
        box.start()
        box.plan(intent("big", [0, 1, 2, 3]), intent("b", [6, 7]), intent("c", [3, 4]))
        assert gpus(box.kubelet.add_pod(pod("first", 1))) == [5]
        assert not box.kubelet.add_pod(pod("big", 8)).ok  # its object stays, without devices
        assert gpus(box.kubelet.add_pod(pod("c", 2))) == [3, 4]
        assert gpus(box.kubelet.add_pod(pod("b", 2))) == [6, 7]


@pytest.mark.slow
def test_the_kubelet_restarts_again_and_again_while_pods_come_and_go() -> None:
    with node_box() as box:
        box.start()
        order = random.Random(3)
        living: dict[str, list[int]] = {}
        for turn in range(12):
            if living and order.random() < 0.5:
                name = order.choice(sorted(living))
                box.kubelet.remove_pod(f"uid-{name}")
                del living[name]
            free = sorted(set(range(8)) - {gpu for held in living.values() for gpu in held})
            if len(free) >= 2:
                wanted = sorted(order.sample(free, 2))
                box.plan(intent(f"t{turn}", wanted))
                assert gpus(box.kubelet.add_pod(pod(f"t{turn}", 2))) == wanted
                living[f"t{turn}"] = wanted
            box.kubelet.restart()
            assert box.kubelet.allocatable[GPU] == 0
            box.wait_for(8)
        eventually(lambda: box.truth() == living)
        assert all(box.kubelet.start_pod(f"uid-{name}").ok for name in living)


@pytest.mark.parametrize("kubelet", [Kubelet137, OlderKubelet])
@pytest.mark.parametrize("times", [1, SERVERS + 1])
def test_the_own_socket_is_removed(kubelet: type[HollowKubelet], times: int) -> None:
    """The kubelet keeps its devices, unless that happens again and again."""
    counts: list[int] = []

    def changed(_: object, allocatable: dict[str, int]) -> None:
        counts.append(allocatable.get(GPU, 0))

    with node_box(kubelet=kubelet, on_change=changed) as box:
        box.start()
        counts.clear()
        for _ in range(times):
            removed = box.socket()
            removed.unlink()
            eventually(lambda: [*box.kubelet.plugins.glob("lockstep-gpu.*")])
            assert box.socket() != removed
            eventually(lambda: has_listed(box))
        assert times > 1 or min(counts, default=8) == 8
        box.wait_for(8)
        assert gpus(box.kubelet.add_pod(pod("a", 8))) == list(range(8))


def has_listed(box: NodeBox) -> bool:
    """Whether the kubelet has read the devices from the newest socket."""
    served = box.agent._registrations[0]
    return (
        served.registered and bool(served._plugin.streams["listed"]) and box.socket() == served.own
    )


def test_the_agent_restarts_in_the_middle() -> None:
    with node_box() as box:
        box.start()
        box.plan(intent("a", [2, 5]))
        box.kubelet.add_pod(pod("a", 2))
        box.agent.stop()
        box.wait_for(0)
        assert not box.kubelet.add_pod(pod("early", 1)).ok
        assert box.kubelet.start_pod("uid-a").ok, "a container restarts without the agent"
        box.restart_agent()
        box.wait_for(8)
        eventually(lambda: box.truth() == {"a": [2, 5]})
        assert box.kubelet.start_pod("uid-a").ok
        assert gpus(box.kubelet.add_pod(pod("b", 6))) == [0, 1, 3, 4, 6, 7]


def test_a_start_says_who_it_is_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    shares = (Container("c0", ((GPU_SHARE, 30),)),)
    with node_box() as box:
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE))
        for name in ("a", "b"):
            box.kubelet.add_pod(KubeletPod(f"uid-{name}", "team", name, shares))
            assert f"team/{name}, container c0, starts with 30 % of GPU 0" in caplog.text
            box.kubelet.remove_pod(f"uid-{name}")


@pytest.mark.parametrize(("resource", "needed"), [(GPU, False), (GPU_SHARE, True), (RDMA, True)])
def test_only_what_is_set_up_at_a_start_needs_the_agent(resource: str, needed: bool) -> None:
    """A container restarts, after a crash or a failed probe, while the agent is away."""
    with node_box(machines.machine(cards=8)) as box:
        box.start()
        eventually(lambda: box.kubelet.allocatable.get(resource))
        wants = (Container("c0", ((resource, 1),)),)
        assert box.kubelet.add_pod(KubeletPod("uid-a", "team", "a", wants)).ok
        box.agent.stop()
        box.wait_for(0)
        assert box.kubelet.start_pod("uid-a").ok != needed


def test_unfit_gpus_leave_and_come_back() -> None:
    with node_box() as box:
        box.start()
        box.change(without(0, 3))
        box.wait_for(6)
        eventually(lambda: box.kubelet.capacity == {GPU: 8, GPU_SHARE: 800})
        assert box.agent.node.state.topology.gpus[3].why == ABSENT
        assert gpus(box.kubelet.add_pod(pod("a", 4))) == [4, 5, 6, 7]
        box.change(machines.machine())
        box.wait_for(8)


def test_no_gpu_no_resource_until_there_is_one() -> None:
    with node_box() as box:
        box.change(without(*range(8)))
        box.agent.start()
        eventually(lambda: box.agent.node.state.grants_known)
        assert box.kubelet.capacity == {}
        box.change(machines.machine())
        box.wait_for(8)


@pytest.mark.slow
def test_no_kubelet_yet(caplog: pytest.LogCaptureFixture) -> None:
    with node_box() as box:
        box.kubelet.stop()
        box.agent.start()
        sentence = "kubelet.sock does not exist: the kubelet is not running"
        eventually(lambda: caplog.text.count(sentence) == 2)  # for each resource
        box.kubelet.start()
        box.wait_for(8)


def _said(caplog: pytest.LogCaptureFixture, sentence: str) -> bool:
    return sentence in caplog.text


@pytest.mark.slow
def test_a_directory_that_does_not_exist_or_is_too_long_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with node_box() as box:
        with pytest.raises(ValueError, match="a unix socket's path may have 107"):
            HollowKubelet(box.directory / ("x" * 100))
        for place, sentence in (
            ("nowhere", "nowhere/device-plugins does not exist: mount the kubelet's directory"),
            ("x" * 100, "use a shorter --kubelet-dir"),
        ):
            box.configure(kubelet_dir=box.directory / place)
            box.agent.start()
            eventually(partial(_said, caplog, sentence))
            box.agent.stop()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may everything")
def test_no_permission_is_said_and_heals(caplog: pytest.LogCaptureFixture) -> None:
    with node_box() as box:
        box.kubelet.plugins.chmod(0o555)
        box.agent.start()
        eventually(lambda: "no permission to write to" in caplog.text)
        box.kubelet.plugins.chmod(0o755)
        box.wait_for(8)
