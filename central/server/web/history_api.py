"""The past in the console: at which times there are pictures of the cluster, and curves of queues."""

import time

from central.model.json_types import Json
from central.server.grpc.usage_query import NO_HISTORY
from central.server.grpc.visibility import Viewer
from central.server.history.past_cluster import PastCluster
from central.server.stats.surveyor import Survey
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused

DAY_S = 86_400
TIME_MOST = 2**33
QUEUES_MOST = 500


class HistoryApi:
    """past: None, where no history is kept. Raises RequestRefused."""

    def __init__(self, past: PastCluster | None) -> None:
        self._past = past
        self.calls = {"/api/history": self.history, "/api/curves": self.curves}

    def survey(self, at_s: int) -> Survey:
        """The last picture that is not later."""
        try:
            found = self._known().at(at_s)
        except (OSError, ValueError) as error:
            raise RequestRefused(503, f"the history can't be read now: {error}") from error
        if found is None:
            raise RequestRefused(404, "the history does not reach back so far")
        return found

    def history(self, request: Request, viewer: Viewer) -> Json:
        """The times of the pictures, oldest first; none without a history."""
        if self._past is None:
            return {"kept": False, "times": []}
        try:
            return {"kept": True, "times": self._past.times()}
        except OSError as error:
            raise RequestRefused(503, f"the history can't be read now: {error}") from error

    def curves(self, request: Request, viewer: Viewer) -> Json:
        """Returns the last day, or a day before `at`: GPUs by queue as [used, deserved, requested], null while the
        queue did not exist."""
        if not viewer.sees_queues():
            raise RequestRefused(403, "you may not get queues")
        found = self._samples(request)
        names = sorted({name for _, sample in found for name in sample["queues"]})[:QUEUES_MOST]
        return {
            "times": [at for at, _ in found],
            "queues": {name: [sample["queues"].get(name) for _, sample in found] for name in names},
        }

    def _samples(self, request: Request) -> list[tuple[int, Json]]:
        until = request.number("at", 0, TIME_MOST) or int(time.time())
        try:
            return self._known().samples(until - DAY_S, until)
        except (OSError, ValueError) as error:
            raise RequestRefused(503, f"the history can't be read now: {error}") from error

    def _known(self) -> PastCluster:
        if self._past is None:
            raise RequestRefused(404, NO_HISTORY)
        return self._past
