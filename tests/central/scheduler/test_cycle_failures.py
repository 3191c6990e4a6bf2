"""An exception that no object or gang is set aside for: the state is built again once, then the process ends."""

from collections.abc import Callable
from typing import Any

import pytest

from central.controllers.composite import BatchControllers
from central.scheduler import agenda, cycle, gang_attempt, refusal_reasons
from central.scheduler.cycle import schedule_once
from central.scheduler.quarantine import COMES_BACK_S, CYCLE
from central.scheduler.queues import order
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.rebuild import CannotRebuild
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.state import handlers
from central.scheduler.state.network_tree import NetworkTree
from central.scheduler.status.gpu_memory import GpuMemoryOveruse
from central.scheduler.status.hypernode_status import HyperNodeStatuses
from central.scheduler.status.queue_status import QueueStatuses
from tests.central.scheduler.small_cluster import job
from tests.central.scheduler.whole_cycle import WholeCycle

# One function of each part that is not about one gang, in the order in which a cycle calls them.
PARTS: list[tuple[Any, str]] = [
    (handlers, "release_held_pods"),
    (NetworkTree, "rebuild"),
    (Queues, "settle"),
    (Queues, "measure_capacity"),
    (agenda, "_join"),
    (ReservedCapacity, "__init__"),
    (order, "in_order"),
    (ReservedCapacity, "on_tried"),
    (refusal_reasons, "refresh"),
    (GpuMemoryOveruse, "decide"),
    (cycle, "_resize_elastic"),
    (BatchControllers, "decide"),
    (QueueStatuses, "decide"),
    (HyperNodeStatuses, "decide"),
    (cycle, "_add_statuses"),
]
Break = Callable[[Any, str, int], None]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Lets a function raise in its next calls."""

    def register(owner: Any, name: str, times: int) -> None:
        real, left = getattr(owner, name), [times]

        def fails(*args: Any, **more: Any) -> Any:
            if left[0]:
                left[0] -= 1
                # Each function fails in its own way.
                raise type(name, (KeyError,), {})(f"a bug of {name}")
            return real(*args, **more)

        monkeypatch.setattr(owner, name, fails)

    return register


@pytest.fixture
def world() -> WholeCycle:
    made = WholeCycle()
    made.begin()
    assert not made.scheduler.quarantine.total
    return made


def rebuilt(world: WholeCycle) -> int:
    return world.scheduler.state.pending.wakeups["state rebuilt"]


@pytest.mark.parametrize(("owner", "name"), PARTS, ids=[name for _, name in PARTS])
def test_the_state_is_built_again_and_the_same_cycle_decides(
    owner: Any, name: str, world: WholeCycle, breaks: Break
) -> None:
    breaks(owner, name, 1)
    assert {"probe-0", "probe-1"} <= world.cycle(*world.probe("probe"))
    quarantine = world.scheduler.quarantine
    assert (quarantine.total, rebuilt(world)) == ({CYCLE: 1}, 1)
    assert not quarantine.set_asides
    [failure] = quarantine.take_failures()
    assert str(failure.error) == repr(f"a bug of {name}")


@pytest.mark.parametrize(("owner", "name"), PARTS, ids=[name for _, name in PARTS])
def test_the_second_failure_ends_the_process(
    owner: Any, name: str, world: WholeCycle, breaks: Break
) -> None:
    breaks(owner, name, 20)
    with pytest.raises((KeyError, CannotRebuild)):  # a rebuild builds the tree of queues
        world.cycle(*world.probe("probe"))
    errors = [each.error for each in world.scheduler.quarantine.take_failures()]
    assert len(errors) == (1 if name == "settle" else 2), "all are for the log"


@pytest.mark.long
def test_a_failure_elsewhere_after_a_round_is_another_one(world: WholeCycle, breaks: Break) -> None:
    places = [(refusal_reasons, "refresh"), (QueueStatuses, "decide"), (cycle, "_add_statuses")]
    for count, (owner, name) in enumerate(places, start=1):
        breaks(owner, name, 1)
        world.cycle()
        assert rebuilt(world) == count


@pytest.mark.long
@pytest.mark.parametrize(("after_s", "ends"), [(COMES_BACK_S - 1, True), (COMES_BACK_S, False)])
def test_a_failure_from_the_same_place_comes_back(
    after_s: float, ends: bool, world: WholeCycle, breaks: Break
) -> None:
    """In the first round that needs what failed; those between pass."""
    breaks(refusal_reasons, "refresh", 1)
    world.cycle()
    world.cycle()
    world.now += after_s - 2
    breaks(refusal_reasons, "refresh", 1)
    if ends:
        with pytest.raises(KeyError):
            world.cycle()
    else:
        world.cycle()
    assert rebuilt(world) == (1 if ends else 2)


@pytest.mark.long
def test_until_the_round_ends_the_state_is_on_trial(world: WholeCycle, breaks: Break) -> None:
    """What fails at the end of a round does so again, however many cycles the round is cut into."""
    scheduler, facts = world.scheduler, [each for n in "uvw" for each in job(n, 1, gpus=0)]
    breaks(agenda, "_join", 1)
    schedule_once(scheduler, facts, 100.0, lambda: True)
    assert scheduler.state.pending.round is not None
    schedule_once(scheduler, [], 100.1, lambda: True)
    breaks(refusal_reasons, "refresh", 1)

    def end_round() -> None:
        for number in range(2, 100):
            schedule_once(scheduler, [], 100.0 + number / 10, lambda: True)

    with pytest.raises(KeyError, match="refresh"):
        end_round()


@pytest.mark.long
def test_a_gang_that_is_set_aside_meanwhile_does_not_end_the_process(
    world: WholeCycle, breaks: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure is its own, although the state is built again for it, too."""
    real = gang_attempt.schedule

    def schedule(scheduler: Any, gang: Any, *args: Any, **more: Any) -> None:
        if gang.name == "bad":
            raise RecursionError("deep")
        real(scheduler, gang, *args, **more)

    monkeypatch.setattr(gang_attempt, "schedule", schedule)
    breaks(refusal_reasons, "refresh", 1)
    bound = world.cycle(*job("bad", 1, gpus=0), *world.probe("probe"))
    assert {"probe-0", "probe-1"} <= bound
    assert world.scheduler.quarantine.total == {CYCLE: 1, "gang": 1}
    assert rebuilt(world) == 2


def test_what_was_decided_before_the_failure_is_decided_once(
    world: WholeCycle, breaks: Break
) -> None:
    breaks(HyperNodeStatuses, "decide", 1)
    before = len(world.decisions)
    world.cycle(*world.probe("probe"))
    names = [getattr(each, "name", "") for each in world.decisions[before:]]
    assert names.count("probe-0") == names.count("probe-1") == 1
