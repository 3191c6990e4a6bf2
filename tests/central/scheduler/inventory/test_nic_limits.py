"""Room on network cards, held to trying every way."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from central.scheduler.inventory import nic_limits
from central.scheduler.inventory.nic_limits import NicCapacity, NicRequest
from protos.topology import RdmaLimit
from tests.central import factories

Cards = tuple[tuple[int, int, int], ...]


@cache
def possible(cards: Cards, asks: tuple[NicRequest, ...]) -> bool:
    """Whether each of the pods finds as many different cards as it has shares, by trying all."""
    if not asks:
        return True
    wanted, *rest = asks
    each = min(wanted.shares, len(cards))
    for chosen in combinations(range(len(cards)), each):
        left = [list(card) for card in cards]
        nic_limits.charge(left, wanted, chosen)
        if min(min(left[index]) for index in chosen) >= 0 and possible(
            tuple((card[0], card[1], card[2]) for card in left), tuple(rest)
        ):
            return True
    return False


def world(dice: random.Random, *, shares: tuple[int, ...]) -> tuple[NicCapacity, NicRequest]:
    cards = {
        f"mlx5_{i}": [dice.randint(-1, 20), dice.randint(4, 30), dice.randint(0, 5)]
        for i in range(dice.randint(1, 3))
    }
    return NicCapacity(cards, RdmaLimit()), _ask(dice, shares)


def _ask(dice: random.Random, shares: tuple[int, ...]) -> NicRequest:
    return NicRequest(dice.randint(0, 8), dice.randint(0, 9), dice.choice(shares))


def frozen(room: NicCapacity) -> Cards:
    return tuple((card[0], card[1], card[2]) for card in room.nics.values())


@pytest.mark.parametrize("seed", range(200))
def test_equal_pods_are_counted_exactly(seed: int) -> None:
    dice = random.Random(seed)
    room, wanted = world(dice, shares=(1, 1, 2, 3))
    if wanted.shares > len(room.nics):
        wanted = wanted._replace(shares=len(room.nics))
    count = room.capacity(wanted)
    assert possible(frozen(room), (wanted,) * count)
    assert not possible(frozen(room), (wanted,) * (count + 1))


@pytest.mark.parametrize("seed", range(200))
def test_beside_others_nothing_is_promised_that_is_not_there(seed: int) -> None:
    dice = random.Random(seed)
    room, wanted = world(dice, shares=(1, 1, 2))
    others = [other for other in (_ask(dice, (1, 1, 2)) for _ in range(3)) if room.capacity(other)]
    room.unassigned = Counter(others)
    count = room.capacity(wanted)
    if count:
        assert possible(frozen(room), (*others, *((wanted,) * count)))
    if nic_limits.greedy_order(list(room.nics.values()), room.unassigned) is not None:
        assert possible(frozen(room), tuple(others))


def test_the_sum_over_cards_is_no_room() -> None:
    """Thirty handles on two cards; ten each leave five on both."""
    room = NicCapacity({"a": [15, 100, 8], "b": [15, 100, 8]}, RdmaLimit())
    assert room.capacity(NicRequest(10, 0, 1)) == 2
    assert room.capacity(NicRequest(10, 0, 2)) == 1
    room.unassigned[NicRequest(10, 0, 1)] = 1
    assert room.capacity(NicRequest(10, 0, 1)) == 1
    assert room.capacity(NicRequest(15, 0, 1)) == 1
    assert room.capacity(NicRequest(5, 0, 2)) == 1
    assert room.capacity(NicRequest(0, 0, 1)) == 15
    room.unassigned[NicRequest(15, 0, 1)] = 1
    assert room.capacity(NicRequest(10, 0, 1)) == 0


def test_a_limit_of_nothing_is_no_missing_limit() -> None:
    """0 is a limit, -1 is none."""
    topology = factories.carded(factories.topology(8), 0)
    capacity = nic_limits.from_topology(topology)
    assert capacity is not None
    assert [handles for handles, *_ in capacity.nics.values()] == [0, 0]
    assert dict(nic_limits.allocatable(topology))["hca_handle"] == 0
    limits = (("mlx5_0", RdmaLimit(5, 0)), ("mlx5_1", RdmaLimit(7, 0)))
    given = replace(topology, rdma_cgroup=limits)
    assert dict(nic_limits.allocatable(given)) == {"hca_handle": 12, "hca_object": 0}
    assert dict(nic_limits.max_limits(given) or ()) == {"hca_handle": 7, "hca_object": 0}


def test_limits_of_nics_that_are_not_offered_do_not_count() -> None:
    topology = factories.carded(factories.topology(8), 5)
    first, second = topology.hcas
    given = replace(topology, hcas=(first, replace(second, shares=0)))
    assert dict(nic_limits.allocatable(given))["hca_handle"] == 5
    assert not nic_limits.allocatable(replace(given, rdma_settable=False))
    assert nic_limits.max_limits(replace(given, rdma_cgroup=None)) is None
