"""A gang starts if any of its pods that reach the minimum fit: against every choice of pods on every node."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from tests.central import factories
from tests.central.scheduler.small_cluster import World

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


def test_any_pods_that_reach_the_minimum_will_do() -> None:
    seen = Counter[str]()
    for seed in range(300):
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
    assert min(seen.values()) > 20, seen


def _bound(world: World, names: list[str]) -> list[str]:
    return [uid for uid, pod in world.running.items() if pod.name in names]
