"""A node in one process: a hollow kubelet and a real agent with real sockets between them."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agent.health.gpu_health import HoldDown
from agent.machine.facts import Machine
from agent.service import Agent
from agent.settings import Settings
from central.standalone.device_manager import DeviceCounts
from central.standalone.hollow_kubelet import Admission, Container, KubeletPod
from protos.names import GPU
from protos.topology import Grant
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet


class NodeBox:
    def __init__(self, directory: Path, machine: Machine, kubelet: HollowKubelet) -> None:
        self.directory, self.kubelet = directory, kubelet
        self.count = sum(not gpu.mig for gpu in machine.nvml.gpus)  # allocated whole
        self.settings = Settings(
            node="node-1",
            kubelet_dir=directory,
            capture=machines.save(directory, machine),
            report_every_s=0.2,
            survey_every_s=0.1,
            hold_down=HoldDown(hold_s=0.05),
        )
        self.agent = Agent(self.settings)

    def start(self) -> None:
        self.agent.start()
        self.wait_for(self.count)

    def restart_agent(self) -> None:
        self.agent.stop()
        self.agent = Agent(self.settings)
        self.agent.start()

    def change(self, machine: Machine) -> None:
        made = machines.save(self.directory / "next", machine)
        made.replace(self.settings.capture or made)

    def configure(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]  # by name
        self.agent = Agent(self.settings)

    def wait_for(self, allocatable: int) -> None:
        eventually(lambda: self.kubelet.allocatable.get(GPU, 0) == allocatable, 60)

    def plan(self, *plans: Grant) -> None:
        self.agent.node.set_intents(tuple(plans), self.agent.node.state.intents_version + 1)

    def socket(self, endpoint: str = "lockstep-gpu") -> Path:
        """A socket of the agent."""
        run = self.agent.node.boot_id[:8]
        return next(self.kubelet.plugins.glob(f"{endpoint}.{run}-*.sock"))

    def truth(self) -> dict[str, list[int]]:
        """The GPUs of each pod as the agent observed them."""
        return {
            grant.pod: sorted(int(device[4:12]) for device in grant.device_ids)
            for grant in self.agent.node.state.grants
            if grant.resource == GPU
        }


@contextmanager
def node_box(
    machine: Machine | None = None,
    *,
    before_record: Callable[[], None] = lambda: None,
    on_change: Callable[[DeviceCounts, DeviceCounts], None] = lambda capacity, allocatable: None,
    kubelet: type[HollowKubelet] = HollowKubelet,
) -> Iterator[NodeBox]:
    # Not pytest's tmp_path: a unix socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        directory = Path(name)
        (directory / "next").mkdir()
        with kubelet(directory, before_record=before_record, on_change=on_change) as running:
            box = NodeBox(directory, machine or machines.machine(), running)
            try:
                yield box
            finally:
                box.agent.stop()


def pod(name: str, *sizes: int, init: Sequence[int] = ()) -> KubeletPod:
    return KubeletPod(
        f"uid-{name}",
        "team",
        name,
        tuple(Container(f"c{i}", ((GPU, size),)) for i, size in enumerate(sizes)),
        tuple(Container(f"i{i}", ((GPU, size),)) for i, size in enumerate(init)),
    )


def intent(name: str, gpus: Sequence[int], container: str = "c0") -> Grant:
    return Grant("team", name, container, GPU, tuple(machines.uuid(i) for i in gpus))


def gpus(admission: Admission, container: int = 0) -> list[int]:
    """The GPUs in the container's variables."""
    assert admission.ok, admission
    told = admission.containers[container].envs["LOCKSTEP_GPUS"]
    return [int(text) for text in told.split(",")]
