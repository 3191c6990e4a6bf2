"""Gangs of unlike pods: a way is found wherever there is one, by trying every way on small clusters."""

import random
from collections import Counter

import pytest

from central.model.facts import PodSpec
from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.placement.packing import search
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import GPU, RACK
from tests.central import factories
from tests.central.scheduler.placement.test_role_placement import every_plan, random_problem
from tests.effort import ALL_SEEDS, seeds


def test_a_plan_wherever_there_is_one() -> None:
    answers = Counter[bool]()
    for seed in seeds(400):
        _, problem = random_problem(random.Random(seed))
        plan, left = search(problem)
        possible = next(every_plan(problem), None) is not None
        answers[possible] += 1
        assert left > 0
        assert (plan is not None) == possible, f"seed {seed}"
        if plan is not None:
            assert all(problem.fits(place, vector) for place, vector in enumerate(plan))
            assert tuple(map(sum, zip(*plan, strict=True))) == problem.counts
    assert not ALL_SEEDS or min(answers.values()) > 50


def cluster(*racks: tuple[tuple[int, int], ...]) -> Snapshot:
    """Each rack's nodes, as GPUs and thousandths of processors."""
    snapshot = Snapshot((RACK,))
    for number, nodes in enumerate(racks):
        for place, (gpus, cpu) in enumerate(nodes):
            name = f"{number}{place}"
            snapshot.put_node(factories.node(name, rack=f"r{number}", gpus=gpus, cpu=cpu))
    return snapshot


def possible(left: list[tuple[PodSpec, int]], free: list[tuple[int, int]]) -> bool:
    if not any(count for _, count in left):
        return True
    index = next(i for i, (_, count) in enumerate(left) if count)
    spec, count = left[index]
    gpus, cpu = spec.request(GPU), spec.request("cpu")
    rest = [*left[:index], (spec, count - 1), *left[index + 1 :]]
    for place, (g, c) in enumerate(free):
        if g >= gpus and c >= cpu and free.index((g, c)) == place:
            after = [*free[:place], (g - gpus, c - cpu), *free[place + 1 :]]
            if possible(rest, after):
                return True
    return False


def test_unlike_pods_go_to_one_rack_wherever_one_takes_them() -> None:
    answers, harder = Counter[bool](), 0
    for seed in seeds(300):
        dice = random.Random(seed)
        racks = [
            tuple((dice.randint(0, 4), dice.choice((1000, 2000, 3000))) for _ in range(3))
            for _ in range(2)
        ]
        snapshot = cluster(*racks)
        groups = (
            (factories.spec(2, 500), dice.randint(1, 2)),
            (factories.spec(1, 1500), dice.randint(1, 2)),
            (factories.spec(0, 1000), dice.randint(1, 3)),
        )
        expected = any(possible(list(groups), list(rack)) for rack in racks)
        answers[expected] += 1
        want = PlacementRequest(groups, RACK)
        if not expected:
            with pytest.raises(DoesNotFit) as no:
                fit(Draft(snapshot), want)
            assert "search limit" not in no.value.why
            harder += "but not all together" in no.value.why
            continue
        seats = fit(Draft(snapshot), want)
        assert len({int(snapshot.columns.domains.of[0, seat.row]) for seat in seats}) == 1
        assert Counter(seat.spec for seat in seats for _ in range(seat.pods)) == dict(groups)
    assert not ALL_SEEDS or min(answers.values()) > 50
    assert not ALL_SEEDS or harder > 10


def test_who_runs_out_of_tries_says_so() -> None:
    """Every node is needed for a pod of four, and beside it there is room for one of two: one is too
    many. Counts don't tell."""
    snapshot = cluster(tuple((7, 64_000 + place) for place in range(60)))
    groups = (
        (factories.spec(4), 60),
        (factories.spec(2), 61),
        (factories.spec(1), 20),
        (factories.spec(1, 200), 9),
    )
    with pytest.raises(DoesNotFit, match="search limit reached"):
        fit(Draft(snapshot), PlacementRequest(groups))
