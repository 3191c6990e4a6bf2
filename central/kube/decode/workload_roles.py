"""How many pods of which role start together, as the objects of well-known controllers say.

A role counts only if its controller creates its pods before others of the gang run: a minimum that waits for
pods that are created later would never be reached."""

from collections.abc import Callable
from typing import Any

from central.kube.decode.fields import FieldError, int_field, list_field, map_field, text_field
from central.model import limits
from central.model.json_types import Json

Roles = dict[str, int]
RolesOf = Callable[[Json], Roles]  # of the whole object; raises FieldError

_EXCLUSIVE = (
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)


def jobset(raw: Json) -> Roles:
    """Pods that run at once, by replicatedJob. In order, only the first one is created; one that depends on others
    is created after them."""
    spec = map_field(raw, "spec", "", limits.TASKS)
    jobs = list_field(spec, "replicatedJobs", "spec", limits.TASKS)
    order = text_field(map_field(spec, "startupPolicy", "spec", limits.TASKS), "startupPolicyOrder")
    found: Roles = {}
    for index, job in enumerate(jobs[:1] if order == "InOrder" else jobs):
        field = f"spec.replicatedJobs[{index}]"
        if list_field(job, "dependsOn", field, limits.TASKS):
            continue
        inside = map_field(job, "template", field, limits.TASKS).get("spec") or {}
        pods = _count(inside, "parallelism", f"{field}.template.spec", 1)
        if inside.get("completions") is not None:
            pods = min(pods, _count(inside, "completions", f"{field}.template.spec", 1))
        name = text_field(job, "name", limits.NAME)
        found[name] = _count(job, "replicas", field, 1) * pods
    return found


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
    """One replica: the leader with its workers. The leader alone if the workers are created after it is ready, or
    after it has a node (exclusive topology)."""
    spec = map_field(raw, "spec", "", limits.TASKS)
    annotations = map_field(raw["metadata"], "annotations", "metadata", limits.LABELS)
    if text_field(spec, "startupPolicy") == "LeaderReady" or any(map(annotations.get, _EXCLUSIVE)):
        return {"": 1}
    template = map_field(spec, "leaderWorkerTemplate", "spec", limits.TASKS)
    return {"": _count(template, "size", "spec.leaderWorkerTemplate", 1)}


def mpijob(raw: Json) -> Roles:
    """The launcher counts where it is created with the workers."""
    found = replicas("mpiReplicaSpecs")(raw)
    if raw["spec"].get("launcherCreationPolicy") != "AtStartup":
        found.pop("launcher", None)
    return found


def replicas(key: str) -> RolesOf:
    """Of the training operator: spec.KEY has the replicas of each role. runPolicy.schedulingPolicy.minAvailable and
    elasticPolicy.minReplicas lower them."""

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
