"""PodGroups as facts. GangSeen.error is a sentence that begins with the field; the gang stays pending with
it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from central.kube.decode import gang_annotations, pod_affinity, podspec
from central.kube.decode.fields import FieldError, FirstError, identifying, or_error, text_field
from central.kube.decode.quantities import parse_time
from central.kube.decode.topology_constraints import TopologyConstraints, placement_policy
from central.model.facts import Amounts, GangSeen, Roles, SubGroups
from central.model.json_types import Json
from protos import names


def decode_podgroup(raw: Json, topology: TopologyConstraints) -> GangSeen:
    with identifying("PodGroup", raw):
        meta = raw["metadata"]
        seen = GangSeen(meta["namespace"], meta["name"], 1, uid=meta.get("uid", ""))
    return or_error(seen, _gang, raw, seen, topology)


def _gang(raw: Json, seen: GangSeen, topology: TopologyConstraints) -> GangSeen:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = meta.get("annotations") or {}
    errors = FirstError()
    least = errors.read(1, _count, "spec.minMember", spec.get("minMember", 1))
    tasks = errors.read((), _task_minimums, spec.get("minTaskMember") or {})
    constraint = spec.get("networkTopology") or {}
    level, tier = errors.read(
        ("", None), topology.from_network_topology, constraint, "spec.networkTopology"
    )
    soft_level, soft_tier = "", None
    if constraint.get("mode") == "soft":
        soft_level, soft_tier, level, tier = level, tier, "", None
    subgroups = errors.read((), _subgroups, spec.get("subGroupPolicy") or (), topology)
    roles = errors.read(None, _roles, annotations)
    placement = errors.read("", placement_policy, annotations)
    required, preferred = errors.read(("", ""), topology.from_annotations, annotations)
    conditions = status.get("conditions") or ()
    return replace(
        seen,
        min_member=max(1, least),
        task_min=tasks,
        queue=text_field(spec, "queue") or "default",
        topology_required=required or level,
        topology_preferred=preferred or soft_level,
        required_tier=tier,
        preferred_tier=soft_tier,
        created=parse_time(meta.get("creationTimestamp")),
        error=errors.message,
        phase=text_field(status, "phase"),
        priority_class=text_field(spec, "priorityClassName"),
        min_resources=_min_resources(spec.get("minResources")),
        reason=text_field(conditions[-1], "message") if conditions else "",
        subgroups=subgroups,
        roles=roles,
        placement=placement,
        owner=gang_annotations.controller_of(meta)[1],
    )


def _count(field: str, value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise FieldError(f"{field}: {value!r} is not a whole number from {least}")
    return value


def _subgroups(policies: Sequence[Json], topology: TopologyConstraints) -> tuple[SubGroups, ...]:
    found: dict[str, SubGroups] = {}
    for index, policy in enumerate(policies):
        field = f"spec.subGroupPolicy[{index}]"
        size = _count(f"{field}.subGroupSize", policy.get("subGroupSize", 1), 1)
        least = _count(f"{field}.minSubGroups", policy.get("minSubGroups", 0))
        name, keys = text_field(policy, "name"), policy.get("matchLabelKeys") or []
        if not name or name in found:
            raise FieldError(f'{field}.name: "{name}" is missing, or used twice')
        if not all(type(key) is str and key for key in keys):
            raise FieldError(f"{field}.matchLabelKeys: {keys!r} are not label keys")
        constraint = policy.get("networkTopology") or {}
        level, tier = topology.from_network_topology(constraint, f"{field}.networkTopology")
        if constraint.get("mode") == "soft":  # placement prefers close nodes anyway
            level, tier = "", None
        selector = policy.get("labelSelector") or {}
        labels = pod_affinity.label_expressions(selector, f"{field}.labelSelector")
        found[name] = SubGroups(name, size, least, labels, tuple(keys), level, tier=tier)
    return tuple(found.values())


def _task_minimums(minimums: Json) -> tuple[tuple[str, int], ...]:
    for task, least in minimums.items():
        _count(f"spec.minTaskMember.{task}", least)
    return tuple(sorted((task, least) for task, least in minimums.items() if least))


def _roles(annotations: Json) -> Roles | None:
    """Task affinity and anti-affinity as sets of tasks, such as "ps,worker;ps". A set of one task means
    its pods among each other, a larger set each of its tasks with each other."""
    found = []
    for key in (names.TASK_NEAR, names.TASK_APART):
        value, pairs = text_field(annotations, key), set[tuple[str, str]]()
        for together in filter(None, value.split(";")):
            tasks = sorted({task.strip() for task in together.split(",")})
            if not all(tasks):
                raise FieldError(f'annotation {key}: "{value}" has a task without a name')
            pairs.update(combinations(tasks, 2) if len(tasks) > 1 else [(tasks[0], tasks[0])])
        found.append(tuple(sorted(pairs)))
    return Roles(*found) if any(found) else None


def _min_resources(quantities: Json | None) -> Amounts:
    """Resources under their own names or as quotas name them (requests.cpu), without limits and object
    counts."""
    found: dict[str, int] = {}
    for key, quantity in (quantities or {}).items():
        resource = key.removeprefix("requests.")
        if not key.startswith(("limits.", "count/")):
            amount = podspec.resource_amounts({resource: quantity}, "spec.minResources")[resource]
            found[resource] = max(amount, found.get(resource, 0))
    return tuple(sorted((resource, amount) for resource, amount in found.items() if amount))
