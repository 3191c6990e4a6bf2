"""A gang starts if any of its pods that reach the minimum fit: against every choice of pods on every node."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import minimum_choices
from central.scheduler.snapshot.snapshot import Snapshot
from tests.central import factories
from tests.central.scheduler.small_cluster import World
from tests.effort import ALL_SEEDS, seeds

Amounts = tuple[int, int]  # GPUs, CPU


def placeable(pods: Sequence[Amounts], nodes: tuple[Amounts, ...]) -> bool:
    if not pods:
        return True
    (gpus, cpu), *rest = pods
    return any(
        gpus <= free[0]
        and cpu <= free[1]
        and placeable(rest, (*nodes[:i], (free[0] - gpus, free[1] - cpu), *nodes[i + 1 :]))
        for i, free in enumerate(nodes)
    )


@pytest.mark.long
def test_any_pods_that_reach_the_minimum_will_do() -> None:
    seen = Counter[str]()
    for seed in seeds(300):
        dice = random.Random(seed)
        nodes = tuple((dice.randint(1, 8), dice.randint(2, 12)) for _ in range(dice.randint(1, 3)))
        kinds = [(dice.choice((0, 1, 2, 4, 9)), dice.randint(1, 8)) for _ in range(3)]
        pods = [dice.choice(kinds) for _ in range(dice.randint(2, 5))]
        tasks = [dice.choice(("ps", "worker")) for _ in pods] if dice.random() < 0.3 else []
        least = dice.randint(1, len(pods))
        task_min = (("ps", 1),) if "ps" in tasks else ()

        def reaches(chosen: tuple[int, ...], tasks: list[str] = tasks) -> bool:
            return "ps" not in tasks or any(tasks[i] == "ps" for i in chosen)

        world = World(
            *(
                factories.node(f"n{i}", gpus=gpus, cpu=cpu * 1000)
                for i, (gpus, cpu) in enumerate(nodes)
            )
        )
        members = [
            replace(
                factories.pod(f"g-{i}", gpus, "g", cpu=cpu * 1000),
                order=(i, ""),
                task=tasks[i] if tasks else "",
            )
            for i, (gpus, cpu) in enumerate(pods)
        ]
        group = factories.gang("g", least, task_min=task_min)
        bound = {
            int(uid.rpartition("-")[2]) for uid in _bound(world, world.step(1.0, group, *members))
        }
        choices = [c for c in combinations(range(len(pods)), least) if reaches(c)]
        possible = any(placeable([pods[i] for i in chosen], nodes) for chosen in choices)
        assert bool(bound) == possible, f"seed {seed}: {nodes} {pods} min {least}"
        if bound:
            assert len(bound) >= least
            assert reaches(tuple(bound))
            assert placeable([pods[i] for i in bound], nodes)
        first = placeable(pods[:least], nodes) and reaches(tuple(range(least)))
        seen["first ranks" if first else "others" if possible else "none"] += 1
    assert not ALL_SEEDS or min(seen.values()) > 20, seen


def _bound(world: World, names: list[str]) -> list[str]:
    return [uid for uid, pod in world.running.items() if pod.name in names]


Kind = tuple[str, int, int]  # task, GPUs, CPU


def pods_of(kinds: Sequence[Kind]) -> list[Pod]:
    """Pending pods by rank."""
    seen = [
        replace(factories.pod(f"g-{rank}", gpus, "g", cpu=cpu * 1000), task=task)
        for rank, (task, gpus, cpu) in enumerate(kinds)
    ]
    return [Pod(each, each.spec) for each in seen]


def ranks(pods: Sequence[Pod]) -> tuple[int, ...]:
    return tuple(pod.seen.order[0] for pod in pods)


def cluster(nodes: Sequence[Amounts]) -> Snapshot:
    snapshot = Snapshot(factories.LEVELS)
    for number, (gpus, cpu) in enumerate(nodes):
        snapshot.put_node(factories.node(f"n{number}", gpus=gpus, cpu=cpu * 1000))
    return snapshot


def reaches(kinds: Sequence[Kind], short: dict[str, int]) -> bool:
    return all(sum(kind[0] == task for kind in kinds) >= least for task, least in short.items())


def test_further_choices_are_all_that_fit_one_by_one_the_first_kinds_first() -> None:
    """Against every choice of the pods, of which equal ones count once."""
    seen = Counter[str]()
    for seed in seeds(200):
        dice = random.Random(seed)
        nodes = [(dice.randint(0, 3), dice.randint(1, 4)) for _ in range(dice.randint(1, 2))]
        kinds = [(dice.choice("ab"), dice.randint(0, 2), dice.randint(1, 3)) for _ in range(3)]
        pods = [dice.choice(kinds) for _ in range(dice.randint(1, 8))]
        count = dice.randint(1, len(pods))
        short = {"a": dice.randint(0, 2)} if dice.random() < 0.6 else {}
        order = list(dict.fromkeys(pods))
        most = [sum(min(n[0] // k[1] if k[1] else 9, n[1] // k[2]) for n in nodes) for k in order]
        chosen = set[tuple[int, ...]]()
        for some in combinations(pods, count):
            numbers = tuple(some.count(kind) for kind in order)
            if reaches(some, short) and all(map(int.__le__, numbers, most)):
                chosen.add(numbers)
        expected = sorted(chosen, reverse=True)[: minimum_choices.TRIED]
        if len(order) < 2 or count == len(pods):
            expected = []  # there is only the first choice
        found = list(minimum_choices.others(cluster(nodes), pods_of(pods), count, short))
        assert [
            tuple(sum(pods[rank] == kind for rank in ranks(some)) for kind in order)
            for some in found
        ] == expected, f"seed {seed}"
        for choice in map(ranks, found):  # of equal pods the first ranks
            for kind in order:
                mine = [rank for rank, pod in enumerate(pods) if pod == kind]
                of_kind = [rank for rank in choice if pods[rank] == kind]
                assert of_kind == mine[: len(of_kind)]
            assert choice == tuple(sorted(choice))
        seen[f"{min(len(expected), 2)}"] += 1
        seen["short"] += bool(short) and bool(expected)
    assert not ALL_SEEDS or min(seen[key] for key in ("0", "1", "2", "short")) > 15, seen


def test_no_more_choices_than_are_worth_an_attempt() -> None:
    kinds = [("", 0, cpu) for cpu in range(1, 9)]
    found = list(minimum_choices.others(cluster([(0, 64)]), pods_of(kinds), 3, {}))
    assert len(found) == minimum_choices.TRIED
    assert [ranks(some) for some in found] == [*combinations(range(8), 3)][: len(found)]


def test_a_choice_that_is_not_found_soon_is_given_up() -> None:
    """Of 10^9 choices only the last one has enough pods of the task."""
    kinds = [*(("a", 0, cpu) for cpu in range(1, 31)), *(("b", 0, cpu) for cpu in range(31, 46))]
    assert not list(minimum_choices.others(cluster([(0, 64)]), pods_of(kinds), 15, {"b": 15}))


def test_the_minimum_leaves_out_pods_that_never_start_if_others_are_enough() -> None:
    snapshot = cluster([(4, 8)])
    small, large, other = ("a", 1, 1), ("a", 9, 1), ("b", 9, 1)
    for kinds, count, short, expected in (
        ((large, small, small), 2, {}, (1, 2)),
        ((large, small, small), 3, {}, (0, 1, 2)),
        ((small, large, small), 1, {}, (0,)),
        ((large, small, other), 1, {"b": 1}, (2,)),
        ((large, small, other), 2, {"b": 1}, (0, 2)),
        ((large, large), 1, {}, (0,)),
        ((small, small), 1, {}, (0,)),
        ((small, other), 1, {"a": 1, "b": 1}, (0, 1)),
        ((small, small), 3, {}, ()),
        ((small, small), 2, {"a": 3}, ()),
    ):
        assert ranks(minimum_choices.smallest(snapshot, pods_of(kinds), count, short)) == expected
    snapshot.put_node(factories.node("new", gpus=16))
    assert ranks(minimum_choices.smallest(snapshot, pods_of((large, small)), 1, {})) == (0,)
