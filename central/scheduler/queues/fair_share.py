"""Fair shares by water-filling, in exact fractions.

One resource is divided among sibling queues. Guarantees come first, then deserved amounts, then the
rest by weight, higher strict priority before lower. No queue gets more than it demands. Fractions, not
floats: a parent's share is divided again among its children and must add up exactly.

Design: docs/design/queues.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

Amount = int | Fraction


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """demand: what the queue uses and requests, limited by its capability."""

    weight: int
    demand: int
    deserved: int = 0
    guarantee: int = 0
    priority: int = 0  # decides between equal remainders only
    used: int = 0
    strict_priority: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """A vessel: at water level L it holds base + width * L, but at least low and at most high."""

    width: int
    low: Amount
    high: Amount
    base: Amount = 0


def divide(total: Amount, queues: Sequence[QueueDemand]) -> list[Amount]:
    """The share of each queue, in the order given. They add up to min(total, all demands)."""
    if sum(queue.demand for queue in queues) <= total:
        return [queue.demand for queue in queues]
    low = [min(queue.guarantee, queue.demand) for queue in queues]
    if (guaranteed := sum(low)) > total:  # nodes were lost: guarantees shrink in proportion
        return [Fraction(share * total) / guaranteed for share in low]
    base = [
        max(least, min(queue.deserved, queue.demand))
        for least, queue in zip(low, queues, strict=True)
    ]
    if sum(base) >= total:
        return water_fill(
            total,
            [
                Bounds(queue.deserved, least, most)
                for queue, least, most in zip(queues, low, base, strict=True)
            ],
        )
    shares: list[Amount] = list(base)
    left = total - sum(base)
    for strict in sorted({queue.strict_priority for queue in queues}, reverse=True):
        peers = [i for i, queue in enumerate(queues) if queue.strict_priority == strict]
        before = sum(base[i] for i in peers)
        bounds = [
            Bounds(
                queues[i].weight,
                base[i],
                queues[i].demand,
                min(queues[i].deserved, queues[i].demand),
            )
            for i in peers
        ]
        filled = water_fill(before + left, bounds)
        for i, share in zip(peers, filled, strict=True):
            shares[i] = share
        left -= sum(filled) - before
    return shares


def in_whole_devices(
    shares: Sequence[Amount], queues: Sequence[QueueDemand], unit: int
) -> list[int]:
    """Rounds the shares of divide() to whole devices of that many units, by largest remainder. Among equal remainders
    the queue of higher priority comes first, then the one that uses more, then the first in order. A queue whose demand
    is met keeps that share, and no queue gets less than its guarantee and deserved amount gave. The sum, a whole
    number, stays the same.

    Example: 8 devices by weights 2 and 1 are 5.33 and 2.67, so 5 and 3.
    """
    whole = [_whole_part(share, queue, unit) for share, queue in zip(shares, queues, strict=True)]
    left = int(sum(shares)) - sum(whole)
    for i in sorted(range(len(shares)), key=lambda i: _rest(queues[i], shares[i] - whole[i])):
        more = min(unit, queues[i].demand - whole[i], left)
        whole[i] += more
        left -= more
    return whole


def _rest(queue: QueueDemand, remainder: Amount) -> tuple[Amount, int, int]:
    return (-remainder, -queue.priority, -queue.used)


def _whole_part(share: Amount, queue: QueueDemand, unit: int) -> int:
    if share == queue.demand:
        return queue.demand
    own = (min(queue.guarantee, queue.demand), min(queue.deserved, queue.demand))
    given = max((part for part in own if part <= share), default=0)
    return max(floor(Fraction(share) / unit) * unit, given)


def water_fill(total: Amount, vessels: Sequence[Bounds]) -> list[Amount]:
    """The content of each vessel once the total (at least the sum of all lows) stands level.

    Each round guesses the level as if no vessel had bounds. Where guesses break bounds, either all
    vessels above their high are fixed there, or all below their low. The side with the larger error
    is right: pouring at the guessed level costs sum(under) more than the total and saves sum(over).
    If over >= under, water is left, so the true level is not lower than the guess, and vessels that
    are too full at the guess are full at the true level too. Else the true level is lower, and
    vessels below their low stay there. A vessel of the other side may still get into its bounds.

    Example: 12 into A (width 1, high 2), B (width 1, high 20), C (width 2, low 8, high 20).
    The guess 12 / 4 = 3 gives A 3 (1 over), B 3, C 6 (2 under): C is fixed at 8. The next guess is
    4 / 2 = 2: A 2, B 2. Fixing A at 2 and C at 8 gives the same here, but A would be wrong if its
    high were 2.5: at the true level 2 it is not full.
    """
    if sum(vessel.high for vessel in vessels) <= total:
        return [vessel.high for vessel in vessels]
    content: list[Amount] = [vessel.low for vessel in vessels]
    free = [i for i, vessel in enumerate(vessels) if vessel.width > 0 and vessel.high > vessel.low]
    while free:
        fixed = sum(content) - sum(content[i] for i in free)
        width = sum(vessels[i].width for i in free)
        level = (Fraction(total - fixed) - sum(vessels[i].base for i in free)) / width
        guess = {i: vessels[i].base + vessels[i].width * level for i in free}
        over = {i: guess[i] - vessels[i].high for i in free if guess[i] > vessels[i].high}
        under = {i: vessels[i].low - guess[i] for i in free if guess[i] < vessels[i].low}
        if not over and not under:
            for i in free:
                content[i] = guess[i]
            break
        if sum(over.values()) >= sum(under.values()):
            for i in over:
                content[i] = vessels[i].high
            free = [i for i in free if i not in over]
        else:
            free = [i for i in free if i not in under]
    return content
