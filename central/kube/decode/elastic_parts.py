"""The part of a JobSet, LeaderWorkerSet or RayCluster whose size varies, by its annotations lockstep.dev/elastic-min
and -max, and what these controllers let others change.

JobSet: parallelism and completions of one replicatedJob, with its feature gate ElasticJobSet. LeaderWorkerSet: groups.
RayCluster: workers of one group; with Ray's own autoscaler, the most that it may have.

Design: docs/design/elastic-controllers.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from central.kube.decode import elastic_range, fields, workload_roles
from central.kube.decode.elastic_range import Notes, Range
from central.kube.decode.fields import DECODE_ERRORS, INT32_MAX, FieldError
from central.model import limits
from central.model.json_types import Json
from protos.names import ELASTIC_MAX, ELASTIC_MIN, ROLE_TOPOLOGY

ROLES_MOST = limits.TASKS


@dataclass(frozen=True, slots=True)
class ElasticPart:
    """sizes: in units. size, ceiling: in pods, as in ElasticSeen."""

    role: str
    sizes: Range
    size: int
    unit: int = 1
    place: int = 0
    ceiling: int = 0

    @property
    def least(self) -> int:
        """Pods that start together."""
        return self.sizes.least * self.unit


Read = Callable[[Json, Notes], ElasticPart]


def read(kind: str, raw: Json, notes: Notes) -> ElasticPart:
    """Raises FieldError."""
    return READERS[kind](raw, notes)


def valid(kind: str, raw: Json) -> ElasticPart | None:
    """Returns the elastic part; None if the object has no valid range, so that its size stays as it is."""
    notes = raw["metadata"].get("annotations") or {}
    if kind not in READERS or not elastic_range.is_elastic(notes):
        return None
    try:
        part = read(kind, raw, notes)
        elastic_range.task("", notes, part.sizes, part.unit)
    except DECODE_ERRORS:
        return None
    return part


def _jobset(raw: Json, notes: Notes) -> ElasticPart:
    spec = fields.mapping(raw, "spec", "", limits.TASKS)
    jobs = fields.entries(spec, "replicatedJobs", "spec", ROLES_MOST)
    places = {fields.text(job, "name", limits.NAME): index for index, job in enumerate(jobs)}
    role, sizes = elastic_range.of_role(notes, tuple(places), "replicatedJob")
    place = places[role]
    field = f"spec.replicatedJobs[{place}]"
    replicas = fields.count(jobs[place], "replicas", field, 1)
    template = fields.mapping(jobs[place], "template", field, limits.TASKS)
    inside = fields.mapping(template, "spec", f"{field}.template", limits.TASKS)
    field += ".template.spec"
    parallelism = fields.count(inside, "parallelism", field, 1)
    if fields.text(inside, "completionMode") not in ("", "Indexed"):
        raise FieldError(f"{field}.completionMode: only Indexed Jobs of a JobSet change their size")
    if fields.count(inside, "completions", field, parallelism) != parallelism:
        raise FieldError(
            f"{field}.completions: not equal to parallelism, {parallelism}; JobSet changes the size of such Jobs only"
        )
    off = not replicas or spec.get("suspend") is True or _has_ended(raw)
    size = 0 if off else parallelism * replicas
    return ElasticPart(role, sizes, size, max(replicas, 1), place)


def _has_ended(raw: Json) -> bool:
    conditions = fields.mapping(raw, "status", "", limits.LABELS).get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(each, dict)
        and each.get("type") in ("Completed", "Failed")
        and each.get("status") == "True"
        for each in conditions[: limits.LABELS]
    )


def _leaderworkerset(raw: Json, notes: Notes) -> ElasticPart:
    if workload_roles.leader_first(raw):
        raise FieldError(
            f"annotation {ELASTIC_MIN}: the leaders start before their workers (startupPolicy LeaderReady or exclusive "
            "topology), so that the groups cannot start together"
        )
    if ROLE_TOPOLOGY in notes:
        raise FieldError(
            f"annotation {ROLE_TOPOLOGY}: the groups of an elastic LeaderWorkerSet have no levels inside them; "
            "lockstep.dev/topology-required is for each group"
        )
    spec = fields.mapping(raw, "spec", "", limits.TASKS)
    template = fields.mapping(spec, "leaderWorkerTemplate", "spec", limits.TASKS)
    if template.get("leaderTemplate") and _needs(template, "leaderTemplate") != _needs(
        template, "workerTemplate"
    ):
        raise FieldError(
            "spec.leaderWorkerTemplate.leaderTemplate: it needs other resources or nodes than workerTemplate; only "
            "groups "
            "of like pods vary"
        )
    unit = max(workload_roles.group_size(raw), 1)
    groups = fields.count(spec, "replicas", "spec", 1)
    return ElasticPart("", elastic_range.read(notes), groups * unit, unit)


def _needs(template: Json, key: str) -> list[Any]:
    """Returns the fields that decide where such a pod fits."""
    field = f"spec.leaderWorkerTemplate.{key}"
    spec = fields.mapping(
        fields.mapping(template, key, "spec.leaderWorkerTemplate", limits.TASKS),
        "spec",
        field,
        limits.TASKS,
    )
    parts = [
        [
            each.get("resources") or {}
            for each in fields.entries(spec, part, field, limits.CONTAINERS)
        ]
        for part in ("containers", "initContainers")
    ]
    keys = ("resources", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
    return [*parts, *(spec.get(each) or None for each in keys)]


def _raycluster(raw: Json, notes: Notes) -> ElasticPart:
    spec = fields.mapping(raw, "spec", "", limits.TASKS)
    groups = fields.entries(spec, "workerGroupSpecs", "spec", ROLES_MOST)
    places = {
        fields.text(each, "groupName", limits.NAME): index for index, each in enumerate(groups)
    }
    role, sizes = elastic_range.of_role(notes, tuple(places), "worker group")
    place = places[role]
    group, field = groups[place], f"spec.workerGroupSpecs[{place}]"
    if (hosts := fields.count(group, "numOfHosts", field, 1)) > 1:
        raise FieldError(f"{field}.numOfHosts: {hosts}; only groups of one host vary")
    low = fields.count(group, "minReplicas", field, 0)
    high = INT32_MAX
    if group.get("maxReplicas") is not None:
        high = max(low, fields.integer(group, "maxReplicas", field, 0))
    wanted = min(max(fields.count(group, "replicas", field, low), low), high)
    off = spec.get("suspend") is True or group.get("suspend") is True
    if spec.get("enableInTreeAutoscaling") is True:
        if sizes.least != low:
            raise FieldError(
                f"annotation {ELASTIC_MIN}: {sizes.least} is not {field}.minReplicas, {low}, below which Ray's "
                "autoscaler "
                "does not go"
            )
        ceiling = min(high, limits.REPLICAS)
        return ElasticPart(role, sizes, 0 if off else wanted, place=place, ceiling=ceiling)
    if sizes.least < low:
        raise FieldError(
            f"annotation {ELASTIC_MIN}: {sizes.least} is below {field}.minReplicas, {low}"
        )
    if sizes.most > high:
        raise FieldError(
            f"annotation {ELASTIC_MAX}: {sizes.most} is above {field}.maxReplicas, {high}"
        )
    return ElasticPart(role, sizes, 0 if off else wanted, place=place)


READERS: dict[str, Read] = {
    "JobSet": _jobset,
    "LeaderWorkerSet": _leaderworkerset,
    "RayCluster": _raycluster,
}
