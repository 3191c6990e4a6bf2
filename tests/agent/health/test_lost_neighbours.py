"""A lost GPU and the GPUs that NVLink joins to it directly."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.health import gpu_health
from agent.health.gpu_health import DeviceHealth, HoldDown, XidEvent
from agent.machine import capture
from agent.machine.facts import GpuFacts, Machine, NvLink
from agent.machine.survey import survey
from tests.agent.nvml_fixture import CAPTURES
from tests.fakes import machines

HOLD_DOWN = HoldDown(hold_s=10.0, max_hold_s=80.0, xid_s=100.0)


def four_gh200() -> Machine:
    """Four GPUs, six links between each pair."""
    made = machines.machine(4)
    gpus = tuple(
        replace(
            gpu,
            nvlinks=tuple(
                NvLink(6 * place + link, True, "gpu", peer.pci)
                for place, peer in enumerate(each for each in made.nvml.gpus if each is not gpu)
                for link in range(6)
            ),
        )
        for gpu in made.nvml.gpus
    )
    return with_gpus(made, gpus)


def with_gpus(machine: Machine, gpus: tuple[GpuFacts, ...]) -> Machine:
    return replace(machine, nvml=replace(machine.nvml, gpus=gpus))


MACHINES: dict[str, Callable[[], Machine]] = {
    "DGX-1": lambda: capture.load(CAPTURES / "dgx1-v100-8.json"),
    "4 x GH200": four_gh200,
    "bridged pairs": lambda: machines.machine(bridged=True),
}


class Watch:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.health: dict[str, DeviceHealth] = {}
        self.known = survey(machine)

    def look(self, now: float, machine: Machine, *events: XidEvent) -> set[int]:
        """The unhealthy GPUs."""
        seen = gpu_health.keep_layout(self.known, survey(machine))
        self.health, topology = gpu_health.step(
            self.health, seen, machine.nvml.gpus, events, now=now, hold_down=HOLD_DOWN
        )
        return {gpu.index for gpu in topology.gpus if not gpu.healthy}


def cut(machine: Machine, gpu: int, **changed: object) -> Machine:
    """All links of the GPU are down on both sides. changed: facts of that GPU."""
    gone = machine.nvml.gpus[gpu]

    def after(each: GpuFacts) -> GpuFacts:
        down = tuple(
            replace(link, active=False, remote="", remote_pci="")
            if each is gone or link.remote_pci == gone.pci
            else link
            for link in each.nvlinks
        )
        made = replace(each, nvlinks=down)
        return replace(made, **changed) if each is gone else made  # type: ignore[arg-type]

    return with_gpus(machine, tuple(map(after, machine.nvml.gpus)))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    "changed", [{"fault": "GPU is lost"}, {"fault": "GPU is lost", "uuid": "", "pci": ""}]
)
def test_a_lost_gpu_is_the_only_one(name: str, changed: dict[str, object]) -> None:
    machine = MACHINES[name]()
    for gpu in range(len(machine.nvml.gpus)):
        watch = Watch(machine)
        assert watch.look(0, machine) == set()
        assert watch.look(1, cut(machine, gpu, **changed)) == {gpu}
        assert watch.look(2, cut(machine, gpu, **changed)) == {gpu}
        # It is back before its links are.
        assert watch.look(3, cut(machine, gpu)) == {gpu}
        assert watch.look(50, cut(machine, gpu)) == {gpu}
        assert watch.look(60, machine) == {gpu}  # held down
        assert watch.look(70, machine) == set()


@pytest.mark.parametrize("name", MACHINES)
def test_a_gpu_whose_links_are_all_silent_is_the_only_one(name: str) -> None:
    """It has no other fault, and a neighbour reports an XID of its link. Of a bridged pair nothing says which end it
    is."""
    machine = MACHINES[name]()
    for gpu in machine.nvml.gpus:
        watch = Watch(machine)
        assert watch.look(0, machine) == set()
        peers = [
            each
            for each in machine.nvml.gpus
            if any(link.remote_pci == gpu.pci for link in each.nvlinks)
        ]
        out = {gpu.index} | ({each.index for each in peers} if name == "bridged pairs" else set())
        assert watch.look(1, cut(machine, gpu.index), XidEvent(peers[0].uuid, 74)) == out
        assert watch.look(2, cut(machine, gpu.index)) == out
        if len(out) == 1:
            assert watch.look(3, machine) == out  # held down
            assert watch.look(13, machine) == set()


@pytest.mark.parametrize("name", MACHINES)
def test_a_gpu_that_is_no_longer_listed_is_the_only_one(name: str) -> None:
    machine = MACHINES[name]()
    watch = Watch(machine)
    watch.look(0, machine)
    rest = cut(machine, 1)
    gpus = tuple(gpu for gpu in rest.nvml.gpus if gpu.index != 1)
    left = tuple(
        replace(gpu, index=place, p2p_nvlink=(), ancestors=()) for place, gpu in enumerate(gpus)
    )
    assert watch.look(1, with_gpus(rest, left)) == {1}


@pytest.mark.parametrize("name", MACHINES)
def test_a_link_between_two_that_are_there_counts_for_both(name: str) -> None:
    """Also after one of them was lost, once the link was up again."""
    machine = MACHINES[name]()
    watch = Watch(machine)
    a, b = machine.nvml.gpus[:2]

    def broken(gpu: GpuFacts, peer: GpuFacts) -> GpuFacts:
        links = tuple(
            replace(link, active=False) if link.remote_pci == peer.pci else link
            for link in gpu.nvlinks
        )
        return replace(gpu, nvlinks=links)

    down = with_gpus(machine, (broken(a, b), broken(b, a), *machine.nvml.gpus[2:]))
    watch.look(0, machine)
    assert watch.look(1, down) == {0, 1}
    watch.look(2, machine)
    watch.look(20, cut(machine, 0, fault="GPU is lost"))
    watch.look(30, machine)
    assert watch.look(90, machine) == set()
    assert watch.look(91, down) == {0, 1}


def test_the_neighbours_report_xid_74() -> None:
    """Before the loss is seen, with it, and after it; this driver reports no recovery action."""
    machine = MACHINES["DGX-1"]()
    neighbours = {1, 2, 3, 4}
    events = [XidEvent(machine.nvml.gpus[gpu].uuid, 74) for gpu in neighbours]
    lost = cut(machine, 0, fault="GPU is lost")
    watch = Watch(machine)
    watch.look(0, machine)
    assert watch.look(1, lost, *events) == {0}
    watch = Watch(machine)
    watch.look(0, machine)
    assert watch.look(1, machine, *events) == neighbours
    watch.look(2, lost)
    assert watch.look(12, lost) == {0}, "one hold time, not the time of an XID"
    watch = Watch(machine)
    watch.look(0, machine)
    watch.look(1, lost)
    assert watch.look(2, lost, *events) == {0}


def test_a_gpu_that_was_reset_between_two_surveys_is_the_only_one() -> None:
    """Its error counter is lower than before, and its links are still down."""
    machine = MACHINES["bridged pairs"]()
    worn = cut_none(machine, 2, ecc=5)
    watch = Watch(machine)
    watch.look(0, worn)
    reset = cut(cut_none(machine, 2, ecc=0), 2)
    assert watch.look(1, reset) == {2}


def cut_none(machine: Machine, gpu: int, *, ecc: int) -> Machine:
    gpus = list(machine.nvml.gpus)
    gpus[gpu] = replace(gpus[gpu], wear=replace(gpus[gpu].wear, ecc_volatile=ecc))
    return with_gpus(machine, tuple(gpus))
