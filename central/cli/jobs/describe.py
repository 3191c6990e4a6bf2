"""`lockstep job|queue|group view`: one object with the reason for its phase, its pods and its events."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from central.cli import output_format, terminal_table
from central.cli.exit_codes import CannotDo
from central.cli.jobs import job_table, list_command, queue_listing, queue_tenants, training_page
from central.cli.jobs.api import EVENTS, GROUPS, JOBS, KINDS, PODS, QUEUES, Api
from central.cli.jobs.scheduler_view import NOT_ASKED, SchedulerView, asked_of_scheduler
from central.cli.terminal_table import Cell, Column, age, clock, columns, span, table, wrapped
from central.kube.resource_paths import ResourcePath
from central.model.json_types import Json
from central.model.resources import DEFAULT
from central.server.grpc import query_client
from protos.names import GROUP_NAMES, TASK

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb

INDEX = "volcano.sh/task-index"
INDENT = 14
EVENTS_SHOWN = 12
WAITING_SHOWN = 20
NOTHING: Mapping[str, str] = {}

_TASKS = columns(
    "Task, #Replicas|Repl, #Min, #Pending|Pend, #Running|Run, #Succeeded|Succ, "
    "#Failed|Fail, Policies"
)
_WAITING = columns("#Place, Gang, #GPUs, #Waited, Why")
_PODS = columns("Pod, Task, ~Status, #Restarts|Rest, #Age, Node")


GPUS = Column("GPUs")


def show(api: Api, args: argparse.Namespace) -> int:
    kind = KINDS[args.kind]
    if args.output in output_format.WHOLE:
        print(output_format.written(_whole(api, kind, args), args.output), end="")
        return 0
    if args.output == "name":
        print(list_command.object_name(kind, api.get(kind, args.chosen)))
        return 0
    if args.kind == "job":
        gang = asked_of_scheduler(args, api.namespace, args.chosen)
        print(job(api, args.chosen, terminal_table.width(), gang), end="")
        return 0
    if args.kind == "queue":
        print(queue(api, args, terminal_table.width()), end="")
        return 0
    print(group(api, args.chosen, terminal_table.width()), end="")
    return 0


def _whole(api: Api, kind: ResourcePath, args: argparse.Namespace) -> Json:
    """Returns the object as in the API. An elastic Job also gets its coordinator's report if the scheduler is named."""
    found = api.get(kind, args.chosen)
    if args.kind == "job" and (found.get("status") or {}).get("elastic"):
        gang = asked_of_scheduler(args, api.namespace, args.chosen)
        if gang.training is not None:
            found["status"]["training"] = training_page.as_json(gang.training)
    return found


class Page:
    """Lines of "Head:   text" and tables. most: the terminal's width; None: unlimited."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.text = ""

    def line(self, head: str, text: str) -> None:
        self.text += wrapped(f"{head}:", text, INDENT, self.most) + "\n"

    def phase(self, head: str, phase: str, more: str = "") -> None:
        """A line that begins with a state, in its colour."""
        bare = terminal_table.printable(phase)
        text = wrapped(f"{head}:", bare + more, INDENT, self.most) + "\n"
        self.text += text.replace(bare, terminal_table.state(bare), 1)

    def created(self, meta: Json) -> None:
        at = meta.get("creationTimestamp")
        self.line("Created", f"{clock(at)} ({age(at)})")

    def table(self, shown: tuple[Column, ...], rows: list[tuple[str | int | Cell, ...]]) -> None:
        self.text += "\n" + table(shown, rows, wide=False, most=self.most)


def job(api: Api, name: str, most: int | None, gang: SchedulerView = NOT_ASKED) -> str:
    found = api.get(JOBS, name)
    meta, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    state = status.get("state") or {}
    page = Page(most)
    group = job_table.group_of(api, found)
    pods, unseen = _if_allowed(lambda: job_pods(api, found))
    page.line("Name", f"{meta['namespace']}/{meta['name']}")
    since = state.get("lastTransitionTime")
    page.phase("Phase", state.get("phase") or "Pending", f" for {age(since)}" if since else "")
    if why := "; ".join(filter(None, (job_table.why_of(found, group), _starting(pods)))):
        page.line("Why", why)
    page.line("Type", (meta.get("labels") or {}).get(job_table.JOB_TYPE) or "Batch")
    page.line("Queue", (spec.get("queue") or "default") + gang.standing)
    if gang.start:
        page.line("Start", f"expected {gang.start}")
    page.line("Minimum", f"{job_table.minimum(found)} of {job_table.replicas(spec)} pods")
    for task, elastic in (status.get("elastic") or {}).items():
        page.line("Size", _size(task, elastic, known=bool(gang.size)))
    if gang.size:
        page.line("Elastic", gang.size)
    for head, text in training_page.lines(gang.training) if gang.training is not None else ():
        page.line(head, text)
    page.line("Retries", f"{status.get('retryCount') or 0} of {spec.get('maxRetry', 3)}")
    if plugins := spec.get("plugins"):
        page.line("Plugins", ", ".join(" ".join([key, *args]) for key, args in plugins.items()))
    if policies := _policies(spec):
        page.line("Policies", policies)
    page.created(meta)
    page.table(_TASKS, [_task_row(task, status) for task in spec.get("tasks") or ()])
    _pods(page, pods, gang.gpus, unseen)
    if gang.training is not None:
        _training(page, gang.training)
    if gang.trouble:
        page.line("GPUs", f"not shown: {gang.trouble}")
    _events(api, page, [found, *([group] if group else []), *pods], {"PodGroup": "gang"})
    return page.text


def _pods(page: Page, pods: list[Json], gpus: Mapping[str, str], unseen: str = "") -> None:
    """gpus: by the pod's name, if the scheduler says them. unseen: why the pods may not be shown."""
    if unseen:
        page.line("Pods", unseen)
    elif pods and gpus:
        by_name = [(pod, gpus.get(pod["metadata"]["name"], "-")) for pod in pods]
        page.table((*_PODS, GPUS), [(*pod_row(pod), indices) for pod, indices in by_name])
    elif pods:
        page.table(_PODS, [pod_row(pod) for pod in pods])


def _training(page: Page, view: "pb.TrainingView") -> None:
    if rows := training_page.members(view):
        page.table(training_page.COLUMNS, rows)
    if view.progress.left_out:
        page.text += f"\n{view.progress.left_out} more members not shown\n"
    if known := training_page.changes(view):
        page.text += "\nChanges of size\n"
    for since, text in known:
        page.text += wrapped(f"{since:>5}", text, 7, page.most) + "\n"


def _size(task: str, elastic: Json, *, known: bool) -> str:
    """known: the scheduler says why, with more."""
    why = "" if known else elastic.get("reason")
    reason = f"; last change: {why}" if why else ""
    return (
        f"{job_table.size(elastic)} of task {task}, members {elastic.get('members') or '-'}{reason}"
    )


def group(api: Api, name: str, most: int | None) -> str:
    found = api.get(GROUPS, name)
    meta, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    pods = [pod for pod in api.all(PODS) if _joins(pod, name)]
    page = Page(most)
    page.line("Name", f"{meta['namespace']}/{meta['name']}")
    page.phase("Phase", status.get("phase") or "Pending")
    if why := list_command.group_why(found):
        page.line("Why", why)
    page.line("Queue", spec.get("queue") or "default")
    page.line("Minimum", f"{spec.get('minMember', 1)} pods, {len(pods)} exist")
    if tasks := spec.get("minTaskMember"):
        page.line("By task", ", ".join(f"{task} {least}" for task, least in sorted(tasks.items())))
    if owners := meta.get("ownerReferences"):
        page.line("Owner", ", ".join(f"{one['kind']} {one['name']}" for one in owners))
    page.created(meta)
    _pods(page, sorted(pods, key=_by_index), {})
    _events(api, page, [found, *pods])
    return page.text


def queue(api: Api, args: argparse.Namespace, most: int | None) -> str:
    name = args.chosen
    queues = queue_listing.objects(api, args)
    found = next((one for one in queues if one["metadata"]["name"] == name), None)
    found = found or (list_command.NO_OBJECT if name == DEFAULT else api.get(QUEUES, name))
    spec = found.get("spec") or {}
    known = next((row for row in queue_listing.rows(api, args) if row["name"] == name), {})
    page = Page(most)
    page.line("Name", name)
    page.line(
        "State", list_command.queue_state(found) + (", without an object" if not spec else "")
    )
    if why := queue_tenants.invalid_because(queues, name):
        page.line("Why", why)
    _limits(page, spec, list_command.allocated(found, known))
    if gangs := known.get("gangs"):
        counted = [f"{gangs[phase]} {phase}" for phase in queue_listing.PHASES if gangs.get(phase)]
        page.line("Gangs", ", ".join(counted) or "none")
    children = [
        one["metadata"]["name"] for one in queues if (one.get("spec") or {}).get("parent") == name
    ]
    if children:
        page.line("Children", ", ".join(children))
    _waiting(page, args, name)
    if found["metadata"]["uid"]:  # there is an object
        _tenants(page, args, found)
        _events(api, page, [found])
    return page.text


def _waiting(page: Page, args: argparse.Namespace, name: str) -> None:
    """Lists the pending gangs in the order in which they start, if the scheduler is named."""
    if args.server == query_client.SERVER:
        return
    asked = {"queue": name, "state": "pending", "sort": "place", "limit": str(WAITING_SHOWN)}
    with suppress(query_client.CannotAsk):
        found = query_client.page(query_client.scheduler_address(args), "/api/jobs", **asked)
        rows: list[tuple[str | int | Cell, ...]] = [
            (
                row["place"],
                f"{row['namespace']}/{row['name']}",
                f"{row['gpus']:g}",
                span(row["waited"]),
                row["why"],
            )
            for row in found["rows"]
        ]
        if rows:
            page.table(_WAITING, rows)
        if more := found["size"] - len(rows):
            page.text += f"\n{more} more wait\n"


def _limits(page: Page, spec: Json, allocated: Mapping[str, object] | None) -> None:
    """Prints the queue's limits and its use."""
    page.line("Weight", str(spec.get("weight", 1)))
    if spec.get("priority"):
        page.line("Priority", str(spec["priority"]))
    page.line("Parent", spec.get("parent") or "root")
    if spec.get("reclaimable") is False:
        page.line("Reclaimable", "no")
    for head, found_amounts in (
        ("Guarantee", (spec.get("guarantee") or {}).get("resource")),
        ("Deserved", spec.get("deserved")),
        ("Capability", spec.get("capability")),
        ("Allocated", allocated),
    ):
        if found_amounts:
            page.line(head, list_command.amounts(found_amounts).replace(",", ", "))


def _tenants(page: Page, args: argparse.Namespace, found: Json) -> None:
    """Users and namespaces that are limited inside the queue, and what they use."""
    limits = queue_tenants.limits(found)
    if not limits:
        return
    for head, text in limits.items():
        page.line(head, text)
    reply, trouble = queue_tenants.used(args, args.chosen)
    if reply is None:
        page.line("Used by each", trouble)
        return
    shown, rows = queue_tenants.columns_and_rows(reply)
    if rows:
        page.table(shown, rows)
    if reply.hidden_tenants:
        page.text += f"\n{reply.hidden_tenants} more not shown\n"
    elif not rows:
        page.line("Used by each", "no gang uses it")


def job_pods(api: Api, job: Json) -> list[Json]:
    """Returns the job's pods in the order of its tasks, then by index."""
    tasks = [task.get("name") for task in (job.get("spec") or {}).get("tasks") or ()]
    order = {task: index for index, task in enumerate(tasks)}
    pods = api.all(PODS, labelSelector=f"{job_table.JOB_NAME}={job['metadata']['name']}")
    return sorted(pods, key=lambda pod: (order.get(task_of(pod), len(order)), *_by_index(pod)))


def _starting(pods: list[Json]) -> str:
    """Returns why pods that have a node do not run yet, with the number of pods for each reason."""
    reasons = Counter(
        pod_status(pod)
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName")
        and (pod.get("status") or {}).get("phase") == "Pending"
    )
    return ", ".join(f"{n} of {len(pods)} pods: {why}" for why, n in sorted(reasons.items()))


def task_of(pod: Json) -> str:
    meta = pod["metadata"]
    task = (meta.get("annotations") or {}).get(TASK) or (meta.get("labels") or {}).get(TASK)
    return str(task or "")


def pod_row(pod: Json) -> tuple[str | int | Cell, ...]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return (
        pod["metadata"]["name"],
        task_of(pod) or "-",
        pod_status(pod),
        sum(one.get("restartCount", 0) for one in statuses),
        age(pod["metadata"].get("creationTimestamp")),
        (pod.get("spec") or {}).get("nodeName") or "-",
    )


def pod_status(pod: Json) -> str:
    """The pod's phase, or the reason why it does not run, like kubectl's STATUS."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    word = status.get("reason") or status.get("phase") or "Unknown"
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        state = container.get("state") or {}
        if reason := (state.get("waiting") or {}).get("reason"):
            word = reason
        ended = state.get("terminated") or {}
        if ended.get("exitCode"):
            word = f"{ended.get('reason') or 'Error'} ({ended['exitCode']})"
    return str(word)


def _task_row(task: Json, status: Json) -> tuple[str | int | Cell, ...]:
    name = task.get("name") or "default"
    counts = ((status.get("taskStatusCount") or {}).get(name) or {}).get("phase") or {}
    policies = _policies(task)
    return (
        name,
        task.get("replicas", 1),
        task.get("minAvailable") or task.get("replicas", 1),
        *(counts.get(phase, 0) for phase in ("Pending", "Running", "Succeeded", "Failed")),
        policies or "-",
    )


def _policies(spec: Json) -> str:
    """PodFailed -> RestartJob, exit 137 -> RestartPod after 10s."""
    shown = []
    for policy in spec.get("policies") or ():
        events = policy.get("events") or [policy.get("event")]
        when = (
            f"exit {policy['exitCode']}" if policy.get("exitCode") else "/".join(map(str, events))
        )
        after = f" after {policy['timeout']}" if policy.get("timeout") else ""
        shown.append(f"{when} -> {policy.get('action')}{after}")
    return ", ".join(shown)


def _joins(pod: Json, group: str) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    return any(annotations.get(key) == group for key in GROUP_NAMES)


def _by_index(pod: Json) -> tuple[int, str]:
    index = str((pod["metadata"].get("annotations") or {}).get(INDEX) or "")
    name = str(pod["metadata"]["name"])
    last = index or name.rpartition("-")[2]
    return (int(last) if last.isascii() and last.isdigit() else 0, name)


def _events(
    api: Api, page: Page, objects: Iterable[Json], called: Mapping[str, str] = NOTHING
) -> None:
    """The newest events of these objects, oldest first. called: what to call the only object of a kind."""
    uids = {one["metadata"]["uid"]: one for one in objects}
    first = next(iter(uids.values()))
    found: dict[str, Json] = {}
    # Of pods' many events only warnings are of interest.
    selectors = [f"involvedObject.uid={uid}" for uid, one in uids.items() if not _is_pod(one)]
    selectors += ["type=Warning,involvedObject.kind=Pod"] if len(uids) > len(selectors) else []
    everywhere = "namespace" not in first["metadata"]
    for selector in selectors:
        events, unseen = _if_allowed(
            partial(api.all, EVENTS, everywhere=everywhere, fieldSelector=selector)
        )
        if unseen:
            page.line("Events", unseen)
            return
        for event in events:
            if (event.get("involvedObject") or {}).get("uid") in uids:
                found[event["metadata"]["name"]] = event
    newest = sorted(found.values(), key=_when)[-EVENTS_SHOWN:]
    if not newest:
        return
    page.text += "\nEvents\n"
    for same in _alike(newest):
        about = same[0]["involvedObject"]
        name = called.get(about["kind"]) or f"{about['kind'].lower()}/{about['name']}"
        name += f" and {len(same) - 1} more" if len(same) > 1 else ""
        text = f"{name}: {same[0].get('reason')}: {same[0].get('message')}"
        page.text += wrapped(f"{age(_when(same[-1])):>5}", text, 7, page.most) + "\n"


def _alike(events: list[Json]) -> list[list[Json]]:
    """Together those that say the same of several objects, as the pods of a gang that waits."""
    found: dict[tuple[object, object], list[Json]] = {}
    for event in events:
        found.setdefault((event.get("reason"), event.get("message")), []).append(event)
    return list(found.values())


def _if_allowed(ask: Callable[[], list[Json]]) -> tuple[list[Json], str]:
    """A user who may see the job may lack the right to see what belongs to it."""
    try:
        return ask(), ""
    except CannotDo as error:
        return [], f"not shown: {error}"


def _is_pod(obj: Json) -> bool:
    return "containers" in (obj.get("spec") or {})


def _when(event: Json) -> str:
    seen = event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or event["metadata"].get("creationTimestamp") or "")
