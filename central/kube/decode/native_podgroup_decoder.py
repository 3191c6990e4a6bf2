"""PodGroups and CompositePodGroups of scheduling.k8s.io, Kubernetes' own, as facts.

v1alpha2 (Kubernetes 1.36) and later versions differ in the disruption mode and the condition. What a PodGroup of
scheduling.volcano.sh has fields for, this one takes from the same annotations as pods do: the queue, a preferred
level, the placement.

Design: docs/design/gangs.md
"""

from dataclasses import replace
from typing import Any

from central.kube.decode import fields, gang_annotations, pod_annotations
from central.kube.decode.device_claim_decoder import group_device_claims
from central.kube.decode.fields import FieldError, FirstError
from central.kube.decode.quantities import parse_time
from central.kube.decode.topology_constraints import TopologyConstraints, placement_policy
from central.model import limits, native_podgroup, past_turns
from central.model.facts import GangGone, GangSeen
from central.model.json_types import Json
from central.model.phases import PENDING, RUNNING
from protos import names

_MODES = {"Pod": False, "PodGroup": True}  # of v1alpha2, to GangSeen.evicted_whole
_MODE_FIELDS = {"single": False, "all": True}  # since v1beta1


def decode_native_podgroup(
    version: str, raw: Json, topology: TopologyConstraints, *, composite: bool = False
) -> GangSeen:
    """version: the API version that served it. Raises MalformedObject."""
    with fields.identifying("CompositePodGroup" if composite else "PodGroup", raw):
        namespace, name, uid = fields.identity(raw["metadata"])
        gang = (native_podgroup.composite_name if composite else native_podgroup.gang_name)(name)
        seen = GangSeen(namespace, gang, 1, uid=uid, queue="", native_version=version)
    return fields.or_error(seen, _gang, raw, seen, topology)


def native_podgroup_gone(raw: Json) -> GangGone:
    meta = raw["metadata"]
    return GangGone(meta["namespace"], native_podgroup.gang_name(meta["name"]))


def composite_gone(raw: Json) -> GangGone:
    meta = raw["metadata"]
    return GangGone(meta["namespace"], native_podgroup.composite_name(meta["name"]))


def _gang(raw: Json, seen: GangSeen, topology: TopologyConstraints) -> GangSeen:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    annotations = meta.get("annotations") or {}
    errors = FirstError()
    level = errors.read("", _required_level, spec, topology)
    required, preferred = errors.read(("", ""), topology.from_annotations, annotations)
    status = raw.get("status") or {}
    scheduled, message = _condition(
        status, native_podgroup.condition_type(seen.native_version, seen.name)
    )
    return replace(
        seen,
        min_member=errors.read(1, _min_count, spec, native_podgroup.is_composite(seen.name)),
        parent=errors.read("", _parent, spec),
        preempts=errors.read(True, _preempts, spec),
        queue=errors.read("", fields.text, annotations, names.QUEUE_NAME, limits.NAME),
        priority=fields.whole(spec.get("priority")),
        priority_class=errors.read("", fields.text, spec, "priorityClassName", limits.NAME),
        topology_required=level or required,
        topology_preferred=preferred,
        placement=errors.read("", placement_policy, annotations),
        created=parse_time(meta.get("creationTimestamp")),
        phase=RUNNING if scheduled == "True" else PENDING if scheduled else "",
        reason=message,
        past_turns=past_turns.read(fields.entries(status, "conditions", "status", limits.TASKS)),
        owner=gang_annotations.controller_of(meta)[1],
        preemptable=pod_annotations.preemptable(meta.get("labels") or {}, annotations, errors),
        evicted_whole=errors.read(False, _evicted_whole, spec),
        device_claims=errors.read((), group_device_claims, spec),
        error=errors.message,
    )


def _min_count(spec: Json, composite: bool) -> int:
    """Pods, or groups of a CompositePodGroup. The basic policy schedules one by one: 1 pod, or 0 groups. Raises
    FieldError."""
    policy = fields.mapping(spec, "schedulingPolicy", "spec", limits.TASKS)
    if ("gang" in policy) == ("basic" in policy):
        raise FieldError("spec.schedulingPolicy: exactly one of basic and gang is required")
    if "basic" in policy:
        return 0 if composite else 1
    gang = fields.mapping(policy, "gang", "spec.schedulingPolicy", limits.TASKS)
    count = "minGroupCount" if composite else "minCount"
    return fields.integer(gang, count, "spec.schedulingPolicy.gang", 1, limits.REPLICAS)


def _required_level(spec: Json, topology: TopologyConstraints) -> str:
    constraints = fields.mapping(spec, "schedulingConstraints", "spec", limits.TASKS)
    field = "spec.schedulingConstraints.topology"
    terms = fields.entries(constraints, "topology", "spec.schedulingConstraints", limits.TASKS)
    if len(terms) > 1:
        raise FieldError(f"{field}: {len(terms)} constraints; one is accepted")
    if not terms:
        return ""
    key = fields.text(terms[0], "key", limits.NAME)
    if key == names.HOSTNAME:
        return names.NODE
    topology.check_label(key, f"{field}[0].key")
    return key


def _evicted_whole(spec: Json) -> bool:
    mode: Any = spec.get("disruptionMode")
    if isinstance(mode, str) and mode in _MODES:
        return _MODES[mode]
    if isinstance(mode, dict) and len(mode) == 1 and (only := next(iter(mode))) in _MODE_FIELDS:
        return _MODE_FIELDS[only]
    if mode is None:
        return False
    raise FieldError(
        f"spec.disruptionMode: {fields.shown(mode)} is neither single pods nor all together"
    )


def _parent(spec: Json) -> str:
    name = fields.text(spec, "parentCompositePodGroupName", limits.NAME)
    return native_podgroup.composite_name(name) if name else ""


def _preempts(spec: Json) -> bool:
    choices = ("", "PreemptLowerPriority", "Never")
    return (
        fields.choice("spec.preemptionPolicy", fields.text(spec, "preemptionPolicy"), *choices)
        != "Never"
    )


def _condition(status: Json, kind: str) -> tuple[str, str]:
    """The status and the message of the condition; both empty if it was not written yet."""
    for condition in fields.entries(status, "conditions", "status", limits.TASKS):
        if condition.get("type") == kind:
            message = condition.get("message")
            text = message[: limits.TEXT] if isinstance(message, str) else ""
            return fields.text(condition, "status"), text
    return "", ""
