"""When one reservation is better than another, and what a strict one promises."""

from math import inf

import numpy as np

from central.controllers.composite import new_scheduler
from central.scheduler.cycle import schedule_once
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import GPU_COLUMN, ReservedPlace
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Gang
from tests.central import factories


def idle() -> Snapshot:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("n")], 0.0)
    return made.state.snapshot


IDLE = idle()


def planned(
    start: float, *, lacks: int = 0, newest: float = 0.0, strict: bool = False
) -> Reservation:
    """On an idle node of 8 GPUs, for so many more than are free."""
    rows, need = np.zeros(1, dtype=np.int64), np.zeros((1, IDLE.columns.width), dtype=np.int64)
    need[0, GPU_COLUMN] = 8 + lacks
    place = ReservedPlace.on(IDLE, TakenCapacity(rows, need, [0], frozenset()), newest=newest)
    gang = Gang(("ns", "g", True))
    request = PlacementRequest(((factories.spec(8), 1),))
    return Reservation(gang, request, place, start=start, after="", strict=strict)


def test_the_better_place_has_the_earlier_start_and_then_more_free_gpus() -> None:
    def better(one: Reservation, other: Reservation) -> bool:
        return one.better_than(other, IDLE, strict_since=50.0)

    assert better(planned(10.0, lacks=4), planned(20.0))
    assert not better(planned(20.0), planned(10.0, lacks=4))
    assert better(planned(10.0, lacks=1), planned(10.0, lacks=2))
    assert not better(planned(10.0, lacks=1), planned(10.0, lacks=1))


def test_in_place_of_a_strict_reservation_only_earlier_pods_are_waited_for() -> None:
    """Else the bound of the wait would not hold. Those that began when it became strict are earlier ones."""
    strict, open_ = planned(20.0, strict=True), planned(20.0)
    for newest, is_better in ((49.0, True), (50.0, True), (50.5, False)):
        assert planned(10.0, newest=newest).better_than(strict, IDLE, 50.0) == is_better
        assert planned(10.0, newest=newest).better_than(open_, IDLE, 50.0)


def test_a_place_that_evictions_free_is_closed_from_the_beginning() -> None:
    other = planned(20.0)
    held = Reservation.by_evictions(other.gang, other.request, other.place, 7.0)
    assert (held.by_eviction, held.strict) == (True, True)
    assert (held.start, held.planned_at, held.head_since) == (7.0, 7.0, 7.0)
    assert not held.lets_in(0.0, 7.0), "not even a gang that would end at once"
    assert held.victims == ()


def test_the_first_strict_start_is_the_latest_and_evictions_set_none() -> None:
    held = planned(20.0)
    held.by_eviction = True
    held.become_strict()
    assert held.strict
    assert held.gang.preemption.latest_start == inf
    held.by_eviction = False
    held.become_strict()
    held.start = 90.0
    held.become_strict()
    assert held.gang.preemption.latest_start == 20.0
    assert held.lets_in(20.0, now=0.0)
    assert not held.lets_in(20.5, now=0.0), "not by the later start"
    held.gang.preemption.overrun = 2.0
    assert not held.lets_in(15.0, now=0.0), "run times are trusted less"
    held.by_eviction = True
    assert not held.lets_in(0.0, now=0.0)
