from dataclasses import replace

from agent.health.gpu_health import ABSENT, DeviceHealth, HoldDown, next_release
from agent.health.nic_health import changes, step
from agent.machine.survey import survey
from protos.topology import NodeTopology
from tests.fakes import machines

KNOWN = survey(machines.machine(cards=8))
HOLD_DOWN = HoldDown(hold_s=10.0, max_hold_s=40.0, settled_s=1000.0)
DOWN = "no port is ACTIVE: 1 is DOWN"


class Monitor:
    def __init__(self) -> None:
        self.health: dict[str, DeviceHealth] = {}
        self.topology = KNOWN

    def look(self, at: float, *down: int, gone: tuple[int, ...] = ()) -> dict[str, str]:
        hcas = tuple(
            replace(hca, why=DOWN if place in down else "")
            for place, hca in enumerate(KNOWN.hcas)
            if place not in gone
        )
        seen = replace(KNOWN, hcas=hcas)
        self.health, self.topology = step(self.health, seen, now=at, hold_down=HOLD_DOWN)
        return {hca.name: hca.why for hca in self.topology.hcas if hca.why}


def test_the_hold_down_of_a_flapping_nic_doubles() -> None:
    monitor, now, holds = Monitor(), 0.0, []
    assert monitor.look(0) == {}
    for _ in range(5):
        now += 1
        assert monitor.look(now, 2) == {"mlx5_2": DOWN}
        began = now = now + 1
        while monitor.look(now):
            now += 1
        holds.append(now - began)
    assert holds == [10, 20, 40, 40, 40]
    assert monitor.look(now + HOLD_DOWN.settled_s, 2)
    now += HOLD_DOWN.settled_s + 1
    assert "held down for 10 s" in monitor.look(now)["mlx5_2"]
    assert next_release(monitor.health.values(), HOLD_DOWN) == now + 10
    assert monitor.look(now + 10) == {}


def test_a_nic_that_is_not_listed_for_a_while_is_held_down() -> None:
    monitor = Monitor()
    monitor.look(0)
    assert monitor.look(1, gone=(3,)) == {}
    assert monitor.health["mlx5_3"].cause is not None
    assert ABSENT in monitor.look(2)["mlx5_3"]
    assert monitor.look(12) == {}


def test_a_nic_that_is_up_at_the_first_survey_is_healthy() -> None:
    assert Monitor().look(0, 1) == {"mlx5_1": DOWN}


def test_each_change_is_logged_once() -> None:
    monitor = Monitor()
    monitor.look(0)
    before = monitor.topology
    monitor.look(1, 4)
    assert changes(before, monitor.topology) == (f"NIC mlx5_4 is unhealthy: {DOWN}",)
    assert changes(monitor.topology, monitor.topology) == ()
    assert changes(monitor.topology, before) == ("NIC mlx5_4 is healthy again",)
    assert changes(before, NodeTopology(hcas=before.hcas[1:])) == (f"NIC mlx5_0 is {ABSENT}",)
