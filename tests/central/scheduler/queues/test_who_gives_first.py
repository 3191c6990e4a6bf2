"""The order in which queues give, which reclaim reads only as far as it must, is that of a sort over all queues."""

import random
from fractions import Fraction

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueSeen
from central.model.resources import GPU_EQUIVALENTS
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_claims import Claim
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from protos.names import GPU
from tests.central import factories
from tests.effort import seeds

NODES = 6


def tree(dice: random.Random) -> list[QueueSeen]:
    """Departments with teams, some of them with queues below; all below the root may have gangs of their own."""
    found = [
        QueueSeen(f"d{n}", weight=dice.choice((1, 2)), priority=dice.choice((0, 0, 1)))
        for n in range(3)
    ]
    for level in ("t", "q"):
        for number in range(6):
            above = dice.choice(found).name
            found.append(
                QueueSeen(
                    f"{level}{number}",
                    parent=above,
                    weight=dice.choice((1, 2)),
                    priority=dice.choice((0, 0, 1)),
                    strict_priority=dice.choice((0, 0, 0, 1)),
                    reclaimable=dice.random() < 0.9,
                    deserved=((GPU, 4),) if dice.random() < 0.3 else (),
                )
            )
    return found


def claim_on_a_full_cluster(dice: random.Random) -> tuple[Queues, Claim]:
    cluster, queues = new_scheduler(factories.LEVELS, half_life_s=0.0), tree(dice)
    names = [each.name for each in queues]
    facts: list[Fact] = [*queues, *(factories.node(f"n{n}", gpus=8) for n in range(NODES))]
    facts += [
        factories.pod(
            f"s-{n}", 1, node=f"n{n // 8}", phase="Running", queue=dice.choice(names[4:-1])
        )
        for n in range(8 * NODES)
    ]
    schedule_once(cluster, facts, 0.0)
    for name in [*dice.sample(names[4:-1], 4), names[-1]]:
        apply(cluster, factories.pod(f"asks-{name}", 4, queue=name, created=1.0))
    asking = [each for each in cluster.state.gangs.values() if each.name.startswith("asks-")]
    for gang in asking:
        cluster.queues.update(gang)
    gang = next(each for each in asking if each.queue == names[-1])
    assert gang.account is not None
    return cluster.queues, Claim(cluster.queues, gang, gang.account.demand, {})


def rank(queues: Queues, claim: Claim, queue: Queue) -> tuple[object, ...]:
    own, shares = claim.queue.path, fair_shares(queues, GPU_EQUIVALENTS)
    below = [each for each in queue.path if each not in own]
    return tuple(
        (
            each.seen.strict_priority,
            each.seen.priority,
            -Fraction(each.used.get(GPU_EQUIVALENTS, 0), max(1, shares[each.name])),
        )
        for each in reversed(below)
    )


@pytest.mark.parametrize("seed", seeds(60))
def test_queues_give_in_the_order_of_a_sort_over_all(seed: int) -> None:
    dice = random.Random(seed)
    queues, claim = claim_on_a_full_cluster(dice)
    givers = [each for each in queues.root if each.gangs and claim.gives(each)]
    first = next(claim.furthest_above(), None)
    order = [*claim.furthest_above()]
    assert order[:1] == ([] if first is None else [first])
    assert [*claim.furthest_above()] == order, "who asks again gets the same"
    assert [each for equals in order for each in equals] == sorted(
        givers, key=lambda each: (rank(queues, claim, each), each.name)
    )
    assert all(len({rank(queues, claim, each) for each in equals}) == 1 for equals in order)


@pytest.mark.long
def test_the_seeds_differ() -> None:
    drawn = [claim_on_a_full_cluster(random.Random(seed))[1] for seed in range(60)]
    assert sum(len([*claim.furthest_above()]) > 2 for claim in drawn) >= 8
