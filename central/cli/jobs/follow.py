"""`lockstep job watch` and `lockstep job logs`: a job's phases, and the output of its pods with the task
and index that each line comes from."""

import argparse
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

from central.cli import terminal_table
from central.cli.exit_codes import CannotDo
from central.cli.jobs.api import JOBS, PODS, Api
from central.cli.jobs.describe import job_pods, task_of
from central.cli.jobs.job_table import ENDED, group_of, why_of
from central.cli.patient_client import is_away
from central.kube.transport.http_client import StatusError, Unreachable
from central.model.json_types import Json
from central.model.wording import NEVER

POLL_S = 1.0
MOST_CUTS = 60  # of an output, one after the other without a line between them
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z ")
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)

Source = tuple[str, str, int]  # the pod's uid, the container, its restart count


def watch(api: Api, args: argparse.Namespace) -> int:
    return watch_job(
        api, args.chosen, lambda line: print(terminal_table.printable(line), flush=True)
    )


def watch_job(api: Api, name: str, say: Callable[[str], None], *, until_never: bool = False) -> int:
    """Says the phase and its reason at each change until the job ends. 0 if it is Completed, else 1.
    until_never: ends with 1, too, once the scheduler says that the job can never start."""
    api.follow()
    uid = api.get(JOBS, name)["metadata"]["uid"]
    last = ""
    for event, found in api.changes(JOBS, fieldSelector=f"metadata.name={name}"):
        if found["metadata"]["uid"] != uid:
            continue
        if event == "DELETED":
            raise CannotDo(f"job {name} was deleted")
        phase = ((found.get("status") or {}).get("state") or {}).get("phase") or "Pending"
        status = found.get("status") or {}
        counts = ", ".join(
            f"{status[key]} {key}"
            for key in ("pending", "running", "succeeded", "failed")
            if status.get(key)
        )
        why = why_of(found, group_of(api, found))
        line = phase + (f" ({counts})" if counts else "") + (f": {why}" if why else "")
        if line != last:
            say(f"{time.strftime('%H:%M:%S%z')}  {line}")
            last = line
        if phase in ENDED:
            return 0 if phase == "Completed" else 1
        if until_never and NEVER in why:
            return 1
    return 1


def logs(api: Api, args: argparse.Namespace) -> int:
    name = args.chosen
    job = api.get(JOBS, name)
    printer = _Printer(name)
    if args.follow:
        return _follow(api, job, args, printer)
    pods = _chosen(api, job, args)
    if not pods:
        what = f"task {args.task} of job {name}" if args.task else f"job {name}"
        raise CannotDo(f"{what} has no pods")
    for pod in pods:
        started = (pod.get("status") or {}).get("containerStatuses")
        if not started and not (pod.get("spec") or {}).get("nodeName"):
            why = f"the pod has no node yet (lockstep job view {name} says why)"
            printer.silent(pod, "", why)
            continue
        for container in _containers(pod, args):
            _read(api, pod, container, args, printer)
    return 0


def _follow(api: Api, job: Json, args: argparse.Namespace, printer: "_Printer") -> int:
    """Prints output until the job has ended and all of it is read. A container that restarts is read again."""
    api.follow()
    readers: dict[Source, threading.Thread] = {}
    while True:
        found = api.find(JOBS, job["metadata"]["name"])
        phase = ((found or {}).get("status") or {}).get("state", {}).get("phase")
        over = found is None or found["metadata"]["uid"] != job["metadata"]["uid"] or phase in ENDED
        for pod in _chosen(api, job, args):
            for container, source in _started(pod, args):
                if source not in readers:
                    work = threading.Thread(
                        target=_read, args=(api, pod, container, args, printer), daemon=True
                    )
                    readers[source] = work
                    work.start()
        if over and not any(work.is_alive() for work in readers.values()):
            return 0
        time.sleep(POLL_S)


class _Position:
    """The last line printed of an output: what the server repeats after a cut is left out."""

    def __init__(self) -> None:
        self.cuts = 0
        self.second, self._last = b"", b""

    def unprinted(self, line: bytes) -> bool:
        if stamp := STAMP.match(line):
            at = stamp[1] + (stamp[2] or b".").ljust(10, b"0")
            if self.cuts and at <= self._last:
                return False
            self.cuts, self.second, self._last = 0, stamp[1], at
        return True


def _read(
    api: Api, pod: Json, container: str, args: argparse.Namespace, printer: "_Printer"
) -> None:
    at = _Position()
    while True:
        try:
            if not _copy(api, (pod, container), args, printer, at) and (
                why := _end_of(pod, container)
            ):
                printer.silent(pod, container, why)
            return
        except StatusError as refused:
            why, away = refused.message, is_away(refused.status)
        except (CannotDo, Unreachable) as error:
            why, away = str(error), True
        at.cuts += 1
        if not (away and args.follow and at.cuts < MOST_CUTS):
            printer.silent(pod, container, why)
            return
        time.sleep(POLL_S)
        api.find(PODS, pod["metadata"]["name"])  # outlasts an outage


def _copy(
    api: Api, source: tuple[Json, str], args: argparse.Namespace, printer: "_Printer", at: _Position
) -> bool:
    """Prints a container's output. False: there was none."""
    pod, container = source
    query = {"container": container}
    if args.follow:
        query |= {"follow": "true", "timestamps": "true"}
    if at.second:
        query["sinceTime"] = f"{at.second.decode()}Z"
    elif args.tail is not None:
        query["tailLines"] = str(args.tail)
    if args.timestamps:
        query["timestamps"] = "true"
    if args.previous:
        query["previous"] = "true"
    path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def show(lines: list[bytes]) -> None:
        if args.follow:
            lines = [line for line in lines if at.unprinted(line)]
            if not args.timestamps:
                lines = [
                    line[stamp.end() if (stamp := STAMP.match(line)) else 0 :] for line in lines
                ]
        printer.lines(pod, container, lines)

    rest, found = b"", bool(at.second)
    with api.stream(f"{path}/log?{urlencode(query)}") as stream:
        for chunk in stream.chunks():
            found = True
            *lines, rest = (rest + chunk).split(b"\n")
            show(lines)
    if rest:
        show([rest])
    return found


def _end_of(pod: Json, container: str) -> str:
    """Returns the container's failure as its kubelet reports it; "" if it did not fail."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated") or {}
        if status.get("name") == container and ended.get("exitCode"):
            parts = (f"{ended.get('reason')} ({ended['exitCode']})", ended.get("message"))
            return ": ".join(filter(None, parts))
    return ""


def _chosen(api: Api, job: Json, args: argparse.Namespace) -> list[Json]:
    return [pod for pod in job_pods(api, job) if not args.task or task_of(pod) == args.task]


def _containers(pod: Json, args: argparse.Namespace) -> list[str]:
    names = [one["name"] for one in (pod.get("spec") or {}).get("containers") or ()]
    return [name for name in names if not args.container or name == args.container]


def _started(pod: Json, args: argparse.Namespace) -> Iterator[tuple[str, Source]]:
    """The containers that have started."""
    chosen = _containers(pod, args)
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        started = "waiting" not in (status.get("state") or {"waiting": {}})
        if started and status["name"] in chosen:
            yield (
                status["name"],
                (pod["metadata"]["uid"], status["name"], status.get("restartCount", 0)),
            )


class _Printer:
    """Prints whole lines, from any thread."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._colours: dict[str, int] = {}

    def lines(self, pod: Json, container: str, lines: list[bytes]) -> None:
        head = self._head(pod, container)
        text = "".join(f"{head} {line.decode(errors='replace')}\n" for line in lines)
        with self._lock:
            sys.stdout.write(text)
            sys.stdout.flush()

    def silent(self, pod: Json, container: str, why: str) -> None:
        with self._lock:
            print(f"{self._head(pod, container)} no output: {why}", file=sys.stderr)

    def _head(self, pod: Json, container: str) -> str:
        name = str(pod["metadata"]["name"]).removeprefix(f"{self._job}-")
        containers = (pod.get("spec") or {}).get("containers") or ()
        head = f"[{name}/{container}]" if container and len(containers) > 1 else f"[{name}]"
        if not sys.stdout.isatty():
            return head
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        return f"\x1b[{colour}m{head}\x1b[0m"
