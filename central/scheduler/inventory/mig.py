"""MIG slices of a node: who holds which, as its agent says, and how many are fit. By number slices are
resources like any other; which ones a pod gets, its node's agent chooses. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from central.model.facts import NodeReported
from protos import slicing
from protos.topology import Gpu, Slice

Name = tuple[str, str]  # namespace and pod


@dataclass(frozen=True, slots=True)
class MigSlices:
    """Of one node, by its agent's report."""

    held: Mapping[Name, tuple[str, ...]] = field(default_factory=dict)  # uuids by pod
    healthy: tuple[tuple[str, int], ...] = ()  # how many by resource, in use or not
    unhealthy: Mapping[str, str] = field(
        default_factory=dict
    )  # of those that are held: why, by uuid

    def without(self, name: Name) -> "MigSlices":
        """The pod has gone."""
        if name not in self.held:
            return self
        return replace(self, held={each: ids for each, ids in self.held.items() if each != name})

    def limit(self, has: Mapping[str, int]) -> dict[str, int]:
        """The smaller of what the API server and the agent say: the agent tells sooner."""
        fit = dict(self.healthy)
        return {
            name: min(count, fit.get(name, 0)) if slicing.is_slice(name) else count
            for name, count in has.items()
        }


NONE = MigSlices()


def from_report(report: NodeReported) -> MigSlices:
    held: dict[Name, tuple[str, ...]] = {}
    for grant in report.grants:
        if slicing.is_slice(grant.resource):
            name = (grant.namespace, grant.pod)
            held[name] = (*held.get(name, ()), *grant.device_ids)
    here = by_uuid(report)
    if not held and not here:
        return NONE
    fit = Counter(slicing.resource(part.profile) for _, part in here.values() if part.healthy)
    troubles = {uuid: _why(here.get(uuid)) for ids in held.values() for uuid in ids}
    bad = {uuid: why for uuid, why in troubles.items() if why}
    return MigSlices(held, tuple(sorted(fit.items())), bad)


def _why(found: tuple[Gpu, Slice] | None) -> str:
    if found is None:
        return "it is gone: its GPU was divided anew"
    return "" if found[1].healthy else found[1].why or "not told why"


def by_uuid(report: NodeReported | None) -> dict[str, tuple[Gpu, Slice]]:
    """By uuid."""
    if report is None:
        return {}
    return {part.uuid: (gpu, part) for gpu, part in slicing.of(report.topology)}


def describe(report: NodeReported | None, uuid: str) -> str:
    found = by_uuid(report).get(uuid)
    return slicing.words(*found) if found else f"MIG slice {uuid}"
