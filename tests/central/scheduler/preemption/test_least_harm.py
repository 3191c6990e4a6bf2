"""The least harm, judged by an exact solver on small cases; and what large ones promise."""

import random
from dataclasses import replace

import pytest

from central.scheduler.preemption.exact_search import improve
from central.scheduler.preemption.harm import Harm
from central.scheduler.preemption.least_harm import (
    QUOTA,
    EvictionUnit,
    LeastHarmProblem,
    choose_victims,
    total_harm,
)
from central.scheduler.work_meter import WorkMeter
from tests.central.scheduler.exact.units import least, levels_of


def _allowed(problem: LeastHarmProblem, chosen: tuple[EvictionUnit, ...]) -> bool:
    whole = {unit.gang for unit in chosen if unit.whole}
    singles = [unit.gang for unit in chosen if not unit.whole]
    for budget, allowed in problem.allowed.items():
        if sum(unit.uses.get(budget, 0) for unit in chosen) > allowed:
            return False
    return len(whole) == sum(unit.whole for unit in chosen) and all(
        gang not in whole and singles.count(gang) <= problem.surplus[gang] for gang in singles
    )


def harm(rank: int, broken: int, work: int, pods: int) -> Harm:
    """Of a unit whose priority has this rank; counts of a higher one outweigh all of a lower."""
    return rank + 1, broken << 32 * rank, work << 72 * rank, pods << 32 * rank, 0, 0, 0


def case(dice: random.Random, gangs: int, budgets: int = 0) -> LeastHarmProblem:
    rows = dice.randint(1, 4)
    request = (dice.choice((1, 2, 4, 8)), dice.choice((1, 3)))
    free = {row: (dice.randint(0, 4), dice.randint(0, 6)) for row in range(rows)}
    units: list[EvictionUnit] = []
    surplus: dict[int, int] = {}
    allowed = {("ns", f"b{number}"): dice.randint(0, 3) for number in range(budgets)}
    for gang in range(gangs):
        covered = dice.choice([*allowed, None]) if allowed else None
        pods = [
            (dice.randrange(rows), (dice.choice((0, 1, 2, 4)), dice.randint(0, 3)))
            for _ in range(dice.choice((1, 1, 2, 3)))
        ]
        age, rank = dice.choice((0, 10, 100)), dice.choice((0, 0, 1, 2))
        surplus[gang] = dice.randint(0, len(pods) - 1)
        frees: dict[int, tuple[int, ...]] = {}
        for row, size in pods:
            have = frees.get(row, (0, 0))
            frees[row] = (have[0] + size[0], have[1] + size[1])
            if surplus[gang]:
                alone, uses = harm(rank, 0, age * size[0], 1), {covered: 1} if covered else {}
                units.append(EvictionUnit(gang, False, alone, {row: size}, uses=uses))
        lost = sum(age * size[0] for _, size in pods)
        uses = {covered: len(pods)} if covered else {}
        units.append(EvictionUnit(gang, True, harm(rank, 1, lost, len(pods)), frees, uses=uses))
    return LeastHarmProblem(free, request, dice.randint(1, 3), units, surplus, allowed)


def whole(gang: int, work: int, frees: dict[int, tuple[int, ...]]) -> EvictionUnit:
    return EvictionUnit(gang, True, harm(0, 1, work, len(frees)), frees)


def problem_of(
    free: dict[int, tuple[int, ...]],
    request: tuple[int, ...],
    missing: int,
    units: list[EvictionUnit],
) -> LeastHarmProblem:
    return LeastHarmProblem(free, request, missing, units, dict.fromkeys(range(len(units)), 0), {})


def test_what_frees_only_what_its_row_has_enough_of_is_no_candidate() -> None:
    """Two pods at most fit there, and for two there is just enough of the second resource; of the third, one too
    few."""
    gpus, cpu, memory = (
        whole(0, 1, {0: (2, 0, 0)}),
        whole(1, 1, {0: (0, 4, 0)}),
        whole(2, 1, {0: (0, 0, 1)}),
    )
    problem = problem_of({0: (0, 2, 1)}, (1, 1, 1), 2, [gpus, cpu, memory])
    assert problem.without_useless().units == [gpus, memory]


def test_the_better_of_two_choices_counts_where_priorities_differ() -> None:
    """Four gangs of one GPU each have lost less, one by one, than the gang of four. A more urgent gang is no use."""
    small = [whole(number, 10, {0: (1,)}) for number in range(4)]
    large = whole(4, 50, {0: (4,)})
    urgent = EvictionUnit(5, True, harm(1, 1, 1, 1), {1: (1,)})
    problem = problem_of({0: (0,), 1: (0,)}, (4,), 1, [*small, large, urgent])
    assert choose_victims(problem) == [large]


def test_no_more_single_members_go_than_their_gang_has_surplus() -> None:
    """The gang may not go whole. Its two members would do, but only one of them may go."""
    singles = [EvictionUnit(0, False, harm(0, 0, 1, 1), {0: (1,)}, pod) for pod in range(2)]
    urgent = EvictionUnit(1, True, harm(1, 1, 900, 1), {0: (1,)})
    problem = LeastHarmProblem({0: (0,)}, (1,), 2, [*singles, urgent], {0: 1, 1: 0})
    found = choose_victims(problem)
    assert found is not None
    assert urgent in found
    assert len(found) == 2


def test_a_row_is_weighed_again_after_a_gang_that_is_on_several_rows_was_taken() -> None:
    """What was best on a row before is not, once another gang has freed a part of it."""
    spread: list[dict[int, tuple[int, ...]]] = [
        {0: (6,)},
        {5: (4,), 4: (8,), 2: (6,)},
        {0: (1,)},
        {3: (2,)},
    ]
    spread += [{2: (1,), 0: (2,), 3: (1,)}, {5: (4,), 0: (8,)}]
    works = (1, 300, 50, 300, 10, 300)
    units = [whole(number, *each) for number, each in enumerate(zip(works, spread, strict=True))]
    free: dict[int, tuple[int, ...]] = dict(enumerate([(2,), (0,), (0,), (1,), (3,), (1,)]))
    problem = problem_of(free, (4,), 6, units)
    found = choose_victims(problem)
    assert found is not None
    assert total_harm(found) == harm(0, 2, 301, 4)
    assert levels_of(total_harm(found)) == least(problem)


def test_the_exact_search_leaves_half_of_the_work_to_the_trial_placement() -> None:
    """Each set of ten would do, so none can be left out early."""
    units = [whole(number, number + 1, {number: (1,)}) for number in range(20)]
    problem = problem_of(dict.fromkeys(range(20), (0,)), (1,), 10, units)
    problem.meter = WorkMeter(4_000)
    problem.meter.begin()
    improve(problem, None, 10_000)
    assert problem.meter.used == 2_000


def with_quota(dice: random.Random, problem: LeastHarmProblem) -> LeastHarmProblem:
    """What some of the gangs free of the first resource, and whole gangs, count for a quota."""
    units = list[EvictionUnit]()
    for unit in problem.units:
        amount = sum(amounts[0] for amounts in unit.frees.values())
        quota = {QUOTA: (amount, int(unit.whole))} if unit.gang % 3 else {}
        units.append(replace(unit, frees={**unit.frees, **quota}))
    lacking = dice.randint(1, 5), dice.choice((0, 1))
    missing = dice.choice((0, 1, problem.missing))
    free = {**problem.free, QUOTA: (0, 0)}
    return replace(problem, units=units, free=free, missing=missing, lacking=lacking)


@pytest.mark.long
@pytest.mark.parametrize("lacking", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_does_less_harm(seed: int, lacking: bool) -> None:
    dice = random.Random(seed)
    possible = 0
    for _ in range(120):
        problem = case(dice, dice.randint(1, 4))
        if lacking:
            problem = with_quota(dice, problem)
        best = least(problem)
        found = choose_victims(problem)
        assert (found is None) == (best is None)
        if found is None:
            continue
        possible += 1
        assert _allowed(problem, tuple(found))
        better, left = improve(problem, found, 10_000)
        assert left > 0
        assert better is not None
        assert problem.is_solved_by(better)
        assert levels_of(total_harm(better)) == best
    assert possible > 30


@pytest.mark.long
def test_the_best_set_that_is_accepted_is_found() -> None:
    dice, other = random.Random(0), 0
    for _ in range(120):
        problem = case(dice, dice.randint(1, 4))
        found = choose_victims(problem)
        refused = dice.choice(found or problem.units)
        rest = [unit for unit in problem.units if unit is not refused]
        better, _ = improve(replace(problem, accepts=set(rest).issuperset), found, 10_000)
        best = least(replace(problem, units=rest))
        assert (None if better is None else levels_of(total_harm(better))) == best
        other += better is not None and bool(found)
    assert other > 20


def test_of_equal_members_the_exact_search_takes_the_one_of_the_highest_rank() -> None:
    singles = [EvictionUnit(0, False, harm(0, 0, 1, 1), {0: (1,)}, n, rank=n) for n in range(3)]
    problem = LeastHarmProblem({0: (0,)}, (1,), 1, singles, {0: 2})
    assert improve(problem, None, 100)[0] == [singles[2]]


def test_a_choice_stays_where_the_exact_search_finds_no_less_harm() -> None:
    """The cheap unit, which is no use, keeps the search from ending at once."""
    known, equal, useless = (whole(n, work, {0: (n < 2,)}) for n, work in enumerate((5, 5, 1)))
    problem = problem_of({0: (0,)}, (1,), 1, [known, equal, useless])
    assert improve(problem, [known], 100)[0] == [known]


def test_a_unit_that_frees_too_little_stays_unless_the_rest_is_not_accepted() -> None:
    enough, more = whole(0, 1, {0: (1,)}), whole(1, 9, {0: (0,)})
    problem = problem_of({0: (0,)}, (1,), 1, [enough, more])
    assert improve(problem, [enough, more], 0)[0] == [enough]
    both = replace(problem, accepts=lambda units: len(units) == 2)
    assert improve(both, [enough, more], 0)[0] == [enough, more]
    assert improve(both, None, 100)[0] == [enough, more]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_no_budget_is_overspent_and_none_is_in_the_way_for_nothing(seed: int) -> None:
    dice = random.Random(500 + seed)
    possible = limited = 0
    for _ in range(120):
        problem = case(dice, dice.randint(1, 4), budgets=dice.randint(1, 2))
        best = least(problem)
        found = choose_victims(problem)
        assert found is None or _allowed(problem, tuple(found))
        better, left = improve(problem, found, 10_000)
        assert left > 0
        assert (better is None) == (best is None)
        if better is not None:
            possible += 1
            assert _allowed(problem, tuple(better))
            assert problem.is_solved_by(better)
            assert levels_of(total_harm(better)) == best
        else:
            generous = replace(problem, allowed=dict.fromkeys(problem.allowed, 99))
            limited += least(generous) is not None
    assert possible > 20
    assert limited > 5


@pytest.mark.parametrize("seed", range(4))
def test_nobody_goes_who_need_not(seed: int) -> None:
    dice = random.Random(1000 + seed)
    for _ in range(30):
        problem = case(dice, 12)
        found = choose_victims(problem)
        assert found is None or _allowed(problem, tuple(found))
        for one in found or ():
            rest = [unit for unit in found or () if unit is not one]
            assert not problem.is_solved_by(rest)


@pytest.mark.parametrize("seed", range(4))
def test_the_highest_priority_that_goes_is_as_low_as_can_be(seed: int) -> None:
    """Of 12 gangs, which is too many for a proof of the rest."""
    dice, several = random.Random(1500 + seed), 0
    for _ in range(60):
        problem = case(dice, 12)
        found = choose_victims(problem)
        ranks = sorted({unit.harm[0] for unit in problem.units})
        enough = [
            rank
            for rank in ranks
            if problem.is_solved_by([u for u in problem.units if u.whole and u.harm[0] <= rank])
        ]
        assert (found is None) == (not enough)
        if found is not None:
            assert max((unit.harm[0] for unit in found), default=0) <= enough[0]
            several += len(ranks) > 1 and bool(found)
    assert several > 20
