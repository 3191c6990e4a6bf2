"""PodGroups as facts. GangSeen.error is a sentence that begins with the field; the gang stays pending with
it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from central.kube.decode import fields, gang_annotations, pod_affinity, pod_annotations
from central.kube.decode.effective_requests import resource_amounts
from central.kube.decode.fields import FieldError, FirstError
from central.kube.decode.quantities import parse_time
from central.kube.decode.subgroup_layers import with_layers
from central.kube.decode.topology_constraints import TopologyConstraints, placement_policy
from central.model import limits, past_turns
from central.model.facts import Amounts, GangSeen, Roles, SubGroups
from central.model.facts.gang_facts import MOVE_AFTER_S
from central.model.json_types import Json
from protos import names


def decode_podgroup(raw: Json, topology: TopologyConstraints) -> GangSeen:
    with fields.identifying("PodGroup", raw):
        namespace, name, uid = fields.identity(raw["metadata"])
        seen = GangSeen(namespace, name, 1, uid=uid)
    return fields.or_error(seen, _gang, raw, seen, topology)


def written_for_tools(raw: Json) -> tuple[str, str] | None:
    """Namespace and name of a PodGroup of --pod-groups-for-controllers; None: it is another."""
    return fields.identified("PodGroup", _written_for_tools, raw)


def _written_for_tools(raw: Json) -> tuple[str, str] | None:
    meta = raw["metadata"]
    namespace, name, _ = fields.identity(meta)
    return (namespace, name) if (meta.get("annotations") or {}).get(names.GANG_OF) else None


def _gang(raw: Json, seen: GangSeen, topology: TopologyConstraints) -> GangSeen:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = meta.get("annotations") or {}
    errors = FirstError()
    least = errors.read(1, fields.count, spec, "minMember", "spec", 1)
    tasks = errors.read((), _task_minimums, spec)
    closeness = _closeness(spec, annotations, topology, errors)
    subgroups = errors.read((), _subgroups, spec, topology)
    if names.SUBGROUP_TOPOLOGY in annotations and not errors.message:
        subgroups = errors.read((), with_layers, subgroups, annotations, topology.levels)
    roles = errors.read(None, _roles, annotations)
    placement = errors.read("", placement_policy, annotations)
    conditions = status.get("conditions") or ()
    queue = errors.read("", fields.text, spec, "queue", limits.NAME)
    priority = errors.read("", fields.text, spec, "priorityClassName", limits.NAME)
    resources = errors.read((), _min_resources, spec)
    move_after_s = errors.read(MOVE_AFTER_S, _move_after, annotations)
    preemptable = pod_annotations.preemptable(meta.get("labels") or {}, annotations, errors)
    return replace(
        seen,
        min_member=max(1, least),
        task_min=tasks,
        queue=queue or "default",
        created=parse_time(meta.get("creationTimestamp")),
        error=errors.message,
        phase=fields.text(status, "phase"),
        succeeded=number if type(number := status.get("succeeded")) is int else 0,
        priority_class=priority,
        min_resources=resources,
        reason=_last_message(conditions),
        move_after_s=move_after_s,
        start_within_s=errors.read(None, pod_annotations.start_within, annotations),
        time_limit_s=errors.read(None, pod_annotations.time_limit, annotations),
        past_turns=past_turns.read(conditions),
        subgroups=subgroups,
        roles=roles,
        placement=placement,
        owner=gang_annotations.controller_of(meta)[1],
        preemptable=preemptable,
        **closeness,
    )


def _closeness(
    spec: Json, annotations: Json, topology: TopologyConstraints, errors: FirstError
) -> Json:
    """The fields of GangSeen that say how close the gang's pods must, or should, be. An annotation's level comes
    before that of the spec."""
    constraint = spec.get("networkTopology") or {}
    level, tier = errors.read(
        ("", None), topology.from_network_topology, constraint, "spec.networkTopology"
    )
    required, preferred = errors.read(("", ""), topology.from_annotations, annotations)
    if constraint.get("mode") == "soft":
        return {
            "topology_required": required,
            "topology_preferred": preferred or level,
            "preferred_tier": tier,
        }
    return {
        "topology_required": required or level,
        "topology_preferred": preferred,
        "required_tier": tier,
    }


def _move_after(annotations: Json) -> float:
    if annotations.get(names.MOVE_AFTER) is None:
        return MOVE_AFTER_S
    return pod_annotations.duration(annotations, names.MOVE_AFTER)


def _last_message(conditions: Sequence[Json]) -> str:
    """Returns the last message if this scheduler wrote it; another's may be longer than the limit."""
    last = conditions[-1] if conditions else {}
    message = last.get("message") if last.get("type") != past_turns.CONDITION else ""
    return message[: limits.TEXT] if isinstance(message, str) else ""


def _subgroups(spec: Json, topology: TopologyConstraints) -> tuple[SubGroups, ...]:
    found: dict[str, SubGroups] = {}
    pods = 0
    for index, policy in enumerate(
        fields.entries(spec, "subGroupPolicy", "spec", limits.SUBGROUPS)
    ):
        field = f"spec.subGroupPolicy[{index}]"
        size = fields.integer(policy, "subGroupSize", field, 1, limits.REPLICAS)
        least = fields.integer(policy, "minSubGroups", field, 0, limits.REPLICAS)
        pods += size * least
        if pods > limits.REPLICAS:
            why = f"{pods} pods in the least subgroups; at most {limits.REPLICAS} are accepted"
            raise FieldError(f"{field}.minSubGroups: {why}")
        name = fields.text(policy, "name", limits.NAME)
        keys = fields.strings(policy, "matchLabelKeys", field, limits.OWNERS)
        if not name or name in found:
            raise FieldError(f'{field}.name: "{name}" is missing, or used twice')
        if not all(keys):
            raise FieldError(f"{field}.matchLabelKeys: {keys!r} are not label keys")
        constraint = policy.get("networkTopology") or {}
        level, tier = topology.from_network_topology(constraint, f"{field}.networkTopology")
        if constraint.get("mode") == "soft":  # placement prefers close nodes anyway
            level, tier = "", None
        selector = policy.get("labelSelector") or {}
        labels = pod_affinity.label_expressions(selector, f"{field}.labelSelector")
        found[name] = SubGroups(name, size, least, labels, keys, level, tier=tier)
    return tuple(found.values())


def _task_minimums(spec: Json) -> tuple[tuple[str, int], ...]:
    minimums = fields.mapping(spec, "minTaskMember", "spec", limits.TASKS)
    counts = ((task, fields.count(minimums, task, "spec.minTaskMember", 0)) for task in minimums)
    return tuple(sorted((task, least) for task, least in counts if least))


def _roles(annotations: Json) -> Roles | None:
    """Task affinity and anti-affinity as sets of tasks, such as "ps,worker;ps". A set of one task means
    its pods among each other, a larger set each of its tasks with each other."""
    found = []
    for key in (names.TASK_NEAR, names.TASK_APART):
        value, pairs = annotations.get(key) or "", set[tuple[str, str]]()
        sets = _task_sets(key, value)
        for tasks in sets:
            if not all(tasks):
                raise FieldError(f'annotation {key}: "{value}" has a task without a name')
            pairs.update(combinations(tasks, 2) if len(tasks) > 1 else [(tasks[0], tasks[0])])
        found.append(tuple(sorted(pairs)))
    return Roles(*found) if any(found) else None


def _task_sets(key: str, value: Any) -> list[list[str]]:
    """Splits the sets of tasks. Names are limited before they are paired: all pairs of n names are n(n-1)/2 rules."""
    field = f"annotation {key}"
    if type(value) is not str:
        raise FieldError(f"{field}: {value!r} is not a string")
    if len(value) > limits.TASK_TEXT:
        raise FieldError(fields.too_long(field, value, limits.TASK_TEXT))
    sets = [
        sorted({task.strip() for task in together.split(",")})
        for together in filter(None, value.split(";"))
    ]
    if (count := sum(map(len, sets))) > limits.ROLES:
        raise FieldError(f"{field}: {count} tasks; at most {limits.ROLES} are accepted")
    return sets


def _min_resources(spec: Json) -> Amounts:
    """Resources under their own names or as quotas name them (requests.cpu), without limits and object
    counts."""
    found: dict[str, int] = {}
    for key, quantity in fields.mapping(spec, "minResources", "spec", limits.RESOURCES).items():
        resource = key.removeprefix("requests.")
        if not key.startswith(("limits.", "count/")):
            amount = resource_amounts({resource: quantity}, "spec.minResources")[resource]
            found[resource] = max(amount, found.get(resource, 0))
    return tuple(sorted((resource, amount) for resource, amount in found.items() if amount))
