"""Random days on a few full nodes: gangs of several priorities, namespaces and queues claim each other's places under
least run times, disruption budgets and limits on whom a priority may evict. After every cycle each number of each
reason is counted again, and nobody may ask for a pod that has ended."""

import os
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from central.model.decisions import Decision, Evict, UpdateGangStatus
from central.model.facts import Fact, QueueSeen
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.simulation.placement_oracle import assert_the_ended_stay
from tests.simulation.reason_checker import assert_reasons_true

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "4")) * 5
FIRST = int(os.environ.get("LOCKSTEP_FIRST_DAY", "0"))
ARRIVALS = 25


class CheckedWorld(World):
    """A World whose reasons are checked after each cycle, before the answers to its decisions arrive."""

    def _cycle(self, facts: Sequence[Fact], now: float) -> list[Decision]:
        decisions = super()._cycle(facts, now)
        assert_reasons_true(self.cluster)
        assert_the_ended_stay(self.cluster, decisions)
        return decisions


def live(seed: int) -> CheckedWorld:
    dice = Random(seed)
    queues = _queues(dice)
    world = CheckedWorld(
        *(factories.node(f"n{i}") for i in range(3)),
        *queues,
        min_runtime_s=dice.choice((0.0, 20.0)),
        preempt_across=dice.choice(("none", "namespaces", "queues")),  # type: ignore[arg-type]  # one is no number
    )
    now = 0.0
    for number in range(ARRIVALS):
        now += dice.choice((1.0, 5.0, 30.0))
        world.lasts[f"j{number}"] = dice.choice((10.0, 60.0, 300.0))
        world.step(now, *_arrival(dice, number, now, "q" if queues else ""))
    return world


def _queues(dice: Random) -> list[Fact]:
    if dice.random() < 0.5:
        return []
    return [
        QueueSeen(name, deserved=((GPU, dice.choice((4, 8, 16))),), reclaimable=dice.random() < 0.8)
        for name in ("default", "q")
    ]


def _arrival(dice: Random, number: int, now: float, named: str) -> list[Fact]:
    """named: the queue of a third of the gangs."""
    size = dice.choice((1, 1, 2, 4))
    facts = job(
        f"j{number}",
        size,
        dice.choice((1, 2, 4, 8)),
        created=now,
        priority=dice.choice((0, 0, 3, 5)),
        least=dice.randint(1, size),
        labels=(("app", dice.choice("xyz")),),
        preemptable=dice.choice((None, None, False, True)),
        cooldown_s=dice.choice((0.0, 0.0, 15.0)),
        queue=named if dice.choice((False, False, True)) else "",
    )
    namespace = dice.choice(("ns", "far"))
    facts = [replace(fact, namespace=namespace) for fact in facts]  # type: ignore[arg-type]  # of these two kinds
    if dice.random() < 0.2:
        facts.append(factories.budget(dice.choice("xyz"), dice.randint(0, 2)))
    if dice.random() < 0.2:
        node = f"n{dice.randrange(3)}"
        facts.append(factories.pod(f"o{number}", 1, node=node, phase="Running", ours=False))
    return facts


@pytest.mark.parametrize("seed", range(FIRST, FIRST + DAYS))
def test_every_reason_of_a_day_of_claims_is_true(seed: int) -> None:
    assert live(seed).began


@pytest.mark.slow
def test_the_days_hold_what_they_are_for() -> None:
    worlds = [live(seed) for seed in range(16)]
    every = [each for world in worlds for each in world.decisions]
    reasons = " ".join(each.reason for each in every if isinstance(each, UpdateGangStatus))
    for clause in ("not preemptable", "minimum run time", "disruption budget", "preempt-across"):
        assert clause in reasons, clause
    assert {each.trial for each in every if isinstance(each, Evict)} == {True, False}
