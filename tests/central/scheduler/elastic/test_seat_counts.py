"""Seats by counts are those that fit when the members are released in the snapshot."""

import random
from dataclasses import replace

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.model.pod_rules import Rules
from central.scheduler.apply import apply
from central.scheduler.elastic import seat_counts
from central.scheduler.inventory.pods import Pod
from central.scheduler.reservation.release_forecast import ReleasablePods
from central.scheduler.scheduler import Scheduler
from protos.topology import Grant
from tests.central import factories
from tests.effort import seeds


def cluster(dice: random.Random, rules: Rules | None = None) -> tuple[Scheduler, list[Pod]]:
    """Nodes, some of them full, cordoned, without a report or with unhealthy GPUs, and pods of two kinds on them."""
    made = new_scheduler()
    facts: list[Fact] = []
    gpus = dice.choice((0, 1, 2))
    for number in range(dice.randint(1, 6)):
        name = f"n{number}"
        node = factories.node(name, cpu=dice.choice((4000, 8000)), gpus=8)
        facts.append(replace(node, unschedulable=dice.random() < 0.15))
        left = 8
        grants: list[Grant] = []
        for index in range(dice.randint(0, 6)):
            own = dice.random() < 0.7
            asks = gpus if own else dice.choice((0, 1, 3))
            if asks > left:
                continue
            devices = tuple(f"GPU-{8 - left + each}" for each in range(asks))
            left -= asks
            if devices:
                pod = f"{'e' if own else 'o'}{number}-{index}"
                grants.append(Grant("ns", pod, "main", "nvidia.com/gpu", devices))
            facts.append(
                factories.pod(
                    f"{'e' if own else 'o'}{number}-{index}",
                    asks,
                    cpu=1000 if own else dice.choice((100, 700, 5000)),
                    node=name,
                    phase="Running",
                    rules=rules if own else None,
                )
            )
        if dice.random() < 0.7:
            broken = tuple(dice.sample(range(8), dice.choice((0, 0, 1, 2))))
            facts.append(
                factories.report(name, factories.topology(8, sick=broken), 1, tuple(grants))
            )
    for fact in facts:
        apply(made, fact)
    pods = [pod for pod in made.state.pods.values() if pod.seen.name.startswith("e") and pod.node]
    return made, pods


def released(made: Scheduler, pods: list[Pod]) -> int:
    with ReleasablePods(made.state, pods).without(np.arange(len(pods))) as snapshot:
        return int(snapshot.view(pods[0].spec).refresh().by_row.sum())


@pytest.mark.long
def test_as_many_as_when_they_are_released() -> None:
    compared = 0
    for seed in seeds(400):
        made, pods = cluster(random.Random(seed))
        if not pods:
            continue
        expected = released(made, pods)
        found = seat_counts.fitting(made.preemption, pods[0].spec, pods, None)
        assert found == expected, f"seed {seed}"
        compared += 1
    assert compared > len(seeds(400)) // 2


def test_only_inside_the_domain() -> None:
    made, pods = cluster(random.Random(3))
    row = made.state.snapshot.columns.row[pods[0].node]
    spec = pods[0].spec
    inside = seat_counts.fitting(made.preemption, spec, pods, {row})
    everywhere = seat_counts.fitting(made.preemption, spec, pods, None)
    assert inside is not None
    assert everywhere is not None
    assert 0 < inside < everywhere


@pytest.mark.parametrize("rules", [factories.apart("x", "kubernetes.io/hostname")])
def test_rules_between_pods_are_not_counted(rules: Rules) -> None:
    made, pods = cluster(random.Random(1), rules=rules)
    assert seat_counts.fitting(made.preemption, pods[0].spec, pods, None) is None


def test_unlike_members_are_not_counted() -> None:
    made, pods = cluster(random.Random(1))
    other = next(pod for pod in made.state.pods.values() if pod.spec is not pods[0].spec)
    assert seat_counts.fitting(made.preemption, pods[0].spec, [*pods, other], None) is None
