"""The rows of `lockstep job list`: what each job has, where it is, since when, and why it waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from central.cli.exit_codes import CannotDo
from central.cli.jobs.api import GROUPS, PODS, Api
from central.cli.terminal_table import Cell, Row, age, clock, columns, moment, span
from central.kube.decode.effective_requests import requests_of
from central.kube.decode.fields import FieldError
from central.kube.resource_paths import ResourcePath
from central.model import past_turns
from central.model.json_types import Json
from central.model.resources import GPU_UNITS
from central.scheduler.queues.gpu_currency import GpuCurrency
from protos.names import USER

JOB_TYPE = "volcano.sh/job-type"
JOB_NAME = "volcano.sh/job-name"
ENDED = ("Completed", "Failed", "Aborted", "Terminated")
NODES_SHOWN = 2
CLAUSES_SHOWN = 2  # of a reason; `lockstep job view` has all
COLUMNS = columns(
    "Name, Queue, ~State, #GPUs, #Pods, Where, Time, +Busy, +User, +Type, +#Min, +#Pending, "
    "+#Succeeded, +#Failed, +#Retries, +Size, +Created, Why"
)

Key = tuple[str, str]  # namespace, name


def rows(
    api: Api, jobs: Sequence[Json], *, everywhere: bool, uses: Mapping[Key, Json]
) -> list[Row]:
    """Asks for the pods and PodGroups of the jobs; without the right to list them their columns say less. uses: by
    gang, of those whose utilization the scheduler knows."""
    query = {"labelSelector": JOB_NAME}
    names: list[dict[str, str]] = [{}]
    if len(jobs) == 1:  # as for each change of a watch
        query["labelSelector"] += f"={jobs[0]['metadata']['name']}"
        names = [{"fieldSelector": f"metadata.name={name}"} for name in _group_names(jobs[0])]
    found = [one for each in names for one in _allowed(api, GROUPS, everywhere=everywhere, **each)]
    by_name = {_key(group): group for group in found}
    groups = {_key(job): next(filter(None, _named(by_name, job)), None) for job in jobs}
    nodes: dict[Key, set[str]] = {}
    for pod in _allowed(api, PODS, everywhere=everywhere, **query):
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            meta = pod["metadata"]
            key = (meta["namespace"], str((meta.get("labels") or {}).get(JOB_NAME)))
            nodes.setdefault(key, set()).add((pod.get("spec") or {}).get("nodeName") or "")
    busy = {
        _key(job): next(
            filter(None, (uses.get((_key(job)[0], g)) for g in _group_names(job))), None
        )
        for job in jobs
    }
    return [
        _row(job, groups[_key(job)], nodes.get(_key(job), set()) - {""}, busy[_key(job)])
        for job in jobs
    ]


def busy_text(use: Json | None) -> str:
    """Returns the utilization of a running gang's GPUs, and for how long all of them have been idle."""
    if use is None or use["utilization"] is None:
        return "-"
    idle_s = use["idle_s"]
    return f"{use['utilization']:.0%}" + (f", idle {span(idle_s)}" if idle_s is not None else "")


def group_of(api: Api, job: Json) -> Json | None:
    return next(filter(None, (api.find(GROUPS, name) for name in _group_names(job))), None)


def _group_names(job: Json) -> tuple[str, str]:
    """The job's PodGroup: named NAME-UID, or NAME as in older versions."""
    name = job["metadata"]["name"]
    return f"{name}-{job['metadata'].get('uid')}", name


def _named(groups: Mapping[Key, Json], job: Json) -> Iterator[Json | None]:
    return (groups.get((_key(job)[0], name)) for name in _group_names(job))


def _allowed(api: Api, kind: ResourcePath, *, everywhere: bool, **query: str) -> list[Json]:
    try:
        return api.all(kind, everywhere=everywhere, **query)
    except CannotDo:
        return []


def _key(obj: Json) -> Key:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _row(job: Json, group: Json | None, nodes: set[str], use: Json | None) -> Row:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    running = status.get("running") or 0
    size_now = sum(map(_size_of(status), spec.get("tasks") or ()))
    whole = "-" if running == size_now else why_of(job, group) or "-"
    return (
        meta["name"],
        spec.get("queue") or "default",
        phase_of(job),
        gpus(job),
        f"{running}/{size_now}",
        _where(sorted(nodes)),
        _time(job),
        busy_text(use),
        user_of(job) or "-",
        (meta.get("labels") or {}).get(JOB_TYPE) or "Batch",
        minimum(job),
        status.get("pending") or 0,
        status.get("succeeded") or 0,
        status.get("failed") or 0,
        status.get("retryCount") or 0,
        sizes(job) or "-",
        clock(meta.get("creationTimestamp")),
        Cell(whole, _shortened(whole)),
    )


def _shortened(reason: str) -> str:
    """The clauses with what is needed and what comes closest, or that it can never start."""
    clauses = reason.split("; ")
    if len(clauses) == 1:
        return reason
    from central.model.wording import NEVER  # imports numpy, which most lists do without

    never = [clause for clause in clauses[1:] if clause.startswith(NEVER)]
    return "; ".join([clauses[0], *(never or clauses[1:CLAUSES_SHOWN])])


def phase_of(job: Json) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "Pending")


def user_of(job: Json) -> str:
    """The user who created it, where the component `users` writes that."""
    return str((job["metadata"].get("annotations") or {}).get(USER) or "")


def gpus(job: Json) -> str:
    """The GPUs that its pods ask for at its present size; shares of GPUs as fractions."""
    tasks, of_task = (job.get("spec") or {}).get("tasks") or (), _size_of(job.get("status") or {})
    return f"{sum(of_task(task) * _gpus_of_pod(task) for task in tasks) / GPU_UNITS:g}"


def _gpus_of_pod(task: Json) -> int:
    """Units of a GPU; 0 where the template cannot be read, as its Job's reason says."""
    try:
        found = requests_of((task.get("template") or {}).get("spec") or {})
    except (FieldError, AttributeError, TypeError):
        return 0
    return GpuCurrency().worth(found.items())


def _size_of(status: Json) -> Callable[[Json], int]:
    elastic = status.get("elastic") or {}

    def of_task(task: Json) -> int:
        size = (elastic.get(task.get("name")) or {}).get("size")
        return int(task.get("replicas", 1) if size is None else size)

    return of_task


def _where(nodes: Sequence[str]) -> Cell | str:
    if not nodes:
        return "-"
    more = f" +{len(nodes) - NODES_SHOWN}" if len(nodes) > NODES_SHOWN else ""
    short = f" +{len(nodes) - 1}" if len(nodes) > 1 else ""
    return Cell(", ".join(nodes[:NODES_SHOWN]) + more, nodes[0] + short)


def _time(job: Json) -> str:
    """Time since it waits or runs, or that it ran."""
    status, phase = job.get("status") or {}, phase_of(job)
    created = (job.get("metadata") or {}).get("creationTimestamp")
    since = (status.get("state") or {}).get("lastTransitionTime") or created
    began = [
        one.get("lastTransitionTime")
        for one in status.get("conditions") or ()
        if one.get("status") == "Running"
    ]
    if phase in ENDED:
        ended = moment(since)
        return f"ran {age(began[0], ended)}" if began else f"waited {age(created, ended)}"
    if phase in ("Running", "Completing", "Aborting", "Terminating") and began:
        return f"runs {age(began[-1])}"
    return f"waits {age(since)}"


def replicas(spec: Json) -> int:
    return sum(task.get("replicas", 1) for task in spec.get("tasks") or ())


def minimum(job: Json) -> int:
    spec = job.get("spec") or {}
    least = spec.get("minAvailable") or (job.get("status") or {}).get("minAvailable")
    if least:
        return int(least)
    tasks: Sequence[Json] = spec.get("tasks") or ()
    return sum(task.get("minAvailable") or task.get("replicas", 1) for task in tasks)


def sizes(job: Json) -> str:
    return ", ".join(map(size, ((job.get("status") or {}).get("elastic") or {}).values()))


def size(elastic: Json) -> str:
    """Returns the members of an elastic task and its range, such as 14/2-64."""
    now, least, most = (elastic.get(key, "?") for key in ("size", "least", "most"))
    return f"{now}/{least}-{most}"


def why_of(job: Json, group: Json | None) -> str:
    """The job's own reason. While pods are pending, the scheduler's reason follows. Where both tell the same need, at
    two moments, the scheduler's stands alone: it is written first."""
    state = (job.get("status") or {}).get("state") or {}
    reason = str(state.get("reason") or "")
    reason = str(state.get("message") or (reason if reason != "Created" else ""))
    may_wait = phase_of(job) in ("Pending", "Restarting", "Running") and group is not None
    condition = condition_of(group or {})
    if may_wait and condition.get("type") == "Unschedulable":
        pending = str(condition.get("message") or "")
        if pending and pending not in reason:
            told, opens, before = reason.partition(" (before: ")
            if told.split(";")[0] == pending.split(";", maxsplit=1)[0]:
                return pending + opens + before
            return f"{reason}; {pending}" if reason else pending
    return reason


def condition_of(group: Json) -> Json:
    """The one that says its state; empty: there is none yet."""
    conditions = (group.get("status") or {}).get("conditions") or ()
    last = conditions[-1] if conditions else {}
    return last if last.get("type") != past_turns.CONDITION else {}
