"""Victims are searched on a few rows or domains first. That finds what a search of everything finds."""

import random

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodGone
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import placement_attempts
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.harm import NO_HARM, Harm, HarmScale, plus
from central.scheduler.preemption.preemption_request import PreemptionPlan, PreemptionRequest
from central.scheduler.preemption.surplus_members import surplus_count
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import GangKey
from protos.names import NODE, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import BY_PRIORITY

NODES, PER_RACK = 48, 4
NOW = 5000.0


def cluster(dice: random.Random) -> Scheduler:
    """Nodes of 8 GPUs, mostly in use by pods and gangs of several sizes, ages and priorities."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = []
    left = []
    for number in range(NODES):
        name = f"n{number:02}"
        facts.append(factories.node(name, rack=f"r{number // PER_RACK}", block=f"b{number // 16}"))
        left += [name] * dice.choice((8, 8, 8, 7, 6))
    dice.shuffle(left)
    number = 0
    while len(left) > 10:
        number += 1
        size, least = dice.choice(((1, 1), (1, 1), (3, 3), (4, 2)))
        name, priority = f"g{number}", dice.choice((0, 0, 0, 2))
        started = dice.uniform(0.0, NOW)
        if size > 1:
            facts.append(factories.gang(name, least, priority=priority))
        facts += [
            factories.pod(
                f"{name}-{rank}",
                1,
                name if size > 1 else "",
                node=left.pop(),
                phase="Running",
                priority=priority,
                started=started,
                deleting=dice.random() < 0.02,
            )
            for rank in range(size)
        ]
    schedule_once(made, facts, NOW)
    return made


def claim(made: Scheduler, dice: random.Random, number: int) -> PreemptionRequest:
    """A pending gang that the cycle has not seen."""
    pods, gpus, required = dice.choice(
        ((1, 1, ""), (1, 2, ""), (1, 8, ""), (2, 2, NODE), (1, 4, RACK), (4, 4, RACK), (2, 8, RACK))
    )
    name = f"claim{number}"
    apply(
        made, factories.gang(name, pods, priority=dice.choice((1, 5)), topology_required=required)
    )
    for rank in range(pods):
        apply(made, factories.pod(f"{name}-{rank}", gpus, name))
    gang = made.state.gangs["ns", name, True]
    _, wants = placement_attempts.attempts(made.state, gang, pods, "pack")
    taken = [row for held in made.reservations.values() for row in held.place.rows.tolist()]
    rows = np.array(taken, dtype=np.int64)
    return PreemptionRequest(gang, wants[-1], NOW, rows, BY_PRIORITY, by_group=dice.random() < 0.5)


def harm_of(made: Scheduler, plan: PreemptionPlan | None) -> Harm:
    scale = HarmScale((gang.priority for gang in made.state.gangs.values()), NOW)
    chosen: dict[GangKey, list[Pod]] = {}
    for pod in plan.victims if plan is not None else ():
        chosen.setdefault(made.state.gangs[pod.seen.gang_key or ("", "", False)].key, []).append(
            pod
        )
    total = NO_HARM
    for key, pods in chosen.items():
        gang = made.state.gangs[key]
        staying = [pod for pod in gang.counts.placed if not pod.leaving]
        breaks = len(pods) > surplus_count(gang, staying)
        total = plus(total, scale.of(gang.priority, pods, breaks=breaks))
    return total


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 6))]
)
def test_a_narrowed_search_is_no_worse_than_a_search_of_everything(seed: int) -> None:
    dice = random.Random(seed)
    made = cluster(dice)
    found = equal = 0
    for number in range(12):
        request = claim(made, dice, number)
        narrowed = preemption_plan.find_victims(made.preemption, request)
        everywhere = preemption_plan.search_everywhere(made.preemption, request)
        assert (narrowed is None) == (everywhere is None), request.placement
        assert harm_of(made, narrowed) <= harm_of(made, everywhere), request.placement
        found += narrowed is not None
        equal += harm_of(made, narrowed) == harm_of(made, everywhere)
        gone = [pod for pod in made.state.pods.values() if pod.evicting and dice.random() < 0.5]
        schedule_once(made, [PodGone(pod.seen.uid) for pod in gone], NOW)
        check_invariants(made)
    assert found > 2
    assert equal > 10
