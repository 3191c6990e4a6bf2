"""mpi: gives the master its workers, as MPI_HOST and as /etc/volcano/hostfile, with a slot for each GPU. Requires
svc and ssh."""

from dataclasses import dataclass

from central.controllers.job.plugins import hosts, pod_edits
from central.controllers.job.plugins.plugin_api import (
    BadArgument,
    PluginObject,
    check_port,
    read_options,
)
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json
from protos.names import GPU, OTHER_GPUS


@dataclass(frozen=True, slots=True)
class Options:
    master: str = "master"
    worker: str = "worker"
    port: int = 22


def check(job: JobSpec, options: Options) -> None:
    check_port("port", options.port)
    for flag, name in (("master", options.master), ("worker", options.worker)):
        if job.task(name) is None:
            raise BadArgument(f'the job has no task "{name}"; set --{flag}=TASK')


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    pod = pod_edits.containers(pod, pod_edits.port("mpijob-port", options.port))
    worker = job.task(options.worker)
    if task.name == options.master and worker:
        pod = pod_edits.containers(
            pod, pod_edits.env({"MPI_HOST": ",".join(hosts.for_task(job, worker))})
        )
    return pod


def files(job: JobSpec) -> dict[str, str]:
    """Files for the ConfigMap of svc."""
    given = dict(job.plugins)["mpi"]
    worker = job.task(read_options(Options, given).worker)
    if worker is None:
        return {}
    amounts = {**dict(worker.requests), **dict(worker.limits)}
    slots = sum(amounts.get(each, 0) for each in (GPU, *OTHER_GPUS)) or 1
    lines = [f"{host} slots={slots}" for host in hosts.for_task(job, worker)]
    return {"hostfile": "\n".join(lines)}
