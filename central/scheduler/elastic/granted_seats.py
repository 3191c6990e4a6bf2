"""Sizes that gangs of a pool may have now, on the way to their goals.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Mapping, Sequence

from central.scheduler.elastic.elastic_gang import ElasticGang


def within_seats(
    goals: Mapping[ElasticGang, int], ready: Sequence[ElasticGang], free: int, *, more_follows: bool
) -> dict[ElasticGang, int]:
    """Sizes of the gangs that are ready, for which there are seats now: free ones, and those of gangs above
    their goals. Gangs with the least surplus grow first, each to its goal; only the last one may get fewer seats, if no
    more follow."""
    sizes = {gang: len(gang.placed) for gang in ready}
    donors = [gang for gang in ready if goals[gang] < sizes[gang]]
    left = free + sum(sizes[gang] - goals[gang] for gang in donors)
    growing = [gang for gang in ready if goals[gang] > sizes[gang]]
    granted = 0
    for gang in sorted(growing, key=lambda gang: gang.surplus(sizes[gang])):
        more = goals[gang] - sizes[gang]
        if more > left:
            if more_follows:
                continue
            more = max(0, gang.allowed(sizes[gang] + left) - sizes[gang])
        sizes[gang] += more
        left -= more
        granted += more
    taken = max(0, granted - free)
    for gang in sorted(donors, key=lambda gang: -gang.surplus(sizes[gang])):
        size = sizes[gang] - min(taken, sizes[gang] - goals[gang])
        size = max(goals[gang], gang.allowed(size))
        taken -= sizes[gang] - size
        sizes[gang] = size
    return sizes
