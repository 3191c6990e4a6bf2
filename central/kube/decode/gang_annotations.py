"""Gangs without a PodGroup: what the labels and annotations of pods and of their controllers say, and
which controller a pod belongs to."""

from collections.abc import Sequence
from dataclasses import replace

from central.kube.decode import fields
from central.kube.decode.fields import DECODE_ERRORS, FieldError, FirstError
from central.kube.decode.gang_rules import GangRule
from central.kube.decode.topology_constraints import highest_tier
from central.model import limits, native_podgroup
from central.model.facts import OwnerSeen
from central.model.json_types import Json
from protos import names

# Controllers whose pods join the gang of the controller above them, unless that is one of these kinds.
# All ReplicaSets of a Deployment are one gang, and so are the Jobs of one JobSet or MPIJob. Each Job of a
# CronJob is a gang of its own, and so is a StatefulSet.
INTERMEDIATE = {"ReplicaSet": (), "Job": ("CronJob",)}


def gang_of(
    labels: Json, raw: Json, rules: Sequence[GangRule], errors: FirstError
) -> tuple[str, int | None, str, str]:
    """The gang's name and minimum, as far as the pod itself gives them; the uid and name of the
    controller that may give the rest.

    Since Kubernetes 1.37 the Job controller (gate WorkloadWithJob) puts the pods of every Job into a PodGroup of
    scheduling.k8s.io, of the policy basic unless the Job asks for another. So a Job's pods are in that gang only
    where nothing else names one.
    """
    meta, spec = raw["metadata"], raw["spec"]
    annotations = meta.get("annotations") or {}
    native = bool(spec.get("schedulingGroup"))
    if native and not _is_of_job(meta):
        return errors.read("", _native_gang, labels, annotations, spec), None, "", ""
    for key in names.GROUP_NAMES:
        if key in annotations and (
            group := errors.read("", fields.text, annotations, key, limits.NAME)
        ):
            return group, None, "", ""
    gang = errors.read("", fields.text, labels, names.GANG_LABEL, limits.NAME)
    least = errors.read(None, min_member, labels, annotations)
    if gang:
        return gang, least, "", ""
    uid, name = controller_of(meta)
    if uid and least is None:
        gang = next(filter(None, (rule.gang_of(labels, name) for rule in rules)), "")
    if least is not None and not uid:
        why = f"the pod has no controller, and no label {names.GANG_LABEL}"
        errors.add(FieldError(f"annotation {names.GANG_MIN}: {why}"))
        least = None
    if native and not gang and least is None:
        gang = errors.read("", _native_gang, labels, annotations, spec)
    return gang, least, uid, name


def _is_of_job(meta: Json) -> bool:
    """Returns whether the pod's controller is a Job of Kubernetes, not one of batch.volcano.sh."""
    owners = fields.entries(meta, "ownerReferences", "metadata", limits.OWNERS)
    return any(
        owner.get("controller")
        and (owner.get("apiVersion"), owner.get("kind")) == ("batch/v1", "Job")
        for owner in owners
    )


def _native_gang(labels: Json, annotations: Json, spec: Json) -> str:
    """The gang of a PodGroup of scheduling.k8s.io. Raises FieldError if the pod is in another gang, too."""
    group = fields.mapping(spec, "schedulingGroup", "spec", limits.TASKS)
    name = fields.text(group, "podGroupName", limits.NAME)
    if not name:
        raise FieldError("spec.schedulingGroup.podGroupName: the name of a PodGroup is missing")
    other = next((key for key in names.GROUP_NAMES if annotations.get(key)), "")
    other = f"annotation {other}" if other else ""
    if not other and labels.get(names.GANG_LABEL):
        other = f"label {names.GANG_LABEL}"
    if other:
        why = f"the pod is in a gang by {other}, too; a pod belongs to one gang"
        raise FieldError(f"spec.schedulingGroup: {why}")
    return native_podgroup.gang_name(name)


def min_member(labels: Json, annotations: Json) -> int | None:
    """The minimum of a gang without a PodGroup. Raises FieldError."""
    for key, value in (
        (names.GANG_MIN, annotations.get(names.GANG_MIN, labels.get(names.GANG_MIN))),
        (names.OWNER_MIN, annotations.get(names.OWNER_MIN)),
        (names.ELASTIC_MIN, annotations.get(names.ELASTIC_MIN)),
    ):
        if value is not None:
            return fields.pods_of(f"annotation {key}", value)
    return None


def controller_of(meta: Json) -> tuple[str, str]:
    """The controller's uid, and its name as job/train; both empty if there is none."""
    for owner in fields.entries(meta, "ownerReferences", "metadata", limits.OWNERS):
        if owner.get("controller"):
            kind, name = (fields.text(owner, key, limits.NAME) for key in ("kind", "name"))
            return fields.text(owner, "uid", limits.NAME), f"{kind.lower()}/{name}"
    return "", ""


def decode_owner(kind: str, raw: Json, levels: frozenset[str]) -> OwnerSeen:
    """levels: what topology-required may name."""
    with fields.identifying(kind, raw):
        meta = raw["metadata"]
        _, name, uid = fields.identity(meta, namespaced=False)
        namespace = fields.text(meta, "namespace", limits.NAME)
        if not uid:
            raise KeyError("uid")
        found = OwnerSeen(uid, f"{kind.lower()}/{name}", namespace=namespace)
    try:
        return _owner(raw, kind, levels, found)
    except DECODE_ERRORS as error:
        why = fields.described(error, _owner, raw, kind, levels, found)
        return replace(found, error=fields.shortened(f"{found.name}: {why}"))


def _owner(raw: Json, kind: str, levels: frozenset[str], plain: OwnerSeen) -> OwnerSeen:
    """Raises DECODE_ERRORS."""
    meta = raw["metadata"]
    annotations = meta.get("annotations") or {}
    required = fields.text(annotations, names.TOPOLOGY_REQUIRED)
    if required and required not in levels:
        field = f"annotation {names.TOPOLOGY_REQUIRED}"
        raise FieldError(f'{field}: "{required}" is not a level of the network tree')
    return replace(
        plain,
        above=above(kind, meta),
        gang_min=min_member(meta.get("labels") or {}, annotations),
        queue=fields.text(annotations, names.QUEUE_NAME, limits.NAME),
        topology_required=required,
        required_tier=highest_tier(annotations),
    )


def above(kind: str, meta: Json) -> str:
    """The controller whose gang the pods join instead; "" if they are this controller's gang."""
    if kind not in INTERMEDIATE:
        return ""
    _, name = controller_of(meta)
    return "" if name.startswith(tuple(f"{top.lower()}/" for top in INTERMEDIATE[kind])) else name
