"""Worlds of a fixed size for the tests of the order, and what all their ranks take together."""

from dataclasses import dataclass
from typing import Any

from agent.train import Order


@dataclass(frozen=True)
class Rank:
    rank: int
    size: int


def taken(make: Any, schedule: list[tuple[int, int]]) -> tuple[list[list[Any]], list[Order]]:
    """What each step takes, in the order of the ranks, when the world has the sizes of the schedule, each
    for some steps (the last to the end). A new world starts from the position of the one before."""
    steps: list[list[Any]] = []
    position = make().state()
    orders: list[Order] = []
    for turn, (size, count) in enumerate(schedule):
        orders = [make() for _ in range(size)]
        found: dict[int, list[Any]] = {}
        for rank, order in enumerate(orders):
            order.load(position)
            start = order.step
            for step, batch in order.steps(Rank(rank, size)):
                found.setdefault(step, []).extend(batch.ids[: batch.records])
                if batch.last and turn < len(schedule) - 1 and step - start >= count:
                    break
        states = [order.state() for order in orders]
        assert all(state == states[0] for state in states), "ranks stand at different places"
        position = states[0]
        assert list(found) == sorted(found)
        steps += [found[step] for step in sorted(found)]
    return steps, orders
