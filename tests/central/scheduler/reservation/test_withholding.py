"""What reservations take out of the snapshot, and that all of it comes back."""

import random
from math import inf

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.volumes import VolumeSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.shared_refusals import CountedCapacity, RefusedRequest, Verdicts
from central.scheduler.state import handlers
from central.scheduler.state.gangs import Gang
from tests.central import factories

NODES = 12


def cluster() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    names = [f"n{number:02}" for number in range(NODES)]
    facts = [factories.node(name) for name in names]
    schedule_once(made, [*facts, *(factories.report(name) for name in names)], 0.0)
    return made


def reserved(
    made: Scheduler,
    name: str,
    rows: list[int],
    gpus: int,
    mask: int = 0,
    *,
    width: int = 0,
    claims: bool = True,
) -> Reservation:
    """width: columns that were there when it was made; 0: all. claims: else no start is known."""
    columns = made.state.snapshot.columns
    width = width or columns.width
    need = np.tile(np.array([gpus] + [0] * (width - 1), dtype=np.int64), (len(rows), 1))
    taken = TakenCapacity(np.array(rows, dtype=np.int64), need, [mask] * len(rows), frozenset())
    place = ReservedPlace.on(made.state.snapshot, taken)
    gang = Gang(("ns", name, True))
    request = PlacementRequest(((factories.spec(gpus), len(rows)),))
    held = Reservation.by_evictions(gang, request, place, 0.0)
    if not claims:
        held.by_eviction, held.start = False, inf
    held.refresh(made.state, 0.0, most_idle=8)
    return held


@pytest.mark.parametrize("seed", range(20))
def test_at_once_or_one_by_one_the_same_is_taken_and_comes_back(seed: int) -> None:
    """Sets of reservations in any order; some share rows, some have certain GPUs."""
    dice, made = random.Random(seed), cluster()
    columns, apart = made.state.snapshot.columns, dice.random() < 0.5
    rows = list(range(NODES))
    dice.shuffle(rows)
    held = [
        reserved(
            made,
            f"g{number}",
            rows[2 * number : 2 * number + 2] if apart else sorted(dice.sample(rows, 2)),
            dice.randint(0, 8),
            dice.choice((0, 0, 0, 0b1111)),
            width=columns.width - dice.choice((0, 0, 0, 1)),
            claims=dice.random() < 0.7,
        )
        for number in range(6)
    ]
    whole = columns.free.copy(), columns.gpus.count.copy(), list(columns.gpus.free_mask)
    withheld = WithheldCapacity(made.state.snapshot)
    for _ in range(12):
        chosen = [one for one in held if dice.random() < 0.6]
        withheld.set(chosen)
        holders = [one for one in chosen if one.withheld.any()]
        assert withheld.longest_run_s(0.0) == (-inf if holders else inf)
        assert withheld.holders() == sorted(one.gang.qualified_name for one in holders)
        assert [one.gang.key in withheld for one in held] == [one in chosen for one in held]
        found = columns.free.copy(), columns.gpus.count.copy(), list(columns.gpus.free_mask)
        assert (made.state.snapshot.gpus_with_reserved() == whole[1]).all()
        names = {key: each.name for key, each in made.state.snapshot.reserved_gpus.items()}
        if chosen and dice.random() < 0.3:
            withheld.without(chosen[0])
            assert withheld.reservations() == chosen[1:]
        withheld.set([])
        taken = [(one, one.withhold(made.state.snapshot)) for one in chosen]
        assert (columns.free == found[0]).all()
        assert (columns.gpus.count == found[1]).all()
        assert list(columns.gpus.free_mask) == found[2]
        alone = {key: each.name for key, each in made.state.snapshot.reserved_gpus.items()}
        assert names == alone
        assert (made.state.snapshot.gpus_with_reserved() == whole[1]).all()
        for one, what in reversed(taken):
            one.give_back(made.state.snapshot, what)
        assert not made.state.snapshot.reserved_gpus
        assert (columns.free == whole[0]).all()
        assert (columns.gpus.count == whole[1]).all()
        assert list(columns.gpus.free_mask) == whole[2]


def test_the_holders_stay_in_order_as_one_claim_follows_the_other() -> None:
    """Each once, though two gangs of a namespace may have one name: a PodGroup's, and a pod's."""
    made = cluster()
    held = [reserved(made, name, [row], 1) for row, name in enumerate("dabcb")]
    held[4].gang = Gang(("ns", "b", False))
    held[3].withheld = held[3].withheld * 0
    withheld = WithheldCapacity(made.state.snapshot)
    for count, names in ((1, "d"), (2, "ad"), (3, "abd"), (4, "abd"), (5, "abd"), (2, "ad")):
        withheld.set(held[:count])
        assert withheld.holders() == [f"ns/{name}" for name in names]
    withheld.set([])
    assert withheld.holders() == []


def test_volumes_of_a_reservation_behind_others_are_withheld() -> None:
    made = cluster()
    free, names = made.state.snapshot.pod_counts.volumes.free, frozenset({"v"})
    free.put(VolumeSeen("v", (), storage_class="local", phase="Available"))
    held = [reserved(made, name, [row], 1) for row, name in enumerate("ab")]
    held[1].withheld_volumes = names
    withheld = WithheldCapacity(made.state.snapshot)
    withheld.set(held[:1])
    withheld.set(held)
    assert free.available(names) == frozenset()
    withheld.set(held[:1])
    assert free.available(names) == names
    withheld.set([])


def test_what_claims_take_is_counted_until_they_are_given_back() -> None:
    """Many at once, and what is noted of each is as after its latest update."""
    made = cluster()
    held = [reserved(made, name, [row, row + 1], 8) for row, name in enumerate("abc")]
    withheld = WithheldCapacity(made.state.snapshot)
    for _ in range(2):
        withheld.set(held)
        assert withheld._claimed[:, 0].tolist()[:5] == [8, 16, 16, 8, 0]
        withheld.set([])
        assert not withheld._claimed.any()
    running = factories.pod("p", 3, node="n00", phase="Running")
    schedule_once(made, [running], 1.0)
    for each in held:
        each.refresh(made.state, 1.0)
    withheld.set(held)
    noted = made.state.snapshot.reserved_gpus[held[0].gang.key]
    assert noted.free.tolist() == [5, 8]
    withheld.set([])


def test_volumes_come_back_though_nothing_else_is_withheld() -> None:
    made = cluster()
    free = made.state.snapshot.pod_counts.volumes.free
    free.put(VolumeSeen("v", (), storage_class="local", phase="Available"))
    held = reserved(made, "g", [0], 1)
    held.withheld_volumes = frozenset({"v"})
    withheld = WithheldCapacity(made.state.snapshot)
    withheld.set([], [reserved(made, "none", [1], 1), held])
    assert (withheld.volumes_only, free.available(frozenset({"v"}))) == ([held], frozenset())
    withheld.set([])
    assert (withheld.volumes_only, free.available(frozenset({"v"}))) == ([], frozenset({"v"}))


def test_who_must_leave_more_free_is_refused_as_well() -> None:
    verdicts, wants = Verdicts(), (PlacementRequest(((factories.spec(1), 1),)),)
    few, more, others = frozenset({"a"}), frozenset({"a", "b"}), frozenset({"b"})
    refused = RefusedRequest("no", CountedCapacity(1, 7, (), (), 0), "capacity")
    verdicts.of(few, wants, 7)[7, wants] = refused
    assert verdicts.of(more, wants, 7) == {(7, wants): refused}
    assert verdicts.of(others, wants, 7) == {}
    assert verdicts.of(more, wants, 8) == {}
    assert verdicts.of(few, wants, 7) == {(7, wants): refused}


def test_a_reason_is_counted_anew_after_whatever_may_change_its_numbers() -> None:
    made = cluster()
    one, other = reserved(made, "a", [0], 1), reserved(made, "b", [1], 1)
    withheld = WithheldCapacity(made.state.snapshot)

    def counted() -> CountedCapacity:
        return CountedCapacity.of(made.state, withheld)

    withheld.set([one])
    seen = [counted()]
    assert counted() == seen[-1]
    withheld.set([other])
    seen.append(counted())
    other.refresh(made.state, 0.0)
    seen.append(counted())
    withheld.set([])
    seen.append(counted())
    made.state.pending.capacity_freed("for this test")
    seen.append(counted())
    handlers.assume(made.state, Gang(("ns", "c", True)), [], [], [])
    seen.append(counted())
    schedule_once(made, [], 1.0)
    assert len({*seen, counted()}) == 7


def test_reserved_gpus_are_counted_as_the_node_has_them_now() -> None:
    """A shared GPU is no longer whole, but the node's free amount keeps it. Of 8 whole GPUs the reservation takes 5;
    once pods share four of them, 4 are free without it."""
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("n", shares=True), factories.report("n")], 0.0)
    held, snapshot = reserved(made, "a", [0], 5), made.state.snapshot
    withheld = WithheldCapacity(snapshot)
    withheld.set([held])
    assert snapshot.gpus_with_reserved()[0] == 8
    snapshot.columns.shift(held.place.rows, held.withheld * 0, [0b1111], free=False)
    assert (snapshot.gpus_with_reserved()[0], snapshot.columns.gpus.count[0]) == (4, 3)


def test_a_slice_withholds_what_the_last_one_gave_back_and_more() -> None:
    """As it is by now: a reservation that was updated in between takes another amount."""
    made = cluster()
    columns, snapshot = made.state.snapshot.columns, made.state.snapshot
    held = [reserved(made, name, [row, row + 1], 6) for row, name in enumerate("dabc")]
    held[1].by_eviction = False
    withheld = WithheldCapacity(snapshot)

    def found(some: WithheldCapacity, chosen: list[Reservation]) -> tuple[object, ...]:
        some.set(chosen)
        names = {key: each.name for key, each in snapshot.reserved_gpus.items()}
        seen = columns.free.tolist(), names, [*some.holders()], some._claimed.tolist()
        assert some.reservations() == chosen
        some.set([])
        assert not snapshot.reserved_gpus
        return seen

    whole = columns.free.copy()
    for step, chosen in enumerate((held[:3], held[:3], held, held, held[1:], held[:2], held)):
        if step == 3:
            running = factories.pod("p", 5, node="n01", phase="Running")
            schedule_once(made, [running], 1.0)
            whole = columns.free.copy()
            held[1].refresh(made.state, 1.0)
        assert found(withheld, chosen) == found(WithheldCapacity(snapshot), chosen), step
        assert (columns.free == whole).all()


def test_volumes_stay_withheld_when_another_reservation_is_given_back() -> None:
    made = cluster()
    free, names = made.state.snapshot.pod_counts.volumes.free, frozenset({"v"})
    free.put(VolumeSeen("v", (), storage_class="local", phase="Available"))
    other, held = (reserved(made, name, [row], 1) for row, name in enumerate("ab"))
    held.withheld_volumes = names
    withheld = WithheldCapacity(made.state.snapshot)
    withheld.set([other], [held])
    withheld.without(other)
    assert (withheld.volumes_only, free.available(names)) == ([held], frozenset())
    withheld.without(held)
    assert (withheld.volumes_only, free.available(names)) == ([], names)
