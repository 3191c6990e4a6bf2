"""hcclrank: the rank that Ascend's collective communication library reads from the pod's annotations. Equals RANK
of plugin pytorch, if that is enabled too."""

from dataclasses import dataclass

from central.controllers.job.plugins.plugin_api import PluginObject, no_ranked_task
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json

RANK = "hccl/rankIndex"


@dataclass(frozen=True, slots=True)
class Options:
    master: str = "master"
    worker: str = "worker"


def check(job: JobSpec, options: Options) -> None:
    if job.task(options.master) is None and job.task(options.worker) is None:
        raise no_ranked_task(options.master, options.worker)


def objects(job: JobSpec, options: Options) -> tuple[PluginObject, ...]:
    return ()


def decorate(job: JobSpec, task: TaskSpec, index: int, options: Options, pod: Json) -> Json:
    rank = _rank_variable(pod) or _rank(job, task, index, options)
    if not rank:
        return pod
    meta = pod["metadata"]
    annotations = {**(meta.get("annotations") or {}), RANK: rank}
    return {**pod, "metadata": {**meta, "annotations": annotations}}


def _rank_variable(pod: Json) -> str:
    listed = (one for c in pod["spec"]["containers"] for one in c.get("env") or ())
    return next((str(one.get("value") or "") for one in listed if one.get("name") == "RANK"), "")


def _rank(job: JobSpec, task: TaskSpec, index: int, options: Options) -> str:
    master = job.task(options.master)
    if task.name == options.master:
        return str(index)
    if task.name == options.worker:
        return str((master.replicas if master else 0) + index)
    return ""
