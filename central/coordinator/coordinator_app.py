"""The coordinator's requests: each is read with its bounds, given to the pure core with the present time, and its
answer written as JSON."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import orjson

from central.controllers.training.checkpoints import MOST_PARTS, NoSuchCheckpoint
from central.controllers.training.generation import NotAllowed, NotJoined, Outdone, Process, Stale
from central.controllers.training.pair_checks import PairReport
from central.controllers.training.pauses import PauseMeter
from central.controllers.training.standstills import Standstill
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import NoLonger, OtherEpoch
from central.controllers.training.tasks import NoSuchQueue
from central.coordinator import request_fields as fields
from central.coordinator import task_requests
from central.coordinator.coordinator_status import metrics_text, status
from central.coordinator.request_fields import FieldRefused
from central.coordinator.request_rates import RequestRates
from central.coordinator.saving import Saving
from central.model import limits
from central.model.json_types import Json, is_deeper
from protos.common.http_server import HttpAnswer, HttpRequest

_WAIT_S, _MEMBER_WAIT_S = 30, 10
_STOOD_STILL_S = 3.0  # it advances each second
_DURABLE_S = 5.0  # an answer that promises durability waits this long for the store
_TELL_S = 1.0  # a generation is announced after this long even if it is not stored
_DATA_BYTES, _DATA_DEPTH = 64 << 10, 20
MOST_BYTES = 1 << 50
MOST_RANKS = 100_000

_LOG = logging.getLogger(__name__)
Route = Callable[["CoordinatorApp", Json], Json | Awaitable[HttpAnswer]]


class CoordinatorApp:
    def __init__(self, state: StoredState, saving: Saving) -> None:
        self.state, self.saving = state, saving
        self.rates = RequestRates()
        self.pauses = PauseMeter()
        self._changed: set[asyncio.Future[None]] = set()
        self._mark: object = None
        self._advanced_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    # -- the core, with the time

    def advance(self) -> None:
        """Draws conclusions, wakes the long polls if there is something new, and sets the next alarm."""
        before, self._advanced_at = self._advanced_at, time.monotonic()
        if self._advanced_at - before > _STOOD_STILL_S:
            self.state.membership.stood_still(self._advanced_at - before)
        at = self.state.advance(self._advanced_at)
        self.rates.forget(self.state.membership.present())
        self._announce()
        if self._timer is not None:
            self._timer.cancel()
        delay = min(1.0, max(0.01, at - time.monotonic()))
        self._timer = asyncio.get_running_loop().call_later(delay, self.advance)

    def _announce(self) -> None:
        members = self.state.membership
        newest = members.newest
        mark = (
            members.number,
            newest and (newest.number, newest.state, newest.stop_after_step, len(newest.processes)),
            members.over,
            members.asked_at,
        )
        if mark != self._mark:
            self._mark = mark
            for one in self._changed:
                if not one.done():
                    one.set_result(None)

    # -- requests

    def __call__(self, request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        try:
            return self._dispatch(request)
        except Exception as error:  # noqa: BLE001  # each request has an answer
            return self._failed(error)

    def _dispatch(self, request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        get, post = _GET.get(request.path), _POST.get(request.path)
        if get is None and post is None:
            return problem(404, f"there is no {request.path[:100]}")
        if request.method == "GET" and get is not None:
            answer = get(self, request.query)
        elif request.method == "POST" and post is not None:
            answer = self._post(post, fields.parse(request.body))
        else:
            return problem(405, f"{request.path} is for {'GET' if get else 'POST'}")
        if asyncio.iscoroutine(answer):
            return self._guarded(answer)
        return answer if isinstance(answer, HttpAnswer) else json_answer(answer)

    def _post(self, route: Route, data: Json) -> Any:
        member = data.get("member")
        if isinstance(member, int) and not self.rates.allows(member, time.monotonic()):
            return problem(429, f"member: {member} sends more than 200 requests in a second", 1)
        answer = route(self, data)
        self._announce()
        return answer

    async def _guarded(self, answer: Coroutine[Any, Any, HttpAnswer]) -> HttpAnswer:
        try:
            return await answer
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # each request has an answer
            return self._failed(error)

    def _failed(self, error: Exception) -> HttpAnswer:
        if isinstance(error, FieldRefused):
            return problem(400, str(error))
        if isinstance(error, Stale):
            number = self.state.membership.number
            joins = isinstance(error, NotJoined)
            body: Json = {"error": str(error), "generation": number, "join": joins}
            if isinstance(error, OtherEpoch):
                body["epoch"] = error.epoch
            if isinstance(error, NoLonger):
                body["lost"] = True
            if isinstance(error, Outdone):
                body["incarnation"] = error.incarnation
            return json_answer(body, 409)
        if isinstance(error, NotAllowed):
            number = self.state.membership.number
            return json_answer({"error": str(error), "generation": number, "join": False}, 409)
        if isinstance(error, NoSuchQueue | NoSuchCheckpoint):
            return problem(404, str(error))
        _LOG.error("a request was not answered; this is a bug", exc_info=error)
        return problem(500, "internal error; the coordinator's log says more")

    # -- membership

    def join(self, data: Json) -> Json:
        process = Process(
            fields.number(data, "member", most=limits.REPLICAS - 1),
            fields.number(data, "incarnation"),
            fields.text(data, "address"),
            fields.text(data, "pod", default=""),
            fields.text(data, "uid", default=""),
            fields.text(data, "node", default=""),
            fields.text(data, "island", default=""),
            fields.number(data, "gpus", most=1024, default=0),
        )
        members = self.state.membership
        seen = fields.number(data, "generation", default=0)
        members.raise_number(time.monotonic(), seen)
        number = members.join(time.monotonic(), process)
        return {
            "generation": number,
            "deadline_s": members.rules.join_wait_s,
            "silent_s": members.rules.silent_s,
            "hang_s": members.rules.hang_s,
        }

    def generation(self, query: dict[str, str]) -> Awaitable[HttpAnswer]:
        return self._generation(query)

    async def _generation(self, query: dict[str, str]) -> HttpAnswer:
        after = fields.query_number(query, "after", fields.MOST_NUMBER, 0)
        wait = fields.query_number(query, "wait", 3600, 0)
        live = query.get("state") == "live"
        member = incarnation = None
        members = self.state.membership
        members.raise_number(time.monotonic(), after)
        if "member" in query:
            member = fields.query_number(query, "member", limits.REPLICAS - 1, 0)
            incarnation = fields.query_number(query, "incarnation", fields.MOST_NUMBER, 0)
            members.heard(time.monotonic(), member, incarnation)
        self.advance()
        limit = _WAIT_S if member is None else min(_MEMBER_WAIT_S, members.rules.silent_s / 3)
        await self._changes(after, min(wait, limit), live, member)
        if member is not None and incarnation is not None:
            members.roster.of(member, incarnation)  # lost while it waited: NotJoined
        if self.saving.before_telling and self.saving.stored_mark != members.mark:
            await self.saving.saved(_TELL_S)
        answer = members.answer(time.monotonic(), member)
        return json_answer({**answer, "check_s": self.state.pairs.due_s(members.newest)})

    async def _changes(self, after: int, wait_s: float, live: bool, member: int | None) -> None:
        members = self.state.membership
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not members.has_changed(after, live=live):
            if live and member is not None and members.unacknowledged(member):
                return
            if member is not None and members.is_asked(member):
                return  # its next request shows that it runs
            left = until - loop.time()
            if left <= 0:
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._changed.add(waiter)
            try:
                await asyncio.wait_for(waiter, left)
            except TimeoutError:
                return
            finally:
                self._changed.discard(waiter)

    def ack(self, data: Json) -> Json:
        member, incarnation = who(data)
        number = fields.number(data, "generation")
        step = fields.optional_number(data, "step")
        return self.state.membership.ack(time.monotonic(), member, incarnation, number, step)

    def report(self, data: Json) -> Json:
        member, incarnation = who(data)
        number, step = fields.number(data, "generation"), fields.number(data, "step")
        samples, seconds = fields.amount(data, "samples"), fields.amount(data, "seconds")
        own_s = fields.amount(data, "own")
        left = fields.optional_number(data, "epoch_left")
        for name in ("noise", "loss"):
            fields.finite(data, name)
        now = time.monotonic()
        answer = self.state.membership.report(now, member, incarnation, number, step)
        if step > self.rates.of(member).step:
            self.state.standstills.end()
        told = self.rates.report(member, now, step, samples, seconds, own_s=own_s, epoch_left=left)
        if told is not None:
            step_s, own_s = told
            self.state.compare(now, member, own_s, step_s)
        self.pauses.report(now, number, step)
        members = self.state.membership
        self.state.gpu_time.report(now, number, step, members)
        if members.live is not None and members.proposal is None:
            self.state.speeds.report(now, members.live, members.plan, step, samples)
        return answer

    def ask(self, data: Json) -> Json:
        member, incarnation = who(data)
        number = fields.number(data, "generation")
        self.state.membership.ask(time.monotonic(), member, incarnation, number)
        self.advance()
        return {}

    def standstill(self, data: Json) -> Json:
        member, _ = self.joined(data)
        number = self._live(data)
        size = fields.number(data, "size", least=1, most=MOST_RANKS)
        one = Standstill(
            member,
            fields.number(data, "rank", most=size - 1),
            fields.amount(data, "seconds"),
            fields.text(data, "phase"),
            fields.number(data, "entered", least=-1, default=-1),
            fields.text(data, "waits_in", default=""),
            fields.printable(data, "stack"),
        )
        self.state.stands_still(time.monotonic(), number, size, one)
        self.advance()
        return {}

    def check_pairs(self, data: Json) -> Json:
        process, pairs = who(data), self.state.pairs
        if process not in pairs.replaced:
            member, _ = self.joined(data)
            self._live(data)
            seconds = fields.seconds_by_member(data, "seconds", limits.REPLICAS)
            failed = fields.numbers(data, "failed", limits.REPLICAS)
            one = PairReport(member, seconds, frozenset(failed))
            self.state.check_pairs(time.monotonic(), one)
            self.advance()
        live = self.state.membership.live
        return {"done": not pairs.due_s(live), "replaced": process in pairs.replaced}

    def _live(self, data: Json) -> int:
        """The generation that the request is about. Raises Stale unless it is live."""
        number, live = fields.number(data, "generation"), self.state.membership.live
        if live is None or live.number != number:
            raise Stale(f"generation {number} is not live")
        return number

    def leave(self, data: Json) -> Json:
        member, incarnation = who(data)
        code = fields.number(data, "code", least=-255, most=255)
        text = fields.message(data, "message")
        self.state.membership.leave(time.monotonic(), member, incarnation, code, text)
        self.advance()
        return {}

    # -- checkpoints

    def begin(self, data: Json) -> Json:
        self.joined(data)
        number, step = self._live(data), fields.number(data, "step")
        token = self.state.tasks.token()
        one = self.state.checkpoints.begin(time.monotonic(), number, step, token)
        return {"name": one.name, "token": one.token}

    def part(self, data: Json) -> Json:
        self.joined(data)
        self.state.checkpoints.part(
            fields.text(data, "name"),
            fields.number(data, "rank"),
            fields.number(data, "parts", least=1, most=MOST_PARTS),
            fields.text(data, "digest", default=""),
            fields.number(data, "bytes", most=MOST_BYTES, default=0),
        )
        return {}

    async def complete(self, data: Json) -> HttpAnswer:
        self.joined(data)
        name, position = fields.text(data, "name"), data.get("data")
        if len(orjson.dumps(position)) > _DATA_BYTES or is_deeper(position, _DATA_DEPTH):
            raise FieldRefused(f"data: more than {_DATA_BYTES} bytes, or {_DATA_DEPTH} levels")
        missing = self.state.checkpoints.finish(time.monotonic(), name, position)
        return await self.when_durable({"complete": not missing, "missing": missing})

    def latest(self, query: dict[str, str]) -> Json | HttpAnswer:
        return self.state.checkpoints.latest() or HttpAnswer(204)

    async def restore(self, data: Json) -> HttpAnswer:
        self.joined(data)
        newest = self.state.membership.newest
        number = newest.number if newest else 0
        token = self.state.checkpoints.load(fields.text(data, "name"), number)
        if token is not None:
            self.state.tasks.rewind(token)
        return await self.when_durable({})

    # -- help

    def joined(self, data: Json) -> tuple[int, int]:
        """The member that sent the request. Raises NotJoined."""
        member, incarnation = who(data)
        self.state.membership.heard(time.monotonic(), member, incarnation)
        return member, incarnation

    async def when_durable(self, body: Json) -> HttpAnswer:
        if await self.saving.saved(_DURABLE_S):
            return json_answer(body)
        why = self.saving.trouble or "the store is slow"
        return problem(503, f"not stored: {why}; send the request again", 2)

    def probe(self, query: dict[str, str]) -> HttpAnswer:
        return HttpAnswer(200, b"ok\n", "text/plain")

    def status(self, query: dict[str, str]) -> Json:
        return status(self.state, self.saving, self.rates, time.monotonic())

    def metrics(self, query: dict[str, str]) -> HttpAnswer:
        text = metrics_text(self.state, self.saving, self.rates, time.monotonic())
        return HttpAnswer(200, text.encode(), "text/plain; version=0.0.4")


def who(data: Json) -> tuple[int, int]:
    member = fields.number(data, "member", most=limits.REPLICAS - 1)
    return member, fields.number(data, "incarnation")


def json_answer(body: Json, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, orjson.dumps(body))


def problem(status: int, why: str, retry_after_s: int = 0) -> HttpAnswer:
    return HttpAnswer(status, orjson.dumps({"error": why}), retry_after_s=retry_after_s)


_GET: dict[str, Callable[[CoordinatorApp, dict[str, str]], Any]] = {
    "/healthz": CoordinatorApp.probe,
    "/readyz": CoordinatorApp.probe,
    "/metrics": CoordinatorApp.metrics,
    "/v1/generation": CoordinatorApp.generation,
    "/v1/epoch": task_requests.epoch,
    "/v1/results": task_requests.results,
    "/v1/checkpoint/latest": CoordinatorApp.latest,
    "/v1/status": CoordinatorApp.status,
}
_POST: dict[str, Callable[[CoordinatorApp, Json], Any]] = {
    "/v1/join": CoordinatorApp.join,
    "/v1/ack": CoordinatorApp.ack,
    "/v1/report": CoordinatorApp.report,
    "/v1/ask": CoordinatorApp.ask,
    "/v1/standstill": CoordinatorApp.standstill,
    "/v1/pairs": CoordinatorApp.check_pairs,
    "/v1/leave": CoordinatorApp.leave,
    "/v1/queue": task_requests.queue,
    "/v1/lease": task_requests.lease,
    "/v1/done": task_requests.done,
    "/v1/failed": task_requests.failed,
    "/v1/progress": task_requests.progress,
    "/v1/checkpoint/begin": CoordinatorApp.begin,
    "/v1/checkpoint/part": CoordinatorApp.part,
    "/v1/checkpoint/complete": CoordinatorApp.complete,
    "/v1/checkpoint/restore": CoordinatorApp.restore,
}
