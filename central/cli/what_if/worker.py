"""The process behind the what-if of the web console: one question on standard input, one answer on standard output.

    python -m central.cli.what_if.worker [the flags of lockstep central] < question

It reads the API with the asking user's token, and nothing else: what the user may not list is not part of the answer.
It yields the processor to the scheduler, takes at most memory_mib of memory, and ends when standard input ends.

Design: docs/design/what-if.md
"""

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import orjson

from central.model.json_types import Json

NICE = 5  # a weight of 335, against 1024
CPU_S = 600  # a second bound, should the console not end us
GANGS_MOST, NODES_MOST = 300, 200  # of one answer
COUNT_MOST = 10_000  # pods, or nodes, that one field asks for
COUNTS = ("replicas", "parallelism", "completions", "lockstep.dev/count")
SPARE = 512 << 20  # bytes
SPANS = {"1h": 3600.0, "24h": 86_400.0, "7d": 604_800.0}


_telling = threading.Lock()


class CannotAnswer(Exception):
    """status: of HTTP. A sentence for the user."""

    def __init__(self, status: int, why: object) -> None:
        super().__init__(str(why))
        self.status = status


def main(argv: list[str]) -> NoReturn:
    _be_modest()
    asked = orjson.loads(sys.stdin.buffer.readline())
    limit = int(asked["memory_mib"]) << 20
    hard = 2 * limit + SPARE  # counts stacks of threads, too, which are not touched
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    for watch in (_end_with_parent, lambda: _end_above(limit)):
        threading.Thread(target=watch, daemon=True).start()
    try:
        told = _told(asked, argv)
    except CannotAnswer as refused:
        told = {"error": str(refused), "status": refused.status}
    except MemoryError:
        told = _too_large(limit)
    _end(told)


def _end(told: Json) -> NoReturn:
    with _telling:
        sys.stdout.buffer.write(orjson.dumps(told))
        sys.stdout.flush()
        os._exit(0)


def _too_large(limit: int) -> Json:
    why = f"the question needs more than {limit >> 20} MiB of memory (--console-what-if)"
    return {"error": f"{why}; ask with the command lockstep what-if", "status": 503}


def _end_above(limit: int) -> None:
    """Looks at the resident memory, ten times a second."""
    page = os.sysconf("SC_PAGE_SIZE")
    while int(Path("/proc/self/statm").read_text().split()[1]) * page <= limit:
        time.sleep(0.1)
    _end(_too_large(limit))


def _be_modest() -> None:
    """Takes a third of what the scheduler gets where both want the same processor, and interrupts none to run; is
    killed first where memory runs out."""
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with_parent() -> None:
    """Ends the process at the end of standard input, which carries no more data: the parent has stopped waiting."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def _told(asked: Json, argv: list[str]) -> Json:
    """Raises CannotAnswer."""
    from central.cli.what_if import changes, live_cluster, question
    from central.kube.transport import configuration
    from central.kube.transport.http_client import Client, Unreachable
    from central.server import settings
    from central.simulator import documents

    parser = argparse.ArgumentParser()
    settings.add_flags(parser)
    flags = settings.settings(parser.parse_args(argv))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        client = Client(configuration.as_user(asked["api"], asked["token"]))
        try:
            # before the cluster is read, which takes longer
            change = _change(asked["change"], folder)
            cluster = live_cluster.read(client, datetime.now(UTC))
            hardware = _hardware(asked["scheduler"], asked["token"])
            horizon_s = SPANS[asked["change"].get("until", "24h")]
            found = question.answer(cluster, hardware, change, flags, horizon_s)
        except live_cluster.CannotRead as error:
            raise CannotAnswer(403 if error.status in (401, 403) else 503, error) from error
        except Unreachable as error:
            raise CannotAnswer(503, f"the API server does not answer: {error}") from error
        except (changes.BadChange, documents.BadInput) as error:
            raise CannotAnswer(400, str(error).replace(f"{folder}{os.sep}", "")) from error
        finally:
            client.close()
    return _shown(found)


def _change(given: Json, folder: Path) -> Any:
    """The console has checked types and sizes. Raises CannotAnswer and BadChange."""
    from central.cli.what_if import changes, question
    from central.simulator import documents
    from central.simulator.node_defaults import CAPTURE

    objects = []
    if given.get("submit"):
        file = folder / "manifest.yaml"
        file.write_text(given["submit"], encoding="utf-8")
        if CAPTURE in given["submit"]:  # it names a file of this machine
            raise CannotAnswer(400, f"manifest.yaml: {CAPTURE} is not allowed here")
        try:
            for where, found in documents.read([str(file)]):
                _bound(str(where).replace(f"{folder}{os.sep}", ""), found)
                objects.append((where, found))
        except documents.BadInput as error:
            raise CannotAnswer(400, str(error).replace(f"{folder}{os.sep}", "")) from error
        if not objects:
            raise CannotAnswer(400, documents.NO_OBJECTS)
    cordon, drain, without = (given.get(key, ()) for key in ("cordon", "drain", "without"))
    queues = [changes.QueueChange.parse(each) for each in given.get("queue", ())]
    change = question.Change(cordon, drain, queues, without, objects)
    if not change:
        raise CannotAnswer(400, "name a change")
    return change


def _bound(where: str, found: Json) -> None:
    """The simulation makes an object for each of a count, which takes a minute for some ten thousand; others wait
    meanwhile. Raises CannotAnswer."""
    ahead: list[Any] = [found]
    while ahead:
        here = ahead.pop()
        if isinstance(here, list):
            ahead.extend(here)
        elif isinstance(here, dict):
            for key, value in here.items():
                ahead.append(value)
                if key in COUNTS and _number(value) > COUNT_MOST:
                    why = f"{where}: {key}: more than {COUNT_MOST} here"
                    raise CannotAnswer(400, f"{why}; ask with the command lockstep what-if")


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0.0 if isinstance(value, str) else float("inf")


def _hardware(scheduler: Json, token: str) -> dict[str, Json]:
    """Certificate and token stay in memory, not in files that could be left behind."""
    from central.cli.what_if import live_cluster
    from central.server.grpc.query_client import SchedulerAddress

    ca, secret = _in_memory(scheduler["ca"]), _in_memory(token)
    return live_cluster.hardware(
        SchedulerAddress(scheduler["server"], ca, secret, scheduler["server_name"])
    )


def _in_memory(text: str) -> str:
    """The path of a file with this text."""
    descriptor = os.memfd_create("lockstep")
    os.write(descriptor, text.encode())
    return f"/proc/self/fd/{descriptor}"


def _shown(answer: Any) -> Json:
    from central.cli.what_if import comparison

    def row(each: Any) -> Json:
        exists = (each.namespace, each.name) in answer.running
        return {
            "namespace": each.namespace,
            "name": each.name,
            "now": comparison.sentence(each.before, exists),
            "then": comparison.sentence(each.after, exists),
            "states": [each.before.state, each.after.state],
            "nodes": list(each.after.nodes[:NODES_MOST]),
        }

    return {
        "horizon_s": answer.horizon_s,
        "gangs": [row(each) for each in answer.gangs[:GANGS_MOST]],
        "more": max(0, len(answer.gangs) - GANGS_MOST),
        "totals": [{"name": name, "now": now, "then": then} for name, now, then in answer.totals],
        "notes": answer.notes,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
