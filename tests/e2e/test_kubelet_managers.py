"""Agents on the kubelet's own managers of 1.37: two of them on one node, and a topology manager policy beside plans.
Real agent processes on the fake NVML library, real sockets; the scheduler alone is a fake."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.machine import capture
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU
from protos.topology import Grant
from tests.agent.nvml_fixture import CAPTURES, ROOT, Hardware, library
from tests.e2e.kubelet_managers import Admitted, KubeletManagers, kubelet_managers
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.nvml import build

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
PODS = int(os.environ.get("POLICY_PODS", "20"))  # for each policy and scope


class Node:
    """A machine with 8 GPUs, four on each NUMA node, its kubelet and its agents."""

    def __init__(self, folder: Path, kubelet: KubeletManagers) -> None:
        self.folder, self.kubelet = folder, kubelet
        machine = capture.load(CAPTURES / "hgx-h100-8.json")
        self.hardware = Hardware(library(folder / "lib"), folder)
        self.hardware.install(machine)
        self.uuids = [gpu.uuid for gpu in machine.nvml.gpus]
        self.fleet = FakeScheduler(folder)
        self.fleet.start()
        self._numbers = itertools.count()

    @contextmanager
    def agent(self, *flags: str, gpus: int = 8) -> Iterator["subprocess.Popen[bytes]"]:
        """A process; it has registered. gpus: that it offers."""
        log = self.folder / f"agent-{next(self._numbers)}.log"
        command = [sys.executable, "-m", "agent", "run", "--node=n", "--rdma-devices=none", *flags]
        command += ["--kubelet-dir", str(self.folder), "--sysfs-root", str(self.hardware.sysfs)]
        command += ["--server", self.fleet.address, "--ca-file", str(self.fleet.ca_file)]
        command += ["--token-file", str(self.fleet.token_file)]
        environment = {
            **os.environ,
            "LOCKSTEP_FAKE_NVML": str(self.folder / build.PROFILE),
            "LD_LIBRARY_PATH": str(self.hardware.library),
        }
        with log.open("w") as file:
            process = subprocess.Popen(command, cwd=ROOT, stderr=file, env=environment)
        try:
            eventually(lambda: f"registered {GPU}" in log.read_text())
            eventually(lambda: self.kubelet.allocatable.get(GPU) == gpus)
            yield process
        finally:
            process.kill()
            process.wait()

    def admit(self, gpus: Sequence[int], **limits: str) -> Admitted:
        """A pod with a plan; it ends again."""
        name = f"p{next(self._numbers)}"
        plan = Grant("team", name, "c0", GPU, tuple(sorted(self.uuids[gpu] for gpu in gpus)))
        version = self.fleet.plan(plan)
        eventually(lambda: set(self.fleet.seen.values()) == {version})
        containers = (Container("c0", ((GPU, len(gpus)),)),)
        admitted = self.kubelet.admit(KubeletPod(f"uid-{name}", "team", name, containers), **limits)
        self.kubelet.remove(f"uid-{name}")
        return admitted

    def has(self, admitted: Admitted) -> list[int]:
        return sorted(self.uuids.index(each) for each in admitted.devices["c0"][GPU])

    def admit_twenty(self) -> int:
        """How many got their plan."""
        order = random.Random(7)
        plans = [sorted(order.sample(range(8), order.randint(1, 4))) for _ in range(20)]
        found = [(plan, self.admit(plan)) for plan in plans]
        return sum(each.ok and self.has(each) == plan for plan, each in found)


@contextmanager
def node(*flags: str) -> Iterator[Node]:
    with (
        tempfile.TemporaryDirectory(prefix="ls-") as name,
        kubelet_managers(Path(name), *flags) as kubelet,
    ):
        made = Node(Path(name), kubelet)
        try:
            yield made
        finally:
            made.fleet.stop()


def gone(here: Node, process: "subprocess.Popen[bytes]", number: int) -> None:
    """The agent ends, and its call of the plans is over."""
    process.send_signal(number)
    process.wait()
    here.fleet.seen.clear()


def test_two_agents_on_one_node() -> None:
    with node() as here, contextlib.ExitStack() as agents:
        first = agents.enter_context(here.agent())
        here.kubelet.lowest()
        assert here.admit_twenty() == 20
        agents.enter_context(here.agent())
        assert here.admit_twenty() == 20, "a second agent has joined"
        gone(here, first, signal.SIGTERM)
        assert here.admit_twenty() == 20, "the first has ended"
        third = agents.enter_context(here.agent())
        assert here.admit_twenty() == 20, "a third has joined"
        gone(here, third, signal.SIGKILL)
        assert here.admit_twenty() == 20, "it was killed while the second owned the node"
        assert here.kubelet.lowest()[GPU] == 8


def test_the_agent_that_owns_the_node_is_killed() -> None:
    with node() as here, here.agent() as first, here.agent():
        here.kubelet.lowest()
        gone(here, first, signal.SIGKILL)
        assert here.admit_twenty() == 20
        assert here.kubelet.lowest()[GPU] == 8


@pytest.mark.parametrize("scope", ["container", pytest.param("pod", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("policy", POLICIES)
def test_plans_are_kept_under_each_topology_manager_policy(policy: str, scope: str) -> None:
    """Plans inside one NUMA node and across both, with exclusive CPUs."""
    order = random.Random(f"{policy} {scope}")
    flags = (f"--topology-policy={policy}", f"--topology-scope={scope}", "--cpu-policy=static")
    missed = []
    with node(*flags) as here, here.agent():
        for number in range(PODS):
            pool = range(8) if number % 2 else order.choice([range(4), range(4, 8)])
            plan = sorted(order.sample(pool, order.randint(1, 4)))
            admitted = here.admit(plan, cpu="8", memory="1Gi")
            if not admitted.ok or here.has(admitted) != plan:
                missed.append((plan, admitted))
            else:
                assert len(admitted.cpus["c0"] or ()) == 8
    assert missed == []


def test_hints_let_the_policy_choose() -> None:
    """Where an operator wants CPUs and GPUs of one NUMA node: the GPUs are the policy's."""
    flags = ("--topology-policy=single-numa-node", "--cpu-policy=static")
    with node(*flags) as here, here.agent("--numa-hints=always"):
        for plan in ([0, 1], [5], [4, 5, 6, 7]):
            admitted = here.admit(plan, cpu="8", memory="1Gi")
            (numa,) = {gpu // 4 for gpu in here.has(admitted)}
            assert {cpu // 32 for cpu in admitted.cpus["c0"] or ()} == {numa}
        across = here.admit([3, 4, 5, 6, 7], cpu="8", memory="1Gi")
        assert across.reason == "TopologyAffinityError"
