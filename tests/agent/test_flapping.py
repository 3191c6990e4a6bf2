"""Hardware that comes and goes for a long time: what the agent remembers stays bounded."""

import threading
from dataclasses import replace
from pathlib import Path

from agent.device_monitor import MOST_NEWS, DeviceMonitor
from agent.health import nic_health
from agent.health.gpu_health import DeviceHealth, HoldDown
from agent.machine import capture
from agent.machine.facts import Machine
from agent.node import AgentNode
from agent.settings import Settings
from protos.topology import Hca, NodeTopology
from tests.agent.nvml_fixture import CAPTURES
from tests.captures.mig import sliced

ROUNDS = 40
MACHINE = capture.load(CAPTURES / "dgx-a100-8.json")


def turned(number: int) -> Machine:
    """The machine with other GPUs, slices and NICs than in the round before."""
    nvml, sysfs = MACHINE.nvml, MACHINE.sysfs
    first = replace(sliced(nvml.gpus[0], {7: "1g.10gb", 8: "1g.10gb"}), uuid=f"GPU-{number}")
    parts = tuple(replace(p, uuid=f"MIG-{number}-{p.gi}") for p in first.slices)
    lost = replace(nvml.gpus[1], fault="lost" if number % 2 else "")
    gpus = (replace(first, slices=parts), lost, *nvml.gpus[2:])
    nic = replace(sysfs.infiniband[0], name=f"mlx5_{100 + number}")
    return replace(
        MACHINE,
        nvml=replace(nvml, gpus=gpus),
        sysfs=replace(sysfs, infiniband=(nic, *sysfs.infiniband[1:])),
    )


def test_what_is_remembered_does_not_grow(tmp_path: Path) -> None:
    file, threads = tmp_path / "machine.json", threading.active_count()
    hold_down = HoldDown(0.0, 0.0, 0.0, settled_s=0.0)
    node = AgentNode("n")
    monitor = DeviceMonitor(Settings(node="n", capture=file, hold_down=hold_down), node)
    sizes = []
    for number in range(ROUNDS):
        capture.save(turned(number), file)
        monitor.refresh(first=not number)
        node.set_grants(())
        kept = (
            monitor.minors,
            monitor.gpus,
            monitor.speeds,
            monitor.slices,
            monitor.nics,
            node.state.orphaned,
        )
        sizes.append([len(each) for each in kept])
    assert sizes[9] == sizes[-1], "no more after 40 rounds than after ten"
    assert threading.active_count() < threads + ROUNDS


def test_a_nic_that_stays_away_is_forgotten() -> None:
    hold_down = HoldDown(settled_s=100.0)
    known: dict[str, DeviceHealth] = {}
    there = NodeTopology(hcas=(Hca("mlx5_0", "0000:01:00.0"),), links=(("X",),))
    for now, seen, names in (
        (0.0, there, {"mlx5_0"}),
        (10.0, NodeTopology(), {"mlx5_0"}),
        (110.0, NodeTopology(), {"mlx5_0"}),
        (111.0, NodeTopology(), set()),
    ):
        known, _ = nic_health.step(known, seen, now=now, hold_down=hold_down)
        assert known.keys() == names


def test_events_that_nobody_reads_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    capture.save(MACHINE, file)
    monitor = DeviceMonitor(Settings(node="n", capture=file), AgentNode("n"))
    for number in range(MOST_NEWS + 5000):
        monitor.on_event(f"GPU-{number}", 79)
    assert monitor._news.qsize() == MOST_NEWS
    monitor.refresh(monitor._wait(), first=True)
    assert len(monitor.xids) <= 1000


def test_a_bug_in_one_survey_keeps_what_is_known(tmp_path: Path) -> None:
    """A file that no version of the agent understands stands for the bug."""
    file = tmp_path / "machine.json"
    capture.save(MACHINE, file)
    node = AgentNode("n")
    monitor = DeviceMonitor(Settings(node="n", capture=file, survey_every_s=0.02), node)
    monitor.refresh(first=True)
    stop = threading.Event()
    before, at = node.state.topology, monitor.refreshed_at
    monitor.minors = None  # type: ignore[assignment]  # whatever it is, a survey fails by it
    thread = threading.Thread(target=monitor.run, args=(stop,), daemon=True)
    thread.start()
    threading.Event().wait(0.3)
    assert thread.is_alive()
    assert (node.state.topology, monitor.refreshed_at) == (before, at), "liveness will notice"
    monitor.minors = {}
    while monitor.refreshed_at == at:
        assert thread.is_alive()
        threading.Event().wait(0.02)
    stop.set()
    monitor.wake()
    thread.join(10)
