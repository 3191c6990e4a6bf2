"""The number of pods of each role that start together, from the objects of well-known controllers.

A role counts only if its controller creates its pods before others of the gang run: a minimum that waits for pods
that are created later would never be reached. Pods of later roles start together when they are created."""

from collections.abc import Callable
from typing import Any

from central.kube.decode.fields import FieldError, int_field, list_field, map_field, text_field
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
    return {name: pods for name, pods, after in _replicated_jobs(raw) if not after}


def jobset_later(raw: Json) -> tuple[LaterRole, ...]:
    """Each replicatedJob that is created after others."""
    jobs = _replicated_jobs(raw)
    return tuple(LaterRole(name, pods, after) for name, pods, after in jobs if after and pods)


def _replicated_jobs(raw: Json) -> list[tuple[str, int, tuple[str, ...]]]:
    """Name, pods that run at once, and the names of those that it is created after."""
    spec = map_field(raw, "spec", "", limits.TASKS)
    order = text_field(map_field(spec, "startupPolicy", "spec", limits.TASKS), "startupPolicyOrder")
    found: list[tuple[str, int, tuple[str, ...]]] = []
    for index, job in enumerate(list_field(spec, "replicatedJobs", "spec", limits.TASKS)):
        field = f"spec.replicatedJobs[{index}]"
        if order == "InOrder":
            after = tuple(name for name, _, _ in found[-1:])
        else:
            needed = list_field(job, "dependsOn", field, _DEPENDS_ON)
            after = tuple(text_field(each, "name", limits.NAME) for each in needed)
        pods = _count(job, "replicas", field, 1) * _pods_of_job(job, field)
        found.append((text_field(job, "name", limits.NAME), pods, after))
    return found


def jobset_replicas(raw: Json) -> dict[str, Replicas]:
    """Each Job of a replicatedJob."""
    found = {}
    for index, job in enumerate(list_field(raw["spec"], "replicatedJobs", "spec", limits.TASKS)):
        field = f"spec.replicatedJobs[{index}]"
        size, count = _pods_of_job(job, field), _count(job, "replicas", field, 1)
        name = text_field(job, "name", limits.NAME)
        found[name] = Replicas(size, count, "jobset.sigs.k8s.io/job-index")
    return found


def _pods_of_job(job: Json, field: str) -> int:
    inside = map_field(job, "template", field, limits.TASKS).get("spec") or {}
    pods = _count(inside, "parallelism", f"{field}.template.spec", 1)
    if inside.get("completions") is None:
        return pods
    return min(pods, _count(inside, "completions", f"{field}.template.spec", 1))


def raycluster(raw: Json) -> Roles:
    """The head, and each worker group: all of it, or its minReplicas if Ray's autoscaler decides its size."""
    spec = map_field(raw, "spec", "", limits.TASKS)
    found: Roles = {"headgroup": 1}
    for index, group in enumerate(list_field(spec, "workerGroupSpecs", "spec", limits.TASKS)):
        field = f"spec.workerGroupSpecs[{index}]"
        if group.get("suspend"):
            continue
        least = _count(group, "minReplicas", field, 0)
        wanted = _count(group, "replicas", field, least)
        replicas = least if spec.get("enableInTreeAutoscaling") else max(least, wanted)
        hosts = _count(group, "numOfHosts", field, 1)
        found[text_field(group, "groupName", limits.NAME)] = replicas * hosts
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
    spec = map_field(raw, "spec", "", limits.TASKS)
    annotations = map_field(raw["metadata"], "annotations", "metadata", limits.LABELS)
    return text_field(spec, "startupPolicy") == "LeaderReady" or any(
        map(annotations.get, _EXCLUSIVE)
    )


def group_size(raw: Json) -> int:
    template = map_field(raw["spec"], "leaderWorkerTemplate", "spec", limits.TASKS)
    return _count(template, "size", "spec.leaderWorkerTemplate", 1)


def leaderworkerset_replicas(raw: Json) -> dict[str, Replicas]:
    """The subgroups of its subGroupPolicy. A leader beyond equal subgroups is in the first of them, or in none."""
    template = map_field(raw["spec"], "leaderWorkerTemplate", "spec", limits.TASKS)
    policy = map_field(template, "subGroupPolicy", "spec.leaderWorkerTemplate", limits.TASKS)
    size = _count(policy, "subGroupSize", "spec.leaderWorkerTemplate.subGroupPolicy", 0)
    if not size:
        return {}
    pods = _count(template, "size", "spec.leaderWorkerTemplate", 1)
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
        spec = map_field(raw, "spec", "", limits.TASKS)
        policy = map_field(spec, "runPolicy", "spec", limits.TASKS).get("schedulingPolicy") or {}
        if policy.get("minAvailable") is not None:
            return {"": int_field(policy, "minAvailable", "schedulingPolicy", 0, limits.REPLICAS)}
        found = {
            role.lower(): _count(part, "replicas", f"spec.{key}.{role}", 1)
            for role, part in map_field(spec, key, "spec", limits.TASKS).items()
        }
        elastic = map_field(spec, "elasticPolicy", "spec", limits.TASKS)
        if "worker" in found and elastic.get("minReplicas") is not None:
            found["worker"] = _count(elastic, "minReplicas", "spec.elasticPolicy", 1)
        return found

    return roles


def _count(part: Any, key: str, field: str, default: int) -> int:
    if not isinstance(part, dict):
        raise FieldError(f"{field}: not an object")
    if part.get(key) is None:
        return default
    return int_field(part, key, field, 0, limits.REPLICAS)
