"""env: each pod learns its number in its task."""

from dataclasses import dataclass

from central.core.jobs.plugins import pods
from central.core.jobs.plugins.objects import Object
from central.core.jobs.plugins.pods import Json
from central.core.jobs.spec import JobSpec, TaskSpec


@dataclass(frozen=True, slots=True)
class Options:
    pass


def check(job: JobSpec, options: Options) -> None:
    pass


def objects(job: JobSpec, options: Options) -> tuple[Object, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    return pods.containers(
        pod, pods.env({"VK_TASK_INDEX": str(index), "VC_TASK_INDEX": str(index)})
    )
