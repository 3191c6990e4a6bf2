"""A phase of the cycle that fails stops nobody: what it fails on is set aside, else the cycle goes on without it."""

from typing import Any

import pytest

from central.scheduler.cycle_phases import OF_ONE_GANG, Phase
from tests.central.scheduler.whole_cycle import Observed, WholeCycle

REAL = [phase for phase in Phase if phase is not Phase.CYCLE]
SHARED = [phase for phase in REAL if phase not in OF_ONE_GANG]
CYCLES = 40  # a second each


def test_the_small_cluster_comes_through_all_phases() -> None:
    phases = Observed()
    WholeCycle(phases).begin()
    assert [phase.name for phase in REAL if not phases.entered[phase]] == []
    assert not phases.failed


@pytest.mark.parametrize("broken", SHARED, ids=lambda phase: phase.name)
def test_a_phase_that_always_fails_is_left_out(broken: Phase) -> None:
    """No object is at fault. Gangs are bound in the cycle in which they come, and the phase is tried ever less often."""
    phases = Observed(lambda phase, _: phase is broken)
    world = WholeCycle(phases)
    world.begin()
    quarantine = world.scheduler.quarantine
    assert phases.failed == {broken}
    assert quarantine.total["phase of the cycle"]
    assert any(each.name == broken.label for each in quarantine.failures_to_log)
    assert not quarantine.counts().get("gang"), "nobody is at fault"
    bound = 0
    for number in range(CYCLES):
        bound += len(world.cycle(*world.probe(f"probe-{number}")) & {f"probe-{number}-0"})
    assert bound == CYCLES
    assert quarantine.total["phase of the cycle"] <= 8, "after 1, 2, 4, ... s"


def test_a_phase_that_fails_on_two_objects_together_goes_on_without_one_of_them() -> None:
    pair = {("ns", "equal", True), ("ns", "equally", True)}

    def fails(phase: Phase, args: tuple[Any, ...]) -> bool:
        if phase is not Phase.DUE:
            return False
        aside = {key.identity for key in args[0].quarantine.set_asides}
        return pair.issubset(args[0].state.pending.waiting.keys() - aside)

    world = WholeCycle(Observed(fails))
    world.begin()
    assert {"probe-0", "probe-1"} <= world.cycle(*world.probe("probe"))
    assert len({key.identity for key in world.scheduler.quarantine.set_asides} & pair) == 1
    assert not world.scheduler.quarantine.phases.left_out()


@pytest.mark.parametrize("broken", [p for p in SHARED if p.without], ids=lambda phase: phase.name)
def test_users_learn_what_is_left_out(broken: Phase) -> None:
    world = WholeCycle(Observed(lambda phase, _: phase is broken))
    world.begin()
    world.search_long("equal")
    world.cycle()
    reason = world.scheduler.state.gangs["ns", "equal", True].attempt.reason
    assert f"{broken.without} for" in reason
    assert "a failure of the scheduler (a bug), which its log names" in reason
    assert "KeyError" not in reason, "an error may hold a text of another tenant"
