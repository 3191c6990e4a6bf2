"""The records of gangs as JSON, for the console and for `lockstep job history`: those of the running scheduler, and
those of the history for gangs that ended before it began."""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any

import orjson

from central.model.json_types import Json
from central.server.grpc.visibility import Viewer
from central.server.history.gang_records import GangRecords
from central.server.history.past_cluster import PastCluster
from central.server.stats.sliced_question import QuestionLoop, ask_in_slices
from central.server.stats.surveyor import Survey
from central.server.web import job_lists
from central.server.web.history_api import DAY_S, TIME_MOST
from central.server.web.web_request import Request, page_of
from protos.common.http_server import RequestRefused

AGE_S = 2.0  # of an answer that all viewers share


class RecordApi:
    def __init__(self, loop: QuestionLoop, records: GangRecords, past: PastCluster | None) -> None:
        self._loop, self._records, self._past = loop, records, past
        self._listed, self._noted = _Shared(self._summaries), _Shared(self._read_events)

    def job(self, request: Request, viewer: Viewer) -> Json:
        """Returns the latest record of the name, which a gang has, or its owner, with or without its kind."""
        namespace, name = request.text("namespace"), request.text("name")
        if not viewer.sees(namespace):
            raise RequestRefused(403, f'you may see no gangs of namespace "{namespace:.63}"')
        found = self._loop.ask(lambda _: self._records.find(namespace, name))
        if found is None and self._past is not None:
            found = _read(lambda past: past.record(namespace, name), self._past)
        if found is None:
            raise RequestRefused(404, f"no record of a job or gang named {namespace}/{name}")
        record: Json = found if isinstance(found, dict) else orjson.loads(found)
        redacted = self._redactor(viewer)
        for part, field in (("events", "text"), ("waits", "reason")):
            for each in record[part]:
                each[field] = redacted(each[field])
        return record

    def jobs(self, request: Request, viewer: Viewer, survey: Survey) -> Json:
        """Returns gangs of the survey's time, from the row `after` on: those with a `namespace`, `queue`, `user`,
        `state` (running, pending or ended), and `find` in their names, in the order of `sort`."""
        rows = job_lists.rows_at(self._listed.answer(), survey, survey.at)
        seen = [row for row in rows if viewer.sees(row["namespace"])]
        found, states = job_lists.chosen(seen, request)
        redacted = self._redactor(viewer)
        page = page_of(request, found)
        for row in page["rows"]:
            row["why"] = redacted(row["why"])
            if request.query.get("at"):
                row["gpu_use"] = None  # only that of now is known
        return {**page, "states": states}

    def happened(self, request: Request, viewer: Viewer) -> Json:
        """Returns what happened to gangs, nodes and queues in the day before `at` (now), latest first, from the row
        `after` on; of one `kind` (job, node, queue), and with `find` in it."""
        given = request.number("at", 0, TIME_MOST)
        at = given or time.time()
        may = {"job": True, "node": viewer.sees_nodes(), "queue": viewer.sees_queues()}
        kind, words = request.query.get("kind", ""), request.query.get("find", "").lower().split()
        rows = []
        for record in self._read_events(at - DAY_S) if given else self._noted.answer():
            of = "job" if record["namespace"] else record["name"].partition("/")[0]
            if (
                not may[of]
                or kind not in ("", of)
                or (of == "job" and not viewer.sees(record["namespace"]))
            ):
                continue
            named = {
                "kind": of,
                "namespace": record["namespace"],
                "name": record["name"],
                "gang": record["gang"],
            }
            rows += [
                {**named, **each}
                for each in reversed(record["events"])
                if at - DAY_S <= each["at"] <= at
            ]
        redacted = self._redactor(viewer)
        found = [each for each in rows if all(word in _searched(each) for word in words)]
        page = page_of(request, sorted(found, key=lambda each: -each["at"]))
        for row in page["rows"]:
            row["text"] = redacted(row["text"])
        return page

    def events_of(self, name: str) -> list[Json]:
        """Returns what happened to node/NAME or queue/NAME."""
        record = self._records.cluster.records.get(name)
        return [*record.events] if record is not None else []

    def _redactor(self, viewer: Viewer) -> Callable[[str], str]:
        if viewer.sees_everything():
            return str
        namespaces = self._loop.ask(lambda scheduler: scheduler.state.namespaces)
        return lambda text: viewer.redacted(text, namespaces)

    def _summaries(self) -> list[Json]:
        listed: list[Json] = ask_in_slices(self._loop, self._records.listed)
        uids = {each["uid"] for each in listed}
        past = _read(PastCluster.ended, self._past) if self._past is not None else []
        return [*listed, *(each for each in past if each["uid"] not in uids)]

    def _read_events(self, since_s: float | None = None) -> list[Json]:
        shown, ended = ask_in_slices(self._loop, self._records.events)
        found = [
            *({**facts, "events": events} for facts, events in shown),
            *map(orjson.loads, ended),
        ]
        if self._past is not None:
            uids, since = {each["uid"] for each in found}, since_s or time.time() - DAY_S
            past = _read(lambda past: past.events(since), self._past)
            found += [each for each in past if each["uid"] not in uids]
        return found


class _Shared:
    """An answer that is as young as AGE_S, read by one thread at a time."""

    def __init__(self, read: Callable[[], list[Json]]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._at, self._answer = -inf, list[Json]()

    def answer(self) -> list[Json]:
        with self._lock:
            if time.monotonic() - self._at > AGE_S:
                self._answer, self._at = self._read(), time.monotonic()
            return self._answer


def _searched(row: Json) -> str:
    return f"{row['namespace']}/{row['name']} {row['gang']} {row['what']} {row['cause']} {row['text']}".lower()


def _read(question: Callable[[PastCluster], Any], past: PastCluster) -> Any:
    try:
        return question(past)
    except (OSError, ValueError) as error:
        raise RequestRefused(503, f"the history can't be read now: {error}") from error
