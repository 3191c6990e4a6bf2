"""topology: each pod learns its rank and where it is.

What is known when decides who tells. Its rank is known before it has a place: members of a gang take
seats in the order of their ranks, so that ranks in order are close to each other. Where it is, is
known once it is bound: the binding carries it as annotations (names.DOMAINS and the levels' own
keys), and the kubelet makes variables of them. Which GPUs, their island and the network cards
nearest to them is the agent's to tell, when it gives them (LOCKSTEP_GPUS, LOCKSTEP_ISLAND,
LOCKSTEP_NEAREST_HCAS; NCCL_IB_HCA for cards that the pod was given).
"""

from dataclasses import dataclass

from central.controllers.job.plugins import pod_edits
from central.controllers.job.plugins.arguments import BadArgument
from central.controllers.job.plugins.plugin_objects import PluginObject
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
    tasks: str = ""  # that are ranked, in this order, with commas between; none: those with GPUs
    rdma: int = 0  # shares of network cards for each container with GPUs
    interface: str = ""  # for NCCL's and Gloo's sockets


def check(job: JobSpec, options: Options) -> None:
    for name in filter(None, options.tasks.split(",")):
        if job.task(name) is None:
            raise BadArgument(f'--tasks: the job has no task "{name}"')


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    ranked = _ranked(job, options)
    variables = {}
    if task in ranked:
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
    return pod_edits.containers(pod, _cards(options.rdma)) if options.rdma else pod


def _ranked(job: JobSpec, options: Options) -> list[TaskSpec]:
    wanted = [job.task(name) for name in options.tasks.split(",") if name]
    named = [one for one in wanted if one]
    return named or [one for one in job.tasks if _has_gpus(one)] or list(job.tasks)


def _has_gpus(task: TaskSpec) -> bool:
    return any(name == names.GPU for name, _ in (*task.limits, *task.requests))


def _cards(shares: int) -> pod_edits.Change:
    def change(container: Json) -> Json:
        given = container.get("resources") or {}
        limits = given.get("limits") or {}
        if names.GPU not in limits or names.RDMA in limits:
            return container
        more = {**limits, names.RDMA: str(shares)}
        return {**container, "resources": {**given, "limits": more}}

    return change
