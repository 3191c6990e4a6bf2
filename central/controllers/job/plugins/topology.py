"""topology: gives each pod its rank and its location, in three steps as they become known.

1. Before placement: the rank, as a variable. Pods of a gang are placed in the order of their ranks, so that
   consecutive ranks are close to each other.
2. At binding: node, rack, block and zone, as annotations of the binding (names.DOMAINS and the levels' own
   keys), which the kubelet turns into variables.
3. At device allocation, by the node's agent: the GPUs, their island and the nearest RDMA NICs (LOCKSTEP_GPUS,
   LOCKSTEP_ISLAND, LOCKSTEP_NEAREST_HCAS; NCCL_IB_HCA for allocated NICs).

Design: docs/design/jobs.md
"""

from dataclasses import dataclass

from central.controllers.job.plugins import pod_edits
from central.controllers.job.plugins.plugin_api import BadArgument, PluginObject
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json
from protos import names

_PLACES = {
    "LOCKSTEP_NODE": "spec.nodeName",
    "LOCKSTEP_RACK": f"metadata.annotations['{names.RACK}']",
    "LOCKSTEP_BLOCK": f"metadata.annotations['{names.BLOCK}']",
    "LOCKSTEP_ZONE": f"metadata.annotations['{names.ZONE}']",
    "LOCKSTEP_DOMAINS": f"metadata.annotations['{names.DOMAINS}']",
}


@dataclass(frozen=True, slots=True)
class Options:
    tasks: str = ""  # comma-separated, in the order of ranks; empty: the tasks with GPUs
    rdma: int = 0  # lockstep.dev/rdma of each container with GPUs
    interface: str = ""  # network interface for the sockets of NCCL and Gloo


def check(job: JobSpec, options: Options) -> None:
    for name in filter(None, options.tasks.split(",")):
        if job.task(name) is None:
            raise BadArgument(f'--tasks: the job has no task "{name}"')


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    ranked = _ranked(job, options)
    variables = {}
    is_elastic = job.elastic is not None and job.elastic.task in {one.name for one in ranked}
    if task in ranked and not is_elastic:  # their ranks and number change while the pod runs
        before = ranked[: ranked.index(task)]
        variables["LOCKSTEP_RANK"] = str(sum(one.replicas for one in before) + index)
        variables["LOCKSTEP_WORLD_SIZE"] = str(sum(one.replicas for one in ranked))
    if options.interface:
        variables |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), options.interface)
    places = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _PLACES.items()
    ]
    pod = pod_edits.containers(pod, pod_edits.entries(places))
    pod = pod_edits.containers(pod, pod_edits.env(variables))
    return pod_edits.containers(pod, _nics(options.rdma)) if options.rdma else pod


def _ranked(job: JobSpec, options: Options) -> list[TaskSpec]:
    wanted = [job.task(name) for name in options.tasks.split(",") if name]
    named = [one for one in wanted if one]
    return named or [one for one in job.tasks if _has_gpus(one)] or list(job.tasks)


def _has_gpus(task: TaskSpec) -> bool:
    return any(name == names.GPU for name, _ in (*task.limits, *task.requests))


def _nics(shares: int) -> pod_edits.Change:
    def change(container: Json) -> Json:
        given = container.get("resources") or {}
        limits = given.get("limits") or {}
        if names.GPU not in limits or names.RDMA in limits:
            return container
        more = {**limits, names.RDMA: str(shares)}
        return {**container, "resources": {**given, "limits": more}}

    return change
