"""Warnings about a Job before it is created: a queue or PriorityClass that does not exist, a level that no node has,
a request that no node and no queue can meet. Only objects that the user may see are compared, and a warning stops
nothing."""

from collections.abc import Iterator
from typing import Any

from central.cli.exit_codes import CannotDo
from central.cli.jobs.api import Api
from central.kube.resource_paths import BY_KIND, ResourcePath
from central.model.json_types import Json
from central.model.resources import DEFAULT
from central.model.wording import NEVER
from protos.common.near_names import did_you_mean
from protos.names import GPU, NODE, PARTS_OF_NODE, TOPOLOGY_REQUIRED

WITHIN_NODE = (NODE, *PARTS_OF_NODE)


def warnings(api: Api, job: Json) -> Iterator[str]:
    """Sentences about the Job as the cluster is now."""
    spec = job.get("spec") or {}
    name, queue = spec.get("priorityClassName") or "", spec.get("queue") or DEFAULT
    if name and (why := _missing(api, BY_KIND["PriorityClass"], name)):
        yield why
    listed = _all(api, BY_KIND["Queue"])
    queues = {each["metadata"]["name"]: each for each in listed or ()}
    if listed is not None and queue not in (*queues, DEFAULT):
        yield f"queue {queue} does not exist{did_you_mean(queue, queues)}; the job waits for it"
    given = [task for task in spec.get("tasks") or () if isinstance(task, dict)]
    tasks = [task for task in given if task.get("replicas") != 0]
    each = [_gpus(task) for task in tasks]
    nodes = _all(api, BY_KIND["Node"]) or []
    yield from _level(
        str((job["metadata"].get("annotations") or {}).get(TOPOLOGY_REQUIRED, "")), nodes
    )
    most = [_whole((n.get("status") or {}).get("allocatable")) for n in nodes]
    if most and each and max(each) > max(most):
        yield f"{NEVER}: no node has {max(each)} GPUs, the most is {max(most)}"
    capability = ((queues.get(queue) or {}).get("spec") or {}).get("capability") or {}
    needed = _needed(spec, tasks, each)
    if GPU in capability and needed > _whole(capability):
        yield f"{NEVER}: queue {queue} has a capability of {capability[GPU]} GPUs; {needed} are needed"


def _needed(spec: Json, tasks: list[Json], each: list[int]) -> int:
    """The fewest GPUs with which the Job starts: those of its minAvailable pods that ask for least."""
    pods = sorted(
        gpus
        for task, gpus in zip(tasks, each, strict=True)
        for _ in range(min(int(task.get("replicas") or 1), 10_000))
    )
    return sum(pods[: int(spec.get("minAvailable") or len(pods))])


def _gpus(task: Json) -> int:
    pod = ((task.get("template") or {}).get("spec")) or {}
    return sum(
        _whole((c.get("resources") or {}).get("limits")) for c in pod.get("containers") or ()
    )


def _whole(amounts: Any) -> int:
    text = str((amounts or {}).get(GPU, 0))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _missing(api: Api, kind: ResourcePath, name: str) -> str:
    listed = _all(api, kind)
    if listed is None:
        return ""
    known = {each["metadata"]["name"] for each in listed}
    if name in known:
        return ""
    return (
        f"{kind.kind} {name} does not exist{did_you_mean(name, known)}; the pods cannot be created"
    )


def _level(level: str, nodes: list[Json]) -> Iterator[str]:
    keys = {key for node in nodes for key in node["metadata"].get("labels") or {}}
    if not nodes or level in ("", *WITHIN_NODE, *keys):
        return
    same = sorted(key for key in keys if key.rpartition("/")[2] == level)
    near = f"; did you mean {same[0]}?" if same else did_you_mean(level, {*keys, *WITHIN_NODE})
    yield f"{NEVER}: no node has label {level}{near}"


def _all(api: Api, kind: ResourcePath) -> list[Json] | None:
    """Returns all objects of the kind; None if the user may not list them."""
    try:
        return api.all(kind)
    except CannotDo:
        return None
