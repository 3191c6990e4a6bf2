"""MIG slices of a node, from its agent's report: which pod holds which, and how many are healthy.

The scheduler counts slices as plain resources. The agent chooses which slices a pod gets.

Design: docs/design/gpu-sharing.md
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from central.model.facts import NodeReported
from central.scheduler.inventory.pods import PodName
from protos import slicing
from protos.names import MIG
from protos.topology import Gpu, Slice


@dataclass(frozen=True, slots=True)
class MigSlices:
    held: Mapping[PodName, tuple[str, ...]] = field(default_factory=dict)  # uuids by pod
    healthy: tuple[tuple[str, int], ...] = ()  # number by resource, in use or not
    # reasons by uuid, of slices that pods hold
    unhealthy: Mapping[str, str] = field(default_factory=dict)

    def without(self, name: PodName) -> "MigSlices":
        """The same without a pod that was deleted."""
        if name not in self.held:
            return self
        return replace(self, held={each: ids for each, ids in self.held.items() if each != name})

    def limit(self, has: Mapping[str, int]) -> dict[str, int]:
        """Limits amounts of MIG resources to healthy slices, which the agent reports before the kubelet does."""
        found, healthy = dict(has), dict(self.healthy)
        for name, count in has.items():
            if name.startswith(MIG):
                found[name] = min(count, healthy.get(name, 0))
        return found


NONE = MigSlices()


def from_report(report: NodeReported) -> MigSlices:
    held: dict[PodName, tuple[str, ...]] = {}
    for grant in report.grants:
        if slicing.is_slice(grant.resource):
            name = (grant.namespace, grant.pod)
            held[name] = (*held.get(name, ()), *grant.device_ids)
    here = by_uuid(report)
    if not held and not here:
        return NONE
    healthy = Counter(slicing.resource(part.profile) for _, part in here.values() if part.healthy)
    reasons = {uuid: _why(here.get(uuid)) for ids in held.values() for uuid in ids}
    unhealthy = {uuid: why for uuid, why in reasons.items() if why}
    return MigSlices(held, tuple(sorted(healthy.items())), unhealthy)


def _why(found: tuple[Gpu, Slice] | None) -> str:
    if found is None:
        return "it is gone: its GPU was repartitioned"
    return "" if found[1].healthy else found[1].why or "the agent gave no reason"


def by_uuid(report: NodeReported | None) -> dict[str, tuple[Gpu, Slice]]:
    """The report's slices with their GPUs."""
    if report is None:
        return {}
    return {part.uuid: (gpu, part) for gpu, part in slicing.of(report.topology)}


def describe(report: NodeReported | None, uuid: str) -> str:
    found = by_uuid(report).get(uuid)
    return slicing.words(*found) if found else f"MIG slice {uuid}"
