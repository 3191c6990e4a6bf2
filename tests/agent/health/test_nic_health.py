from dataclasses import replace

from agent.health.gpu_health import ABSENT, Case, Damping, due
from agent.health.nic_health import changes, step
from agent.machine.survey import survey
from protos.topology import NodeTopology
from tests.fakes import machines

KNOWN = survey(machines.machine(cards=8))
DAMPING = Damping(hold_s=10.0, most_s=40.0, settled_s=1000.0)
DOWN = "no port is ACTIVE: 1 is DOWN"


class Told:
    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.topology = KNOWN

    def look(self, at: float, *down: int, gone: tuple[int, ...] = ()) -> dict[str, str]:
        hcas = tuple(
            replace(hca, why=DOWN if place in down else "")
            for place, hca in enumerate(KNOWN.hcas)
            if place not in gone
        )
        seen = replace(KNOWN, hcas=hcas)
        self.cases, self.topology = step(self.cases, seen, now=at, damping=DAMPING)
        return {hca.name: hca.why for hca in self.topology.hcas if hca.why}


def test_a_card_that_flaps_is_not_offered_at_every_coming() -> None:
    told, now, holds = Told(), 0.0, []
    assert told.look(0) == {}
    for _ in range(5):
        now += 1
        assert told.look(now, 2) == {"mlx5_2": DOWN}
        began = now = now + 1
        while told.look(now):
            now += 1
        holds.append(now - began)
    assert holds == [10, 20, 40, 40, 40]
    assert told.look(now + DAMPING.settled_s, 2)
    now += DAMPING.settled_s + 1
    assert "held back for 10 s" in told.look(now)["mlx5_2"]
    assert due(told.cases.values(), DAMPING) == now + 10
    assert told.look(now + 10) == {}


def test_a_card_that_comes_and_goes_altogether() -> None:
    told = Told()
    told.look(0)
    assert told.look(1, gone=(3,)) == {}
    assert told.cases["mlx5_3"].against is not None
    assert ABSENT in told.look(2)["mlx5_3"]
    assert told.look(12) == {}


def test_a_card_that_is_there_and_up_at_first_is_fit_at_once() -> None:
    assert Told().look(0, 1) == {"mlx5_1": DOWN}


def test_changes_are_told_once() -> None:
    told = Told()
    told.look(0)
    before = told.topology
    told.look(1, 4)
    assert changes(before, told.topology) == (f"network card mlx5_4 is not fit: {DOWN}",)
    assert changes(told.topology, told.topology) == ()
    assert changes(told.topology, before) == ("network card mlx5_4 is fit again",)
    assert changes(before, NodeTopology(hcas=before.hcas[1:])) == ("network card mlx5_0 is gone",)
