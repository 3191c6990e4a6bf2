"""The choice of the members that leave when a gang shrinks.

The members that stay are in the fewest domains: of the widest level first, then of the next, down to nodes. Among equal
choices they are the most unevenly spread, so that the domain that has the fewest is free at the next shrink; then the
least work is lost, then the highest numbers leave. Exact: counts and squares add up over a tree, so the best choice for
each number of members that stay is found domain by domain, from the nodes up.
"""

from collections.abc import Sequence
from typing import NamedTuple

Path = tuple[int, ...]  # the member's domains, widest first; the last one is its node


class Seat(NamedTuple):
    number: int
    path: Path
    lost: int = 0  # work that its end would lose


class _Kept(NamedTuple):
    # Domains used by level; minus the squares of the members in each, by level; work lost; minus the numbers that
    # leave.
    cost: tuple[int, ...]
    numbers: tuple[int, ...]


def choose(seats: Sequence[Seat], leave: int) -> list[int]:
    """Numbers of the members that leave. All paths have the same length."""
    if leave <= 0:
        return []
    if leave >= len(seats):
        return sorted(seat.number for seat in seats)
    stay = len(seats) - leave
    depth = len(seats[0].path)
    kept = set(_best(list(seats), 0, depth, stay)[stay].numbers)
    return sorted(seat.number for seat in seats if seat.number not in kept)


def _best(seats: list[Seat], level: int, depth: int, most: int) -> dict[int, _Kept]:
    """The best choice by the number of members that stay, inside one domain of the level above."""
    if level == depth:
        return _on_one_node(seats, depth, most)
    inside: dict[int, list[Seat]] = {}
    for seat in seats:
        inside.setdefault(seat.path[level], []).append(seat)
    found = {0: _Kept((0,) * (2 * depth + 2), ())}
    for domain in sorted(inside):
        of_domain = _best(inside[domain], level + 1, depth, most)
        merged: dict[int, _Kept] = {}
        for before, kept in found.items():
            for more, added in of_domain.items():
                count = before + more
                if count > most:
                    continue
                cost = tuple(map(int.__add__, kept.cost, added.cost))
                if more:
                    cost = _used(cost, level, depth, more)
                known = merged.get(count)
                if known is None or cost < known.cost:
                    merged[count] = _Kept(cost, (*kept.numbers, *added.numbers))
        found = merged
    return found


def _used(cost: tuple[int, ...], level: int, depth: int, members: int) -> tuple[int, ...]:
    """Returns the cost with one more domain of that level, which so many members use."""
    changed = list(cost)
    changed[level] += 1
    changed[depth + level] -= members * members
    return tuple(changed)


def _on_one_node(seats: list[Seat], depth: int, most: int) -> dict[int, _Kept]:
    """The best choice on one node by the number of members that stay: those that lose the least work leave first, then
    the highest numbers."""
    order = sorted(seats, key=lambda seat: (seat.lost, -seat.number))
    found = {}
    for leaving in range(len(order) + 1):
        count = len(order) - leaving
        if count > most:
            continue
        gone, kept = order[:leaving], order[leaving:]
        lost, numbers = sum(seat.lost for seat in gone), sum(seat.number for seat in gone)
        found[count] = _Kept(
            (*(0,) * (2 * depth), lost, -numbers), tuple(seat.number for seat in kept)
        )
    return found
