"""The records of gangs as JSON, for the console and for `lockstep job history`: those of the running scheduler, and those
of the history for gangs that ended before it began."""

from collections.abc import Callable
from typing import Any

import orjson

from central.model.json_types import Json
from central.server.grpc.visibility import Viewer
from central.server.history.gang_records import GangRecords
from central.server.history.past_cluster import PastCluster
from central.server.stats.sliced_question import QuestionLoop
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused

ROWS_MOST = 500


class RecordApi:
    def __init__(self, loop: QuestionLoop, records: GangRecords, past: PastCluster | None) -> None:
        self._loop, self._records, self._past = loop, records, past
        self.calls = {"/api/job": self.job, "/api/jobs": self.jobs}

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
        namespaces = self._loop.ask(lambda scheduler: scheduler.state.namespaces)
        for part, field in (("events", "text"), ("waits", "reason")):
            for each in record[part]:
                each[field] = viewer.redacted(each[field], namespaces)
        return record

    def jobs(self, request: Request, viewer: Viewer) -> Json:
        """Returns the gangs that have ended, latest first, from the row `after` on; of one namespace, if it is named."""
        known = {each["uid"]: each for each in self._loop.ask(lambda _: self._records.ended())}
        if self._past is not None:
            known = {each["uid"]: each for each in _read(PastCluster.ended, self._past)} | known
        namespace, first = request.query.get("namespace"), request.number("after", 0, 10**9)
        rows = [
            each
            for each in sorted(known.values(), key=lambda each: -each["ended"])
            if namespace in (None, each["namespace"]) and viewer.sees(each["namespace"])
        ]
        end = first + ROWS_MOST
        return {
            "rows": rows[first:end],
            "size": len(rows),
            "next": end if end < len(rows) else None,
        }


def _read(question: Callable[[PastCluster], Any], past: PastCluster) -> Any:
    try:
        return question(past)
    except (OSError, ValueError) as error:
        raise RequestRefused(503, f"the history can't be read now: {error}") from error
