"""tensorflow: TF_CONFIG, which describes the cluster and the pod's role in it. Requires svc."""

import json
from dataclasses import dataclass

from central.controllers.job.plugins import hosts, pod_edits
from central.controllers.job.plugins.plugin_api import BadArgument, PluginObject, check_port
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json
from protos.common.picked import picked


@dataclass(frozen=True, slots=True)
class Options:
    ps: str = "ps"
    worker: str = "worker"
    chief: str = "chief"
    evaluator: str = "evaluator"
    port: int = 2222


def check(job: JobSpec, options: Options) -> None:
    check_port("port", options.port)
    if not _alone(job) and not _roles(job, options):
        raise BadArgument(
            "the job has no task with a known name; set --ps=TASK, --worker=TASK, "
            "--chief=TASK or --evaluator=TASK"
        )


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    roles = _roles(job, options)
    kind = next((role for role, one in roles.items() if one.name == task.name), None)
    if kind is None or _alone(job):
        return pod
    cluster = {
        role: [f"{host}:{options.port}" for host in hosts.for_task(job, one)]
        for role, one in roles.items()
    }
    content = {"cluster": cluster, "task": {"type": kind, "index": index}}
    config = json.dumps(content, separators=(",", ":"))
    pod = pod_edits.containers(pod, pod_edits.env({"TF_CONFIG": config}), init=False)
    return pod_edits.containers(pod, pod_edits.port("tfjob-port", options.port), init=False)


def _roles(job: JobSpec, options: Options) -> dict[str, TaskSpec]:
    wanted = picked(options, "ps worker chief evaluator")
    return {role: one for role, name in wanted.items() if (one := job.task(name)) and one.replicas}


def _alone(job: JobSpec) -> bool:
    """A single pod needs no TF_CONFIG."""
    return len(job.tasks) == 1 and job.tasks[0].replicas == 1
