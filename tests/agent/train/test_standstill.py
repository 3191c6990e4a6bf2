"""When a process says that it takes no step, on a clock of the test."""

import threading
from typing import Any

from agent.train import standstill
from agent.train.batches import Batch
from agent.train.order import Order
from agent.train.sources import NoChange
from agent.train.standstill import BETWEEN, LOADS, STEPS, StepWatch, stack
from agent.train.world import World
from tests.agent.train.test_generation_lease import Clock


class Watched:
    def __init__(self) -> None:
        self.clock, self.told = Clock(), list[dict[str, Any]]()
        self.watch = StepWatch(self.told.append, self.clock)
        self.watch.begin()

    def step(self, load_s: float, step_s: float, between_s: float = 0.0) -> None:
        for phase, seconds in ((LOADS, load_s), (STEPS, step_s), (BETWEEN, between_s)):
            self.watch.enter(phase)
            self.clock.now += seconds
            self.watch.look()

    def tells_after(self, seconds: float) -> bool:
        """Whether it tells exactly then."""
        began, before = self.clock.now, len(self.told)
        self.clock.now = began + seconds - 0.1
        self.watch.look()
        early = len(self.told) > before
        self.clock.now = began + seconds
        self.watch.look()
        return not early and len(self.told) == before + 1


def started() -> Watched:
    made = Watched()
    made.step(1.0, 1.0)
    return made


def test_sixty_seconds_in_the_loader_or_in_a_step() -> None:
    for phase in (LOADS, STEPS):
        made = started()
        made.watch.enter(LOADS)
        made.watch.enter(phase)
        assert made.tells_after(60.0)
        assert made.told[0]["phase"] == phase
        assert made.told[0]["seconds"] == 60.0


def test_ten_usual_steps_or_twice_the_longest() -> None:
    made = started()
    for _ in range(3):
        made.step(4.0, 4.0)
    made.watch.enter(LOADS)
    assert made.tells_after(80.0)
    made = started()
    made.step(1.0, 1.0)
    made.step(20.0, 29.0)
    made.watch.enter(LOADS)
    usual_s = 2.0 + 0.2 * (49.0 - 2.0)
    assert made.tells_after(max(10 * usual_s, 2 * 49.0))


def test_one_slow_step_is_remembered() -> None:
    made = started()
    made.step(20.0, 30.0)
    for _ in range(30):
        made.step(0.5, 0.5)
    made.watch.enter(LOADS)
    assert made.tells_after(2 * 50.0)


def test_the_first_step_and_the_time_between_two_steps_have_ten_times_as_long() -> None:
    made = Watched()
    made.watch.enter(LOADS)
    assert made.tells_after(600.0)
    made = started()
    assert made.tells_after(600.0)
    assert made.told[0]["phase"] == BETWEEN
    made = started()
    made.step(1.0, 1.0, between_s=500.0)
    made.watch.enter(LOADS)
    assert made.tells_after(60.0), "an evaluation is no step"


def test_a_loop_with_a_source_of_its_own_has_no_phases() -> None:
    made = Watched()
    made.watch.enter(BETWEEN)
    assert made.tells_after(60.0)


def test_what_the_script_says_does_not_count() -> None:
    made = started()
    made.watch.enter(LOADS)
    made.clock.now += 50.0
    with made.watch.busy():
        made.clock.now += 5000.0
        made.watch.look()
        with made.watch.busy():
            made.clock.now += 5000.0
        made.watch.look()
    assert not made.told
    assert made.tells_after(10.0)


def test_it_tells_again_and_not_after_a_step() -> None:
    made = started()
    made.step(1.0, 1.0)
    made.watch.enter(LOADS)
    assert made.tells_after(60.0)
    assert made.tells_after(30.0)
    made.step(1.0, 1.0)  # the step in which it stood still took 92 s
    assert len(made.told) == 2
    made.watch.enter(LOADS)
    assert made.tells_after(10 * (2.0 + 0.2 * 90.0))


def test_the_time_before_others_are_waited_for() -> None:
    """That of the loader, and until the first gradient; not in the first step, and in no evaluation."""
    made = Watched()
    made.step(3.0, 4.0, between_s=50.0)
    assert made.watch.own_s == 0.0
    made.step(2.0, 4.0, between_s=50.0)
    assert made.watch.own_s == 2.0, "no gradient is watched"
    for phase, seconds in ((LOADS, 2.0), (STEPS, 1.0)):
        made.watch.enter(phase)
        made.clock.now += seconds
    for _ in range(2):
        standstill.computed(None)
        made.clock.now += 5.0
    made.step(0.0, 9.0)
    assert made.watch.own_s == 2.0 + 3.0


def test_of_a_step_in_several_batches_the_first_counts() -> None:
    """Behind it may be a collective."""
    made = started()
    for _ in range(2):
        for phase, seconds in ((LOADS, 2.0), (STEPS, 1.0)):
            made.watch.enter(phase)
            made.clock.now += seconds
    made.watch.enter(BETWEEN)
    standstill.computed(None)
    assert made.watch.own_s == 2.0


def test_zero_is_never() -> None:
    made = started()
    made.watch.least_s = 0.0
    made.watch.enter(LOADS)
    made.clock.now = 1e9
    made.watch.look()
    assert not made.told


def test_an_order_says_what_its_loop_does() -> None:
    made = Watched()
    world, phases = World(NoChange(), watch=made.watch), []

    def loader(sampler: Any) -> Any:
        for ids in sampler:
            phases.append(made.watch._phase)
            yield ids

    batch: Batch
    for step, batch in Order(4, 2).steps(world, loader):
        assert len(batch.ids) == 2
        phases.append(made.watch._phase)
        world.over(step)
        phases.append(made.watch._phase)
    assert phases == [LOADS, STEPS, BETWEEN] * 2


def test_a_stack_has_places_and_no_values() -> None:
    entered, leave = threading.Event(), threading.Event()

    def inner(secret: str, depth: int) -> None:
        if depth:
            inner(secret, depth - 1)
        entered.set()
        leave.wait()

    thread = threading.Thread(target=inner, args=("password-of-a-tenant", 400))
    thread.start()
    entered.wait()
    try:
        assert thread.ident is not None
        lines = stack(thread.ident).splitlines()
    finally:
        leave.set()
        thread.join()
    assert len(lines) == 24
    assert all(len(line) <= 160 for line in lines)
    assert lines[-1].endswith(" wait")
    assert " inner" in lines[0]
    assert "password" not in "".join(lines)
    assert stack(-1) == ""
