"""Finds the cause of pairs that failed. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

NameT = TypeVar("NameT", str, int)


def blamed(pairs: Mapping[tuple[NameT, NameT], str]) -> dict[NameT, str]:
    """Returns those that explain all pairs that failed, with the reason of one of theirs: the one with the most failed
    pairs, then the one with the most of the others. Where several have as many, nothing tells them apart, and all are
    named."""
    left = dict(pairs)
    found: dict[NameT, str] = {}
    while left:
        counts = Counter(name for pair in left for name in set(pair))
        most = max(counts.values())
        worst = {name for name, count in counts.items() if count == most}
        for pair, why in sorted(left.items()):
            for name in worst.intersection(pair):
                found.setdefault(name, why)
        left = {pair: why for pair, why in left.items() if not worst.intersection(pair)}
    return found
