"""Shares that are kept while queues change are those that one would divide anew, and only what changed is divided."""

import random

import pytest

from central.model.facts import QueueSeen
from central.scheduler.queues import fair_share
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.queues.queue_terms import terms_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.share_table import ShareTable
from tests.counted_calls import calls

TOTAL = 60


def tree(width: int, dice: random.Random) -> tuple[Queue, list[Queue]]:
    """Three levels, and the leaves."""
    root = made("root", dice)
    departments = [below(root, f"d{number}", dice) for number in range(width)]
    leaves = [below(above, f"{above.name}-{n}", dice) for above in departments for n in range(4)]
    return root, leaves


def made(name: str, dice: random.Random) -> Queue:
    deserved = (("cpu", dice.randrange(20)),) if dice.random() < 0.5 else ()
    guarantee = (("cpu", dice.randrange(6)),) if dice.random() < 0.3 else ()
    most = (("cpu", dice.randrange(30)),) if dice.random() < 0.5 else ()
    seen = QueueSeen(
        name, dice.randint(1, 3), deserved=deserved, guarantee=guarantee, capability=most
    )
    return Queue(seen, terms_of(seen, GpuCurrency()))


def below(parent: Queue, name: str, dice: random.Random) -> Queue:
    queue = made(name, dice)
    queue.parent, queue.path = parent, (queue, *parent.path)
    parent.children.append(queue)
    return queue


def charge(queue: Queue, used: int, demand: int) -> None:
    for above in queue.path:
        above.used["cpu"] = above.used.get("cpu", 0) + used
    queue.demand["cpu"] = queue.demand.get("cpu", 0) + demand


@pytest.mark.long
def test_shares_that_follow_changes_are_those_divided_anew() -> None:
    for seed in range(40):
        dice = random.Random(seed)
        root, leaves = tree(5, dice)
        departments = root.children
        kept, total = ShareTable("cpu"), TOTAL
        for step in range(30):
            for queue in dice.sample(leaves, dice.randint(0, 2)):
                charge(queue, dice.randrange(12), dice.randrange(12))
                kept.outdate(queue.path)
            for queue, sign in zip(dice.choice(departments).children, (1, -1), strict=False):
                charge(queue, 0, 3 * sign)  # their department requests as much as before
                kept.outdate(queue.path)
            total += dice.choice((0, 0, 0, 40))
            before = kept.shares(root, total)
            copied = dict(before)
            assert before == ShareTable("cpu").shares(root, total), f"seed {seed}, step {step}"
            charge(leaves[0], 1, 0)
            kept.outdate(leaves[0].path)
            kept.shares(root, total)
            assert before == copied, "shares that somebody keeps stay as they were"


def test_only_departments_whose_demand_or_share_changes_are_divided() -> None:
    root, leaves = tree(50, random.Random(1))
    table = ShareTable("cpu")
    for queue in leaves:
        charge(queue, 1, 1)
    divide = fair_share.in_whole_devices.__code__
    assert calls(lambda: table.shares(root, TOTAL), divide) == 51
    assert calls(lambda: table.shares(root, TOTAL), divide) == 0
    charge(leaves[0], 1, -1)
    table.outdate(leaves[0].path)
    assert calls(lambda: table.shares(root, TOTAL), divide) == 2, "the root, and one department"
