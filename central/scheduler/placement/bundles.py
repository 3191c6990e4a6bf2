"""The pods and the requests of bundles, each summed over the bundle's subgroups.

Design: docs/design/subgroups.md
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from central.model.facts import PodSpec
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.request import PlacementRequest, SubgroupRequest


def alone(request: PlacementRequest) -> Iterator[PlacementRequest]:
    """Yields a request for each of the widest bundles by itself; equal ones once."""
    members: dict[int, list[SubgroupRequest]] = {}
    for subgroup in request.subgroups:
        for bundle in subgroup.bundles[:1]:
            members.setdefault(bundle.number, []).append(subgroup)
    found = dict[PlacementRequest, None]()
    for subgroups in members.values():
        bundle, numbers = subgroups[0].bundles[0], dict[int, int]()
        inner = tuple(
            replace(
                each,
                bundles=tuple(
                    replace(one, number=numbers.setdefault(one.number, len(numbers)))
                    for one in each.bundles[1:]
                ),
            )
            for each in subgroups
        )
        pods = _summed([group for each in inner for group in [*each.groups] * each.copies])
        alone = PlacementRequest(
            pods, bundle.required, bundle.existing_rows, subgroups=inner, unit="group"
        )
        found[alone] = None
    yield from found


def pods(subgroups: Sequence[SubgroupRequest]) -> dict[int, PodCounts]:
    found: dict[int, list[tuple[PodSpec, int]]] = {}
    for subgroup in subgroups:
        for bundle in subgroup.bundles:
            found.setdefault(bundle.number, []).extend(subgroup.groups)
    return {number: _summed(pods) for number, pods in found.items()}


def _summed(groups: Sequence[tuple[PodSpec, int]]) -> PodCounts:
    sums: dict[PodSpec, int] = {}
    for spec, count in groups:
        sums[spec] = sums.get(spec, 0) + count
    return tuple(sums.items())
