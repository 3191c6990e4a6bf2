"""hcclrank: the rank that Ascend's communication library reads in the pod's annotations. It is plugin
pytorch's where that is there too."""

from dataclasses import dataclass

from central.controllers.job.plugins.arguments import BadArgument
from central.controllers.job.plugins.plugin_objects import PluginObject
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json

RANK = "hccl/rankIndex"


@dataclass(frozen=True, slots=True)
class Options:
    master: str = "master"
    worker: str = "worker"


def check(job: JobSpec, options: Options) -> None:
    if job.task(options.master) is None and job.task(options.worker) is None:
        raise BadArgument(
            f'the job has neither a task "{options.master}" nor "{options.worker}"; '
            "say --master=TASK and --worker=TASK"
        )


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    rank = _told(pod) or _counted(job, task, index, options)
    if not rank:
        return pod
    meta = pod["metadata"]
    annotations = {**(meta.get("annotations") or {}), RANK: rank}
    return {**pod, "metadata": {**meta, "annotations": annotations}}


def _told(pod: Json) -> str:
    listed = (one for c in pod["spec"]["containers"] for one in c.get("env") or ())
    return next((str(one.get("value") or "") for one in listed if one.get("name") == "RANK"), "")


def _counted(job: JobSpec, task: TaskSpec, index: int, options: Options) -> str:
    master = job.task(options.master)
    if task.name == options.master:
        return str(index)
    if task.name == options.worker:
        return str((master.replicas if master else 0) + index)
    return ""
