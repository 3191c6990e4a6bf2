"""pytorch: the variables of torch.distributed (MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK), and torchrun's options
(PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, ...), with one process for each GPU of the container. Without a master
task, the first worker is the master. Requires svc."""

from dataclasses import dataclass

from central.controllers.job.plugins import hosts, pod_edits, torchrun_env
from central.controllers.job.plugins.plugin_api import PluginObject, check_port, no_ranked_task
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json


@dataclass(frozen=True, slots=True)
class Options:
    master: str = "master"
    worker: str = "worker"
    port: int = 23456
    wait_master_enabled: bool = False
    wait_master_timeout: int = 300
    wait_master_image: str = "busybox:1.36.1"


def check(job: JobSpec, options: Options) -> None:
    check_port("port", options.port)
    if not _ranked(job, options):
        raise no_ranked_task(options.master, options.worker)


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    ranked = _ranked(job, options)
    names = [one.name for one in ranked]
    if task.name not in names:
        return pod
    master = hosts.host(job, ranked[0], 0)
    place = names.index(task.name)
    rank = sum(one.replicas for one in ranked[:place]) + index
    variables = {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(options.port),
        "WORLD_SIZE": str(sum(one.replicas for one in ranked)),
        "RANK": str(rank),
    }
    torchrun = {
        "PET_NNODES": variables["WORLD_SIZE"],
        "PET_NODE_RANK": variables["RANK"],
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": variables["MASTER_PORT"],
    }
    pod = pod_edits.containers(pod, pod_edits.env(variables))
    pod = pod_edits.containers(pod, torchrun_env.options(torchrun), init=False)
    pod = pod_edits.containers(pod, pod_edits.port("pytorchjob-port", options.port), init=False)
    if options.wait_master_enabled and rank:
        waiting = _wait(master, options)
        there = pod["spec"].get("initContainers") or []
        pod = pod_edits.spec(pod, initContainers=[waiting, *there])
    return pod


def _ranked(job: JobSpec, options: Options) -> list[TaskSpec]:
    """The tasks that have ranks, the master's first."""
    names = dict.fromkeys((options.master, options.worker))
    return [one for name in names if (one := job.task(name)) and one.replicas]


def _wait(master: str, options: Options) -> Json:
    script = (
        f"for i in $(seq {options.wait_master_timeout}); do "
        f"nc -z -w 1 {master} {options.port} && exit 0; sleep 1; done; "
        f'echo "no master at {master}:{options.port} for {options.wait_master_timeout} s"; exit 1'
    )
    command = ["sh", "-c", script]
    return {"name": "wait-for-master", "image": options.wait_master_image, "command": command}
