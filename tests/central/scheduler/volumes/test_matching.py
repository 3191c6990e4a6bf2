"""Requests and volumes against every assignment there is."""

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from central.model.volumes import VolumeRequest, VolumeSeen
from central.scheduler.volumes.matching import hall_sets, match

VOLUMES = tuple(f"v{number}" for number in range(4))


def volume(name: str, size: int, modes: tuple[str, ...]) -> VolumeSeen:
    return VolumeSeen(name, storage_class="c", size=size, modes=modes)


def rank(want: VolumeRequest, index: int) -> tuple[bool, int, int]:
    """Who is served first: requests that cannot be provisioned, then large ones, then the first."""
    return want.made is not None, -want.size, index


def served(wants: list[VolumeRequest], got: list[str]) -> list[bool]:
    """By rank, whether each request has a volume."""
    order = sorted(range(len(wants)), key=lambda index: rank(wants[index], index))
    return [bool(got[index]) for index in order]


@pytest.mark.parametrize("seed", range(6))
def test_those_that_need_a_volume_most_get_one_if_any_assignment_gives_it(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(60):
        kinds = [VolumeRequest("c", size, made=made) for size in (1, 2) for made in (None, ())]
        wants = [dice.choice(kinds) for _ in range(dice.randint(1, 4))]
        fits = {want: [name for name in VOLUMES if dice.random() < 0.5] for want in kinds}
        got = match(wants, fits)
        given = [name for name in got if name]
        assert len(given) == len(set(given))
        assert all(not name or name in fits[want] for want, name in zip(wants, got, strict=True))
        pool = (*VOLUMES, *("",) * len(wants))
        possible = {
            tuple(served(wants, list(some)))
            for some in set(permutations(pool, len(wants)))
            if all(not name or name in fits[want] for want, name in zip(wants, some, strict=True))
        }
        assert tuple(served(wants, got)) == max(possible)


def test_a_request_takes_the_first_of_its_volumes() -> None:
    want = VolumeRequest("c", 1)
    assert match([want, want], {want: ["v2", "v1", "v0"]}) == ["v2", "v1"]
    assert match([], {}) == []


def test_of_equal_needs_the_first_is_served() -> None:
    small, large = VolumeRequest("c", 1), VolumeRequest("c", 2)
    assert match([small, small], {small: ["v0"]}) == ["v0", ""]
    assert match([small, large], {small: ["v0"], large: ["v0"]}) == ["", "v0"]
    made = replace(large, made=())
    assert match([made, small], {small: ["v0"], made: ["v0"]}) == ["", "v0"]


@pytest.mark.parametrize("seed", range(6))
def test_the_sets_allow_exactly_the_counts_that_can_be_matched(seed: int) -> None:
    """For any stock of volumes: enough for each set, if and only if so many pods can be served."""
    dice = random.Random(seed)
    both = 0
    for _ in range(80):
        kinds = [
            VolumeRequest("c", size, modes) for size in (1, 2) for modes in ((), ("a",), ("a", "b"))
        ]
        wants = dice.sample(kinds, dice.randint(1, 3))
        needs = tuple((want, dice.randint(1, 2), dice.randint(0, 1)) for want in wants)
        stock = [
            volume(f"v{number}", dice.randint(1, 3), dice.choice(((), ("a",), ("b",), ("a", "b"))))
            for number in range(dice.randint(0, 6))
        ]
        enough = all(
            sum(any(want.takes(each) for want in any_of) for each in stock) >= count
            for any_of, count, _ in hall_sets(needs)
        )
        asked = [want for want, count, _ in needs for _ in range(count)]
        fits = {want: [each.name for each in stock if want.takes(each)] for want in wants}
        assert enough == all(match(asked, fits))
        both += enough
    assert 10 < both < 75


def test_sets_that_are_one_keep_the_larger_need() -> None:
    """What satisfies the harder request satisfies the easier one: the easier one's set counts both."""
    easy, hard = VolumeRequest("c", 1), VolumeRequest("c", 2)
    found = {
        any_of: (each, together)
        for any_of, each, together in hall_sets(((easy, 1, 5), (hard, 2, 0)))
    }
    assert found == {frozenset({easy}): (3, 5), frozenset({hard}): (2, 0)}
    alike = replace(easy, modes=("a",))
    again = hall_sets(((easy, 1, 1), (alike, 1, 1)))
    assert Counter(any_of for any_of, _, _ in again).most_common(1)[0][1] == 1
