"""Leases by task, owner and end, against a plain list of them."""

import random

import pytest

from central.controllers.training.permutation import _network, permuted
from central.controllers.training.task_lease import TaskLease, TaskLeases
from tests.effort import seeds


@pytest.mark.long
def test_any_story_of_leases() -> None:
    for seed in seeds(300):
        dice = random.Random(seed)
        leases, plain = TaskLeases(), list[TaskLease]()
        for attempt in range(60):
            what = dice.random()
            if what < 0.5 or not plain:
                made = TaskLease(
                    dice.randrange(6),
                    (dice.randrange(3), 1),
                    attempt,
                    attempt % 7,
                    dice.randrange(50),
                )
                owners = [one.owner for one in plain if one.task == made.task]
                if len(owners) < 2 and made.owner not in owners:
                    leases.add(made)
                    plain.append(made)
            elif what < 0.7:
                index = dice.randrange(len(plain))
                later = dice.randrange(60)  # or earlier
                leases.renew(plain[index], later)
                plain[index] = plain[index]._replace(until=later)
            elif what < 0.85:
                one = dice.choice(plain)
                leases.end(one)
                plain.remove(one)
            else:
                task = dice.choice(plain).task
                leases.end_all_of(task)
                plain = [one for one in plain if one.task != task]
            _same(leases, plain)
        for now in range(0, 61, 20):
            for lease in leases.due(now):
                assert lease.until == min(one.until for one in plain) <= now
                leases.end(lease)
                plain.remove(lease)
            assert all(one.until > now for one in plain)
        assert (len(leases), leases.first()) == (0, None)


def _same(leases: TaskLeases, plain: list[TaskLease]) -> None:
    assert sorted(one.attempt for one in leases) == sorted(one.attempt for one in plain)
    assert len(leases) == len({one.task for one in plain})
    for owner in ((0, 1), (1, 1), (2, 1)):
        held = sorted((one for one in plain if one.owner == owner), key=lambda one: one.attempt)
        assert (leases.held_by(owner), leases.of_owner(owner)) == (len(held), held)
        assert (owner in leases.owners()) == bool(held)
        others = [
            one
            for one in plain
            if one.owner != owner and sum(each.task == one.task for each in plain) == 1
        ]
        oldest = leases.oldest_of_others(owner)
        assert oldest is None or oldest in others
        assert (oldest and oldest.since) == min((one.since for one in others), default=None)
    for task in range(6):
        assert (task in leases) == any(one.task == task for one in plain)
        assert list(leases.of(task)) == [one for one in plain if one.task == task]
    first = leases.first()
    assert (first and first.until) == min((one.until for one in plain), default=None)


def test_what_has_ended_is_forgotten() -> None:
    """Tasks of milliseconds end long before their leases would."""
    leases = TaskLeases()
    for number in range(20_000):
        leases.add(TaskLease(number, (number % 512, number), number, 0.0, 60.0))
        leases.end_all_of(number)
    assert len(leases._ends) < 100
    assert not leases.owners()


def test_renewals_are_bounded() -> None:
    leases = TaskLeases()
    one = TaskLease(0, (0, 1), 0, 0.0, 1e6)
    leases.add(one)
    for number in range(10_000):
        leases.renew(one, 1e6 - number)  # always earlier
    assert len(leases._ends) < 100
    assert leases.first() == one._replace(until=1e6 - 9999)


def test_tables_are_the_network() -> None:
    """The order of an epoch is stored nowhere: a newer version must find the same."""
    for n in (1, 2, 7, 1000, 1 << 20, (1 << 20) + 1):
        half = max(1, ((n - 1).bit_length() + 1) // 2)
        for position in range(0, n, max(1, n // 20)):
            value = position
            while (value := _network(value, half, b"3/2")) >= n:
                pass
            assert permuted(position, n, 3, 2) == value
    assert [permuted(each, 10, 7, 1) for each in range(10)] == ORDER


ORDER = [3, 8, 7, 9, 1, 4, 5, 2, 0, 6]  # as version 0.1 had it
