"""Rules for gangs of controllers: the objects that make their pods a gang, and the pods' labels with the gang's name.
A table of well-known controllers, and declarations of others (--pod-groups FILE).

Design: docs/design/gangs.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from central.kube.decode import elastic_parts, fields, workload_roles
from central.kube.decode.elastic_parts import ElasticPart
from central.kube.decode.fields import FieldError, FirstError
from central.kube.decode.quantities import parse_time
from central.kube.decode.role_topology import EACH, Replicas, role_subgroups
from central.kube.decode.topology_constraints import TopologyConstraints, placement_policy
from central.kube.decode.workload_roles import LaterOf, ReplicasOf, Roles, RolesOf
from central.kube.resource_paths import JOBSET, LEADER_WORKER_SET, RAY_CLUSTER, ResourcePath
from central.model import limits
from central.model.facts import GangGone, GangSeen, LaterRole, SubGroups
from central.model.json_types import Json
from protos import names

_DECLARED = ("apiVersion", "kind", "plural", "labels", "role", "minimum", "roles")
RULES_MOST = 32  # each is a watch, and a lookup for each pod


@dataclass(frozen=True, slots=True)
class GangRule:
    resource: ResourcePath
    labels: tuple[str, ...]  # of pods: the object's name, then the index of a replica
    roles: RolesOf
    role: tuple[str, ...] = ()  # labels of pods; the first that a pod has
    owners: tuple[str, ...] = ()  # kinds of the pods' own controllers; empty: any
    replicas: ReplicasOf = lambda _: {}
    later: LaterOf = lambda _: ()

    @property
    def each_replica(self) -> bool:
        return len(self.labels) > 1

    def gang_of(self, labels: Mapping[str, Any], owner: str) -> str:
        """The gang of a pod with these labels and this controller (job/train-0); empty: none of this rule's."""
        if self.owners and owner.partition("/")[0] not in self.owners:
            return ""
        parts = [labels.get(key) for key in self.labels]
        if not all(parts):
            return ""
        return "/".join((self.resource.kind.lower(), *map(str, parts)))


def _rule(
    path: ResourcePath,
    labels: Sequence[str],
    *,
    roles: RolesOf,
    role: tuple[str, ...] = (),
    owners: tuple[str, ...] = (),
    replicas: ReplicasOf = lambda _: {},
    later: LaterOf = lambda _: (),
) -> GangRule:
    owners = owners or (path.kind.lower(),)
    return GangRule(path, tuple(labels), roles, role, owners, replicas, later)


def _kubeflow(version: str, kind: str) -> ResourcePath:
    return ResourcePath("kubeflow.org", version, kind, f"{kind.lower()}s")


_TRAINING = "training.kubeflow.org"
_TRAINING_JOBS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
WELL_KNOWN: tuple[GangRule, ...] = (
    _rule(
        JOBSET,
        ["jobset.sigs.k8s.io/jobset-name"],
        roles=workload_roles.jobset,
        replicas=workload_roles.jobset_replicas,
        later=workload_roles.jobset_later,
        role=("jobset.sigs.k8s.io/replicatedjob-name",),
        owners=("job",),
    ),
    _rule(
        LEADER_WORKER_SET,
        ["leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"],
        roles=workload_roles.leaderworkerset,
        replicas=workload_roles.leaderworkerset_replicas,
        later=workload_roles.leaderworkerset_later,
        owners=("statefulset",),
    ),
    _rule(RAY_CLUSTER, ["ray.io/cluster"], roles=workload_roles.raycluster, role=("ray.io/group",)),
    _rule(
        _kubeflow("v2beta1", "MPIJob"),  # v1 where the training operator is installed
        [f"{_TRAINING}/job-name"],
        roles=workload_roles.mpijob,
        role=(f"{_TRAINING}/job-role", f"{_TRAINING}/replica-type"),
        owners=("mpijob", "job"),  # the launcher is a Job
    ),
    *(
        _rule(
            _kubeflow("v1", kind),
            [f"{_TRAINING}/job-name"],
            roles=workload_roles.replicas(key),
            role=(f"{_TRAINING}/replica-type",),
        )
        for kind, key in _TRAINING_JOBS.items()
    ),
)


def decode_object(rule: GangRule, raw: Json, topology: TopologyConstraints) -> GangSeen:
    """The gang of the object's pods, or of those of each replica. Raises MalformedObject."""
    kind = rule.resource.kind
    with fields.identifying(kind, raw):
        namespace, name, _ = fields.identity(raw["metadata"])
        gang = f"{kind.lower()}/{name}"
        seen = GangSeen(namespace, gang, 1, queue="", declared=True, each_replica=rule.each_replica)
    return fields.or_error(seen, _gang, rule, raw, seen, topology)


def object_gone(rule: GangRule, raw: Json) -> GangGone:
    meta = raw["metadata"]
    return GangGone(meta["namespace"], f"{rule.resource.kind.lower()}/{meta['name']}")


def _gang(rule: GangRule, raw: Json, seen: GangSeen, topology: TopologyConstraints) -> GangSeen:
    meta = raw["metadata"]
    annotations = meta.get("annotations") or {}
    errors = FirstError()
    roles: Roles = errors.read({}, _roles, rule, raw)
    later: tuple[LaterRole, ...] = errors.read((), rule.later, raw)
    elastic = None if errors.message else elastic_parts.valid(rule.resource.kind, raw)
    if elastic is not None:
        roles, later = _with_least(roles, later, elastic)
    required, preferred = errors.read(("", ""), topology.from_annotations, annotations)
    subgroups: tuple[SubGroups, ...] = ()
    if elastic is not None and rule.each_replica:
        seen = replace(seen, each_replica=False)
        subgroups = _groups(rule, elastic, required)
        required = ""
    elif names.ROLE_TOPOLOGY in annotations and not errors.message:
        starting = (roles, later, _replicas(rule, raw, elastic))
        subgroups = errors.read((), _role_subgroups, rule, raw, starting, topology)
    pods = sum(roles.values())
    for count in (pods, sum(each.least for each in later)):
        if count > limits.REPLICAS:
            why = f"{count} pods start together; at most {limits.REPLICAS} are accepted"
            errors.add(FieldError(f"{rule.resource.kind}: {why}"))
    return replace(
        seen,
        min_member=min(max(pods, 1), limits.REPLICAS),
        task_min=tuple(sorted((role, least) for role, least in roles.items() if role and least))
        if rule.role
        else (),
        later=later if not errors.message else (),
        queue=errors.read("", fields.text, annotations, names.QUEUE_NAME, limits.NAME),
        topology_required=required,
        topology_preferred=preferred,
        placement=errors.read("", placement_policy, annotations),
        subgroups=subgroups,
        created=parse_time(meta.get("creationTimestamp")),
        error=errors.message,
    )


def _with_least(
    roles: Roles, later: Sequence[LaterRole], elastic: ElasticPart
) -> tuple[Roles, tuple[LaterRole, ...]]:
    """Sets the least size of the role whose number of pods varies."""
    role, least = elastic.role, elastic.least
    if role in roles:
        roles = {**roles, role: least}
    return roles, tuple(replace(each, least=least) if each.role == role else each for each in later)


def _groups(rule: GangRule, elastic: ElasticPart, required: str) -> tuple[SubGroups, ...]:
    """An object whose replicas come and go is one gang. What is required of each replica is so of its subgroups."""
    if not required:
        return ()
    return (SubGroups(EACH, elastic.unit, elastic.sizes.least, (), rule.labels[1:], required),)


def _replicas(rule: GangRule, raw: Json, elastic: ElasticPart | None) -> dict[str, Replicas]:
    found = rule.replicas(raw)
    if elastic is not None and elastic.role in found:
        found[elastic.role] = found[elastic.role]._replace(size=elastic.sizes.least)
    return found


def _roles(rule: GangRule, raw: Json) -> Roles:
    """Raises FieldError."""
    roles = rule.roles(raw)
    if long := next((role for role in roles if len(role) > limits.NAME), ""):
        raise FieldError(
            fields.too_long(f"{rule.resource.kind}: the name of a role", long, limits.NAME)
        )
    return roles


def _role_subgroups(
    rule: GangRule,
    raw: Json,
    starting: tuple[Roles, Sequence[LaterRole], Mapping[str, Replicas]],
    topology: TopologyConstraints,
) -> tuple[SubGroups, ...]:
    """Returns the subgroups. A gang can start without subgroups of roles that start later."""
    roles, later, replicas = starting
    annotations, label = raw["metadata"]["annotations"], next(iter(rule.role), "")
    come_later = {each.role: each.least for each in later if each.role}
    found = role_subgroups(annotations, roles | come_later, replicas, label, topology.levels)
    return tuple(replace(each, least=0) if each.name in come_later else each for each in found)


# --- declarations of other kinds ---------------------------------------------


def read_declarations(raw: Any) -> tuple[GangRule, ...]:
    """The rules of a file. Raises FieldError."""
    if not isinstance(raw, dict):
        raise FieldError("podGroups: missing")
    found = fields.entries(fields.known(raw, "file", ("podGroups",)), "podGroups", "", RULES_MOST)
    return tuple(_declaration(each, f"podGroups[{i}]") for i, each in enumerate(found))


def _declaration(raw: Any, field: str) -> GangRule:
    raw = fields.known(raw, field, _DECLARED)
    version, kind = _required(raw, "apiVersion", field), _required(raw, "kind", field)
    group, _, version = version.rpartition("/")
    labels = fields.strings(raw, "labels", field, 2)
    if not labels or not all(labels):
        raise FieldError(f"{field}.labels: one or two label keys of pods are required")
    plural = fields.text(raw, "plural", limits.NAME) or f"{kind.lower()}s"
    return GangRule(
        ResourcePath(group, version, kind, plural),
        labels,
        _roles_of(raw, field),
        tuple(filter(None, [fields.text(raw, "role", limits.NAME)])),
    )


def _roles_of(raw: Json, field: str) -> RolesOf:
    least: Any = raw.get("minimum")
    roles = fields.mapping(raw, "roles", field, limits.TASKS)
    if (least is None) == (not roles):
        raise FieldError(f"{field}: exactly one of minimum and roles is required")
    if roles:
        fields.known(roles, f"{field}.roles", ("path", "name", "count"))
        path = _required(roles, "path", f"{field}.roles")
        return _Listed(
            path, fields.text(roles, "name"), _required(roles, "count", f"{field}.roles")
        )
    if type(least) is int:
        fixed = fields.integer(raw, "minimum", field, 1, limits.REPLICAS)
        return lambda _: {"": fixed}
    if not isinstance(least, str) or not least:
        raise FieldError(f"{field}.minimum: {fields.shown(least)} is neither a number nor a path")
    parent, _, key = least.rpartition(".")
    return lambda found: {"": fields.count(_at(found, parent), key, parent, 1)}


@dataclass(frozen=True, slots=True)
class _Listed:
    """Roles at a path of the object: a list with their names at `name`, or a map by name if that is empty."""

    path: str
    name: str
    count: str

    def __call__(self, raw: Json) -> Roles:
        parts = _at(raw, self.path) or {}
        if self.name:
            if not isinstance(parts, list) or len(parts) > limits.TASKS:
                raise FieldError(f"{self.path}: not a list of at most {limits.TASKS} roles")
            named = [(fields.text(each, self.name, limits.NAME), each) for each in parts]
        else:
            if not isinstance(parts, dict) or len(parts) > limits.TASKS:
                raise FieldError(f"{self.path}: not a map of at most {limits.TASKS} roles")
            named = list(parts.items())
        return {role: fields.count(each, self.count, self.path, 1) for role, each in named}


def _at(raw: Any, path: str) -> Any:
    """Returns the value at the path, such as spec.groups; None if a part is missing. Raises FieldError."""
    for key in path.split(".") if path else ():
        if raw is None:
            return None
        if not isinstance(raw, dict):
            raise FieldError(f"{path}: {fields.shown(raw)} is not an object")
        raw = raw.get(key)
    return raw


def _required(raw: Json, key: str, field: str) -> str:
    found = fields.text(raw, key, limits.NAME)
    if not found:
        raise FieldError(f"{field}.{key}: missing")
    return found
