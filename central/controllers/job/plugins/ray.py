"""ray: replaces the commands of the head's and the workers' containers by those that start a Ray cluster, and
creates a Service for the head. Requires svc."""

from dataclasses import dataclass, field

from central.controllers.job.plugins import hosts, pod_edits
from central.controllers.job.plugins.plugin_api import (
    BadArgument,
    PluginObject,
    check_port,
    owned_object,
)
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json


@dataclass(frozen=True, slots=True)
class Options:
    head: str = "head"
    head_container: str = field(default="head", metadata={"flag": "headContainer"})
    worker: str = "worker"
    worker_container: str = field(default="worker", metadata={"flag": "workerContainer"})
    port: int = 6379
    dashboard_port: int = field(default=8265, metadata={"flag": "dashboardPort"})
    client_port: int = field(default=10001, metadata={"flag": "clientPort"})

    @property
    def ports(self) -> dict[str, int]:
        return {
            "gcs": self.port,
            "dashboard": self.dashboard_port,
            "client-server": self.client_port,
        }


def check(job: JobSpec, options: Options) -> None:
    for flag, number in zip(
        ("port", "dashboardPort", "clientPort"), options.ports.values(), strict=True
    ):
        check_port(flag, number)
    head = job.task(options.head)
    if head is None:
        raise BadArgument(f'the job has no task "{options.head}"; set --head=TASK')
    if head.replicas != 1:
        raise BadArgument(f'task "{options.head}" has {head.replicas} pods; it must have one')
    for flag, name, container in (
        ("head", options.head, options.head_container),
        ("worker", options.worker, options.worker_container),
    ):
        task = job.task(name)
        there = [c.get("name") for c in task.template["spec"]["containers"]] if task else []
        if task and container not in there:
            raise BadArgument(
                f'task "{name}" has no container "{container}"; set --{flag}Container=NAME'
            )


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    spec = {
        "type": "ClusterIP",
        "selector": hosts.labels(job) | {hosts.TASK_LABEL: options.head},
        "ports": [
            {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
            for name, port in options.ports.items()
        ],
    }
    return (owned_object(job, "Service", f"{job.name}-head-svc", spec=spec),)


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    head = job.task(options.head)
    if head is None:
        return pod
    if task.name == options.head:
        command = (
            f"ray start --head --block --port={options.port} --dashboard-host=0.0.0.0 "
            f"--dashboard-port={options.dashboard_port} "
            f"--ray-client-server-port={options.client_port}"
        )
        pod = pod_edits.named(pod, options.head_container, _runs(command))
        for name, port in options.ports.items():
            pod = pod_edits.named(pod, options.head_container, pod_edits.port(name, port))
    elif task.name == options.worker:
        command = f"ray start --block --address={hosts.host(job, head, 0)}:{options.port}"
        pod = pod_edits.named(pod, options.worker_container, _runs(command))
    return pod


def _runs(command: str) -> pod_edits.Change:
    def change(container: Json) -> Json:
        rest = {key: value for key, value in container.items() if key != "args"}
        return {**rest, "command": ["sh", "-c", command]}

    return change
