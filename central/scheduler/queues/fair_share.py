"""Fair shares, exactly: one resource divided over siblings by weight, like water poured into vessels
of their widths until it stands level. Pure arithmetic on whole numbers and fractions.

First everyone's guarantee holds, then what each deserves, then the rest by weight, the more urgent
siblings before the others; nobody is given more than it can use.

Design: docs/design/0015-queues.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Amount = int | Fraction


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """most: what it asks for and may have."""

    weight: int
    most: int
    deserved: int = 0
    guarantee: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Holds base + width * level of water, at least low and at most high."""

    width: int
    low: Amount
    high: Amount
    base: Amount = 0


def divide(total: Amount, claims: Sequence[QueueDemand]) -> list[Amount]:
    """Each claim's share, in order. Together they are the total, or all that is asked for."""
    if sum(claim.most for claim in claims) <= total:
        return [claim.most for claim in claims]
    low = [min(claim.guarantee, claim.most) for claim in claims]
    if (promised := sum(low)) > total:  # more is guaranteed than there is: nodes were lost
        return [Fraction(share * total) / promised for share in low]
    base = [
        max(least, min(claim.deserved, claim.most))
        for least, claim in zip(low, claims, strict=True)
    ]
    if sum(base) >= total:
        return water_fill(
            total,
            [
                Bounds(claim.deserved, least, most)
                for claim, least, most in zip(claims, low, base, strict=True)
            ],
        )
    shares: list[Amount] = list(base)
    left = total - sum(base)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        peers = [i for i, claim in enumerate(claims) if claim.priority == priority]
        before = sum(base[i] for i in peers)
        vessels = [
            Bounds(
                claims[i].weight, base[i], claims[i].most, min(claims[i].deserved, claims[i].most)
            )
            for i in peers
        ]
        poured = water_fill(before + left, vessels)
        for i, share in zip(peers, poured, strict=True):
            shares[i] = share
        left -= sum(poured) - before
    return shares


def water_fill(total: Amount, vessels: Sequence[Bounds]) -> list[Amount]:
    """Each vessel's content when the total is poured in and stands level, or all are full. The total
    is at least what they hold when low.

    Guesses the level, and where that is wrong settles whichever kind errs more, those that would
    hold too little or those that would hold too much: one of them is surely right.
    """
    if sum(vessel.high for vessel in vessels) <= total:
        return [vessel.high for vessel in vessels]
    content: list[Amount] = [vessel.low for vessel in vessels]
    free = [i for i, vessel in enumerate(vessels) if vessel.width > 0 and vessel.high > vessel.low]
    while free:
        settled = sum(content) - sum(content[i] for i in free)
        width = sum(vessels[i].width for i in free)
        level = (Fraction(total - settled) - sum(vessels[i].base for i in free)) / width
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
