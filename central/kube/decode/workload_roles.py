"""The number of pods of each role that start together, from the objects of well-known controllers.

A role counts only if its controller creates its pods before others of the gang run: a minimum that waits for pods
that are created later would never be reached. Pods of later roles start together when they are created."""

from collections.abc import Callable

from central.kube.decode import fields
from central.kube.decode.role_topology import Replicas
from central.model import limits
from central.model.facts import LaterRole
from central.model.json_types import Json

Roles = dict[str, int]
RolesOf = Callable[[Json], Roles]  # of the whole object; raises FieldError
ReplicasOf = Callable[[Json], dict[str, Replicas]]  # by role; the same
LaterOf = Callable[[Json], tuple[LaterRole, ...]]  # the same

_DEPENDS_ON = 16  # entries; JobSet itself takes 5
_EXCLUSIVE = (
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)


def jobset(raw: Json) -> Roles:
    """Pods that run at once, by replicatedJob. In order, only the first one is created; one that depends on others
    is created after them."""
    return {name: size * count for name, size, count, after in _replicated_jobs(raw) if not after}


def jobset_later(raw: Json) -> tuple[LaterRole, ...]:
    """Each replicatedJob that is created after others."""
    jobs = _replicated_jobs(raw)
    return tuple(
        LaterRole(name, size * count, after)
        for name, size, count, after in jobs
        if after and size * count
    )


def _replicated_jobs(raw: Json) -> list[tuple[str, int, int, tuple[str, ...]]]:
    """Returns the name of each, the pods of a Job that run at once, the number of Jobs, and the names of those that it
    is created after."""
    spec = fields.mapping(raw, "spec", "", limits.TASKS)
    order = fields.text(
        fields.mapping(spec, "startupPolicy", "spec", limits.TASKS), "startupPolicyOrder"
    )
    found: list[tuple[str, int, int, tuple[str, ...]]] = []
    for index, job in enumerate(fields.entries(spec, "replicatedJobs", "spec", limits.TASKS)):
        field = f"spec.replicatedJobs[{index}]"
        if order == "InOrder":
            after = tuple(name for name, *_ in found[-1:])
        else:
            needed = fields.entries(job, "dependsOn", field, _DEPENDS_ON)
            after = tuple(fields.text(each, "name", limits.NAME) for each in needed)
        size, count = _pods_of_job(job, field), fields.count(job, "replicas", field, 1)
        found.append((fields.text(job, "name", limits.NAME), size, count, after))
    return found


def jobset_replicas(raw: Json) -> dict[str, Replicas]:
    """Each Job of a replicatedJob."""
    label = "jobset.sigs.k8s.io/job-index"
    return {name: Replicas(size, count, label) for name, size, count, _ in _replicated_jobs(raw)}


def _pods_of_job(job: Json, field: str) -> int:
    inside = fields.mapping(job, "template", field, limits.TASKS).get("spec") or {}
    pods = fields.count(inside, "parallelism", f"{field}.template.spec", 1)
    if inside.get("completions") is None:
        return pods
    return min(pods, fields.count(inside, "completions", f"{field}.template.spec", 1))


def raycluster(raw: Json) -> Roles:
    """The head, and each worker group: all of it, or its minReplicas if Ray's autoscaler decides its size."""
    spec = fields.mapping(raw, "spec", "", limits.TASKS)
    found: Roles = {"headgroup": 1}
    for index, group in enumerate(fields.entries(spec, "workerGroupSpecs", "spec", limits.TASKS)):
        field = f"spec.workerGroupSpecs[{index}]"
        if group.get("suspend"):
            continue
        least = fields.count(group, "minReplicas", field, 0)
        wanted = fields.count(group, "replicas", field, least)
        replicas = least if spec.get("enableInTreeAutoscaling") else max(least, wanted)
        hosts = fields.count(group, "numOfHosts", field, 1)
        found[fields.text(group, "groupName", limits.NAME)] = replicas * hosts
    return found


def leaderworkerset(raw: Json) -> Roles:
    """One replica: the leader with its workers, or alone if it starts before them."""
    return {"": 1 if leader_first(raw) else group_size(raw)}


def leaderworkerset_later(raw: Json) -> tuple[LaterRole, ...]:
    """The workers, if the leader starts before them."""
    workers = group_size(raw) - 1 if leader_first(raw) else 0
    return (LaterRole("", workers),) if workers > 0 else ()


def leader_first(raw: Json) -> bool:
    """Returns whether workers are created after the leader is ready, or has a node (exclusive topology)."""
    spec = fields.mapping(raw, "spec", "", limits.TASKS)
    annotations = fields.mapping(raw["metadata"], "annotations", "metadata", limits.LABELS)
    return fields.text(spec, "startupPolicy") == "LeaderReady" or any(
        map(annotations.get, _EXCLUSIVE)
    )


def group_size(raw: Json) -> int:
    template = fields.mapping(raw["spec"], "leaderWorkerTemplate", "spec", limits.TASKS)
    return fields.count(template, "size", "spec.leaderWorkerTemplate", 1)


def leaderworkerset_replicas(raw: Json) -> dict[str, Replicas]:
    """The subgroups of its subGroupPolicy. A leader beyond equal subgroups is in the first of them, or in none."""
    template = fields.mapping(raw["spec"], "leaderWorkerTemplate", "spec", limits.TASKS)
    policy = fields.mapping(template, "subGroupPolicy", "spec.leaderWorkerTemplate", limits.TASKS)
    size = fields.count(policy, "subGroupSize", "spec.leaderWorkerTemplate.subGroupPolicy", 0)
    if not size:
        return {}
    pods = fields.count(template, "size", "spec.leaderWorkerTemplate", 1)
    return {"": Replicas(size, pods // size, "leaderworkerset.sigs.k8s.io/subgroup-index")}


def mpijob(raw: Json) -> Roles:
    """The launcher counts where it is created with the workers."""
    found = replicas("mpiReplicaSpecs")(raw)
    if raw["spec"].get("launcherCreationPolicy") != "AtStartup":
        found.pop("launcher", None)
    return found


def replicas(key: str) -> RolesOf:
    """Returns a reader for the training operator: spec.KEY has the replicas of each role.
    runPolicy.schedulingPolicy.minAvailable and elasticPolicy.minReplicas lower them."""

    def roles(raw: Json) -> Roles:
        spec = fields.mapping(raw, "spec", "", limits.TASKS)
        policy = (
            fields.mapping(spec, "runPolicy", "spec", limits.TASKS).get("schedulingPolicy") or {}
        )
        if policy.get("minAvailable") is not None:
            return {
                "": fields.integer(policy, "minAvailable", "schedulingPolicy", 0, limits.REPLICAS)
            }
        found = {
            role.lower(): fields.count(part, "replicas", f"spec.{key}.{role}", 1)
            for role, part in fields.mapping(spec, key, "spec", limits.TASKS).items()
        }
        elastic = fields.mapping(spec, "elasticPolicy", "spec", limits.TASKS)
        if "worker" in found and elastic.get("minReplicas") is not None:
            found["worker"] = fields.count(elastic, "minReplicas", "spec.elasticPolicy", 1)
        return found

    return roles
