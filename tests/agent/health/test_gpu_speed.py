"""From which survey on a GPU is slow, and until when."""

from dataclasses import replace

from agent.health import gpu_speed
from agent.health.gpu_health import HoldDown
from agent.health.gpu_speed import Speed
from agent.machine.facts import Fabric, GpuFacts
from agent.machine.findings import slow
from agent.machine.survey import survey
from protos.topology import NodeTopology, Weak
from tests.fakes import machines

MACHINE = machines.machine(2)
SEEN = replace(survey(MACHINE), weak=(Weak(0, 1, "a pair"), Weak(1, 1, "of this moment")))
HOLD = HoldDown(hold_s=10.0)


def run(*clocks: int, every_s: float = 1.0, mig: bool = False) -> list[tuple[Weak, ...]]:
    """clocks: of GPU 1, at each survey. Returns what is weak after it."""
    known: dict[str, Speed] = {}
    found = []
    for number, reasons in enumerate(clocks):
        first, second = MACHINE.nvml.gpus
        facts = (first, replace(second, clock_events=reasons, mig=mig))
        now = number * every_s
        known, topology = gpu_speed.step(known, SEEN, facts, now=now, hold_down=HOLD)
        assert topology.weak[0] == Weak(0, 1, "a pair")
        found.append(topology.weak[1:])
    return found


def test_one_survey_alone_does_not_count_except_the_first() -> None:
    (first,) = run(0x40)
    assert [(pair.a, pair.b) for pair in first] == [(1, 1)]
    assert run(0, 0x40, 0, 0x40, 0) == [()] * 5
    assert [len(each) for each in run(0, 0x40, 0x40)] == [0, 0, 1]


def test_it_stays_slow_for_a_hold_down() -> None:
    assert [len(each) for each in run(0x40, 0, 0, 0, every_s=5.0)] == [1, 1, 1, 0]
    (held,) = run(0x40, 0)[1]
    assert held.why.endswith("(cleared; held down for 10 s)")


def test_a_gpu_that_is_unhealthy_or_lost_is_not_called_slow() -> None:
    gpus = tuple(replace(gpu, healthy=gpu.index != 1) for gpu in SEEN.gpus)
    hot = replace(MACHINE.nvml.gpus[1], clock_events=0x40)
    for topology, facts in (
        (replace(SEEN, gpus=gpus), (hot,)),
        (SEEN, (replace(hot, fault="lost"),)),
        (SEEN, ()),
    ):
        _, found = gpu_speed.step({}, topology, facts, now=0.0, hold_down=HOLD)
        assert found.weak == (Weak(0, 1, "a pair"),)


def test_load_and_settings_are_no_fault_and_mig_uses_no_fabric() -> None:
    for harmless in (0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x200, 0x400):
        assert slow(GpuFacts(0, clock_events=harmless)) is None
    kinds = {bit: slow(GpuFacts(0, clock_events=bit | 0x4)) for bit in (0x8, 0x20, 0x40, 0x80)}
    assert [found and found.kind for found in kinds.values()] == [
        "power",
        "thermal",
        "thermal",
        "power",
    ]
    limited = GpuFacts(0, fabric=Fabric(3, health=3))
    assert slow(limited) is not None
    assert slow(replace(limited, mig=True)) is None
    assert slow(replace(limited, fabric=Fabric(3, health=1))) is None


def test_the_log_says_when_it_begins_and_ends() -> None:
    now = replace(SEEN, weak=(Weak(1, 1, "hot"),))
    fast = NodeTopology(SEEN.gpus, links=SEEN.links)
    assert gpu_speed.changes(fast, now) == (f"GPU 1 ({machines.uuid(1)}) is slow: hot",)
    assert gpu_speed.changes(now, now) == ()
    assert gpu_speed.changes(now, fast) == (f"GPU 1 ({machines.uuid(1)}) is no longer slow",)
