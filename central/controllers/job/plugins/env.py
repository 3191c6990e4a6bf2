"""env: gives each pod its index in its task."""

from dataclasses import dataclass

from central.controllers.job.plugins import pod_edits
from central.controllers.job.plugins.plugin_api import PluginObject
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json


@dataclass(frozen=True, slots=True)
class Options:
    pass


def check(job: JobSpec, options: Options) -> None:
    pass


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    return pod_edits.containers(
        pod, pod_edits.env({"VK_TASK_INDEX": str(index), "VC_TASK_INDEX": str(index)})
    )
