"""Rows of `lockstep job|queue|group list`: the columns that users of this API know."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from central.cli.jobs.api import GROUPS, Api, CannotDo
from central.cli.jobs.terminal_table import Cell, Column, Row, age, clock
from central.model.json_types import Json

NAMESPACE = Column("Namespace")
JOB_TYPE = "volcano.sh/job-type"

JOB = (
    Column("Name"),
    Column("Creation", "Age"),
    Column("Phase"),
    Column("JobType", "Type"),
    Column("Replicas", "Repl", number=True),
    Column("Min", number=True),
    Column("Pending", "Pend", number=True),
    Column("Running", "Run", number=True),
    Column("Succeeded", "Succ", number=True),
    Column("Failed", "Fail", number=True),
    Column("Unknown", wide=True, number=True),
    Column("RetryCount", "Retry", number=True),
    Column("Queue", wide=True),
    Column("Why", wide=True),
)
GROUP = (
    Column("Name"),
    Column("Phase"),
    Column("Min", number=True),
    Column("Running", "Run", number=True),
    Column("Succeeded", wide=True, number=True),
    Column("Failed", wide=True, number=True),
    Column("Queue"),
    Column("Age", number=True),
    Column("Why", wide=True),
)
QUEUE = (
    Column("Name"),
    Column("Weight", number=True),
    Column("State"),
    Column("Parent"),
    Column("Inqueue", "Inq", number=True),
    Column("Pending", "Pend", number=True),
    Column("Running", "Run", number=True),
    Column("Unknown", "Unkn", number=True),
    Column("Completed", "Compl", number=True),
    Column("Guarantee", wide=True),
    Column("Deserved", wide=True),
    Column("Capability", wide=True),
    Column("Allocated", wide=True),
)


# Where nobody made one: all who name no queue are in it, with nothing to bound them.
DEFAULT = "default"
NO_OBJECT: Json = {"metadata": {"name": DEFAULT, "uid": ""}}


def job_row(job: Json) -> Row:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    state = status.get("state") or {}
    created = meta.get("creationTimestamp")
    return (
        meta["name"],
        Cell(clock(created), age(created)),
        state.get("phase") or "Pending",
        (meta.get("labels") or {}).get(JOB_TYPE) or "Batch",
        replicas(spec),
        minimum(job),
        status.get("pending") or 0,
        status.get("running") or 0,
        status.get("succeeded") or 0,
        status.get("failed") or 0,
        status.get("unknown") or 0,
        status.get("retryCount") or 0,
        spec.get("queue") or "default",
        why(job) or "-",
    )


def group_row(group: Json) -> Row:
    meta, spec, status = group["metadata"], group.get("spec") or {}, group.get("status") or {}
    return (
        meta["name"],
        status.get("phase") or "Pending",
        spec.get("minMember", 1),
        status.get("running") or 0,
        status.get("succeeded") or 0,
        status.get("failed") or 0,
        spec.get("queue") or "default",
        age(meta.get("creationTimestamp")),
        group_why(group) or "-",
    )


def queue_row(queue: Json, counts: Mapping[str, int] | None) -> Row:
    """counts: groups by phase; without the right to list those, what the status says."""
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    if counts is None:
        counts = {name.capitalize(): value for name, value in status.items() if _is_whole(value)}
    return (
        queue["metadata"]["name"],
        spec.get("weight", 1),
        queue_state(queue),
        spec.get("parent") or "-",
        *(
            counts.get(name, 0)
            for name in ("Inqueue", "Pending", "Running", "Unknown", "Completed")
        ),
        amounts((spec.get("guarantee") or {}).get("resource")),
        amounts(spec.get("deserved")),
        amounts(spec.get("capability")),
        amounts(status.get("allocated")),
    )


def queue_state(queue: Json) -> str:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    return str(status.get("state") or spec.get("state") or "Open")


def counts_by_queue(api: Api) -> dict[str, Counter[str]] | None:
    """None: the user may not list every namespace's groups."""
    try:
        groups = api.all(GROUPS, everywhere=True)
    except CannotDo:
        return None
    found: dict[str, Counter[str]] = {}
    for group in groups:
        queue = (group.get("spec") or {}).get("queue") or "default"
        phase = (group.get("status") or {}).get("phase") or "Pending"
        found.setdefault(queue, Counter())[phase] += 1
    return found


def replicas(spec: Json) -> int:
    return sum(task.get("replicas", 1) for task in spec.get("tasks") or ())


def minimum(job: Json) -> int:
    spec = job.get("spec") or {}
    told = spec.get("minAvailable") or (job.get("status") or {}).get("minAvailable")
    if told:
        return int(told)
    tasks: Sequence[Json] = spec.get("tasks") or ()
    return sum(task.get("minAvailable") or task.get("replicas", 1) for task in tasks)


def why(job: Json) -> str:
    """What the job's controller says of its phase."""
    state = (job.get("status") or {}).get("state") or {}
    reason = str(state.get("reason") or "")
    return str(state.get("message") or (reason if reason != "Created" else ""))


def group_why(group: Json) -> str:
    conditions = (group.get("status") or {}).get("conditions") or ()
    return str(conditions[-1].get("message") or "") if conditions else ""


def amounts(quantities: Mapping[str, object] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted((quantities or {}).items())) or "-"


def in_queue(objects: Iterable[Json], queue: str) -> list[Json]:
    """queue "": all."""
    return [
        one
        for one in objects
        if not queue or ((one.get("spec") or {}).get("queue") or "default") == queue
    ]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
