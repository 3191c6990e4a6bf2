"""PodGroup objects -> facts. What is wrong with one is GangSeen.error, a sentence that begins with the
field; its gang waits with it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from central.kube.decode import owner_references, pod_affinity, podspec
from central.kube.decode.times import stamped
from central.kube.decode.topology_constraints import TopologyConstraints
from central.kube.decode.topology_constraints import placement as placement_of
from central.kube.errors import DECODE_ERRORS, MalformedObject, error_text, object_name, text_field
from central.model.facts import Amounts, GangSeen, Roles, SubGroups
from central.model.json_types import Json
from protos import names


def decode_podgroup(raw: Json, topology: TopologyConstraints) -> GangSeen:
    """Raises Malformed where it has no name."""
    try:
        meta = raw["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        seen = GangSeen(namespace, name, 1, uid=meta.get("uid", ""))
    except DECODE_ERRORS as error:
        raise MalformedObject(f"PodGroup {object_name(raw)}: {error_text(error)}") from error
    try:
        return _gang(raw, seen, topology)
    except DECODE_ERRORS as error:
        return replace(seen, error=error_text(error))


def _gang(raw: Json, seen: GangSeen, topology: TopologyConstraints) -> GangSeen:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    meta = raw["metadata"]
    least = spec.get("minMember", 1)
    error = ""
    if isinstance(least, bool) or not isinstance(least, int) or least < 0:
        error, least = f"spec.minMember: {least!r} is not a whole number", 1
    tasks, unread = _task_minimums(spec.get("minTaskMember") or {})
    error = error or unread
    wish = spec.get("networkTopology") or {}
    level, tier, wrong = topology.from_network_topology(wish, "spec.networkTopology")
    soft, soft_tier = "", None
    if wish.get("mode") == "soft":
        soft, soft_tier, level, tier = level, tier, "", None
    subgroups, unread = _subgroups(spec.get("subGroupPolicy") or (), topology)
    wrong = wrong or unread
    required, preferred, unknown = topology.from_annotations(meta.get("annotations") or {})
    roles, unread = _roles(meta.get("annotations") or {})
    wrong = wrong or unread
    placement, unread = placement_of(meta.get("annotations") or {})
    wrong = wrong or unread
    conditions = status.get("conditions") or ()
    return replace(
        seen,
        min_member=max(1, least),
        task_min=tasks,
        queue=text_field(spec, "queue") or "default",
        topology_required=required or level,
        topology_preferred=preferred or soft,
        required_tier=tier,
        preferred_tier=soft_tier,
        created=stamped(meta.get("creationTimestamp")),
        error=error or wrong or unknown,
        phase=text_field(status, "phase"),
        priority_class=text_field(spec, "priorityClassName"),
        min_resources=_min_resources(spec.get("minResources")),
        reason=text_field(conditions[-1], "message") if conditions else "",
        subgroups=subgroups,
        roles=roles,
        placement=placement,
        owner=owner_references.controller_of(meta)[1],
    )


def _subgroups(
    policies: Sequence[Json], topology: TopologyConstraints
) -> tuple[tuple[SubGroups, ...], str]:
    """The policies, and what is wrong with them."""
    found: dict[str, SubGroups] = {}
    for place, policy in enumerate(policies):
        field = f"spec.subGroupPolicy[{place}]"
        name, size = text_field(policy, "name"), policy.get("subGroupSize", 1)
        least, keys = policy.get("minSubGroups", 0), policy.get("matchLabelKeys") or []
        for key, value, lowest in (("subGroupSize", size, 1), ("minSubGroups", least, 0)):
            if type(value) is not int or value < lowest:
                return (), f"{field}.{key}: {value!r} is not a whole number from {lowest} on"
        if not name or name in found:
            return (), f'{field}.name: "{name}" is missing, or there twice'
        if not all(type(key) is str and key for key in keys):
            return (), f"{field}.matchLabelKeys: {keys!r} are not label keys"
        wish, inside = policy.get("networkTopology") or {}, f"{field}.networkTopology"
        level, tier, wrong = topology.from_network_topology(wish, inside)
        if wrong:
            return (), wrong
        if wish.get("mode") == "soft":  # as close as the rest allows: so they are anyway
            level, tier = "", None
        selector = policy.get("labelSelector") or {}
        labels = pod_affinity.label_expressions(selector, f"{field}.labelSelector")
        found[name] = SubGroups(name, size, least, labels, tuple(keys), level, tier=tier)
    return tuple(found.values()), ""


def _task_minimums(wish: Json) -> tuple[tuple[tuple[str, int], ...], str]:
    for task, least in wish.items():
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            return (), f"spec.minTaskMember.{task}: {least!r} is not a whole number"
    return tuple(sorted((task, least) for task, least in wish.items() if least)), ""


def _roles(annotations: Json) -> tuple[Roles | None, str]:
    """Sets of tasks, "ps,worker;ps": one by itself means its pods among each other, several mean each
    with each other; and what is wrong with them."""
    found = []
    for key in (names.TASK_NEAR, names.TASK_APART):
        told, pairs = text_field(annotations, key), set[tuple[str, str]]()
        for together in filter(None, told.split(";")):
            tasks = sorted({task.strip() for task in together.split(",")})
            if not all(tasks):
                return None, f'annotation {key}: "{told}" has a task without a name'
            pairs.update(combinations(tasks, 2) if len(tasks) > 1 else [(tasks[0], tasks[0])])
        found.append(tuple(sorted(pairs)))
    return (Roles(*found) if any(found) else None), ""


def _min_resources(told: Any) -> Amounts:
    """Under its own name or as quotas call it (requests.cpu); limits and numbers of objects ask for
    nothing."""
    found: dict[str, int] = {}
    for key, quantity in (told or {}).items():
        resource = key.removeprefix("requests.")
        if not key.startswith(("limits.", "count/")):
            amount = podspec.resource_amounts({resource: quantity}, "spec.minResources")[resource]
            found[resource] = max(amount, found.get(resource, 0))
    return tuple(sorted((resource, amount) for resource, amount in found.items() if amount))
