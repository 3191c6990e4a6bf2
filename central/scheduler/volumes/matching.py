"""Matches volume requests with volumes (augmenting paths), and lists the sets of requests whose counts decide
whether a match exists (Hall's theorem)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from central.model.volumes import VolumeRequest

MAX_UNLIKE = 8  # different requests of one pod for one storage class
AnyOf = frozenset[VolumeRequest]  # volumes that satisfy at least one of these


def match(
    wants: Sequence[VolumeRequest], candidates: Mapping[VolumeRequest, Sequence[str]]
) -> list[str]:
    """A volume for each request, the earliest possible of its candidates; empty where none is left, or
    where one is provisioned."""
    got: dict[str, int] = {}
    # Requests that cannot be provisioned come first, then large ones.
    order = ((wants[i].made is not None, -wants[i].size, i) for i in range(len(wants)))
    for _, _, index in sorted(order):
        _augment(index, wants, candidates, got, set())
    names = [""] * len(wants)
    for name, index in got.items():
        names[index] = name
    return names


def _augment(
    index: int,
    wants: Sequence[VolumeRequest],
    candidates: Mapping[VolumeRequest, Sequence[str]],
    got: dict[str, int],
    tried: set[str],
) -> bool:
    """Finds a volume for the request, if need be by moving other requests to other volumes."""
    for name in candidates[wants[index]]:
        if name not in got:
            got[name] = index
            return True
    for name in candidates[wants[index]]:
        if name not in tried:
            tried.add(name)
            if _augment(got[name], wants, candidates, got, tried):
                got[name] = index
                return True
    return False


# request, volumes per pod, volumes for all pods together
Needs = tuple[tuple[VolumeRequest, int, int], ...]


@lru_cache(maxsize=4096)
def hall_sets(needs: Needs) -> list[tuple[AnyOf, int, int]]:
    """The sets of requests to count, each with its volumes per pod and for all pods together.

    A volume that satisfies the harder of two requests satisfies the easier one as well, so a set is
    reduced to its easiest requests, and sets that become equal keep the larger need."""
    found: dict[AnyOf, tuple[int, int]] = {}
    for size in range(1, len(needs) + 1):
        for some in combinations(needs, size):
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
            each, together = sum(n for _, n, _ in some), sum(n for _, _, n in some)
            have = found.get(easiest, (0, 0))
            found[easiest] = (max(have[0], each), max(have[1], together))
    return [(any_of, each, together) for any_of, (each, together) in found.items()]
