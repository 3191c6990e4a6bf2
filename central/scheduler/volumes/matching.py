"""Wants and volumes matched: which volume each gets, and which numbers say whether there are enough."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from central.model.volumes import Wanted

UNLIKE = 8  # ways in which one pod's claims of a class may differ
Question = frozenset[Wanted]


def matched(wants: Sequence[Wanted], offers: Mapping[Wanted, Sequence[str]]) -> list[str]:
    """A volume for each, the first of its offers that can be had; empty where none is left, or one is
    made."""
    got: dict[str, int] = {}
    # Whoever must have one comes before those for whom one can be made, if it is not too large.
    order = ((wants[i].made is not None, -wants[i].size, i) for i in range(len(wants)))
    for _, _, index in sorted(order):
        _find(index, wants, offers, got, set())
    names = [""] * len(wants)
    for name, index in got.items():
        names[index] = name
    return names


def _find(
    index: int,
    wants: Sequence[Wanted],
    offers: Mapping[Wanted, Sequence[str]],
    got: dict[str, int],
    tried: set[str],
) -> bool:
    """A volume for this one, if need be by giving others another."""
    for name in offers[wants[index]]:
        if name not in got:
            got[name] = index
            return True
    for name in offers[wants[index]]:
        if name not in tried:
            tried.add(name)
            if _find(got[name], wants, offers, got, tried):
                got[name] = index
                return True
    return False


Asked = tuple[tuple[Wanted, int, int], ...]  # how many for each pod, and how many in all


@lru_cache(maxsize=4096)
def questions(asked: Asked) -> list[tuple[Question, int, int]]:
    """The sets of wants whose volumes must be enough, with how many are asked for. Of wants one of which
    is harder than the other, the easier says it all."""
    found: dict[Question, tuple[int, int]] = {}
    for size in range(1, len(asked) + 1):
        for some in combinations(asked, size):
            wants = [want for want, _, _ in some]
            easiest = frozenset(
                want
                for place, want in enumerate(wants)
                if not any(
                    want.harder(other) and (other_place < place or not other.harder(want))
                    for other_place, other in enumerate(wants)
                    if other_place != place
                )
            )
            each, once = sum(n for _, n, _ in some), sum(n for _, _, n in some)
            have = found.get(easiest, (0, 0))
            found[easiest] = (max(have[0], each), max(have[1], once))
    return [(question, each, once) for question, (each, once) in found.items()]
