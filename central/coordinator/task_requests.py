"""Requests about tasks."""

import time
from typing import Protocol

from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import LeaseKey, NoLonger, TaskQueue
from central.controllers.training.task_source import MOST_NAMES, QueueSettings, TaskSource
from central.coordinator import request_fields as fields
from central.coordinator.request_fields import FieldRefused
from central.model.json_types import Json
from protos.common.http_server import HttpAnswer

_NAMES_AT_ONCE, _NAME = 10_000, 1024
_TASKS_AT_ONCE = 64
_RESULTS_AT_ONCE = 1000
_MOST_EPOCH = 1 << 31


class TaskApp(Protocol):
    """The part of the app that these requests need."""

    state: StoredState

    def joined(self, data: Json) -> tuple[int, int]: ...

    async def when_durable(self, body: Json) -> HttpAnswer: ...


async def queue(app: TaskApp, data: Json) -> HttpAnswer:
    settings = QueueSettings(
        fields.number(data, "seed", default=0),
        fields.flag(data, "commit"),
        fields.number(data, "failures", most=1000, default=3),
        fields.flag(data, "speculate"),
    )
    start, names = 0, []
    if "range" in data:
        span = data["range"]
        if not isinstance(span, dict):
            raise FieldRefused("range: not an object with records and size")
        records = fields.number(span, "records", least=1)
        source = TaskSource.of_range(records, fields.number(span, "size", least=1, default=1))
    else:
        names = fields.names(data, "tasks", _NAMES_AT_ONCE, _NAME)
        total = fields.number(data, "total", most=MOST_NAMES, default=len(names))
        source = TaskSource.of_names(total)
        start = fields.number(data, "from", most=MOST_NAMES, default=0)
    made = app.state.tasks.create(fields.text(data, "queue"), settings, source, start, names)
    return await app.when_durable({"tasks": made.source.total})


def lease(app: TaskApp, data: Json) -> Json:
    owner = app.joined(data)
    most = fields.number(data, "most", least=1, most=_TASKS_AT_ONCE, default=1)
    return _of(app, data).lease(time.monotonic(), owner, _epoch(data), most)


async def done(app: TaskApp, data: Json) -> HttpAnswer:
    """One task, or a list of them of which those that are no longer the caller's are named."""
    owner = app.joined(data)
    found, epoch = _of(app, data), _epoch(data)
    now = time.monotonic()
    answer: Json = {}
    if "tasks" in data:
        each = [_finished(one) for one in fields.objects(data, "tasks", _TASKS_AT_ONCE)]
        refused = []
        for task, attempt, result in each:
            try:
                found.finish(now, LeaseKey(owner, epoch, task, attempt), result)
            except NoLonger:
                refused.append(task)
        answer = {"refused": refused}
    else:
        task, attempt, result = _finished(data)
        found.finish(now, LeaseKey(owner, epoch, task, attempt), result)
    return await app.when_durable(answer)


def _finished(one: Json) -> tuple[int, int, str]:
    result = one.get("result") or ""
    if not isinstance(result, str) or len(result) > fields.MOST_TEXT:
        raise FieldRefused(f"result: not a text of at most {fields.MOST_TEXT} characters")
    return fields.number(one, "task"), fields.number(one, "attempt"), result


def failed(app: TaskApp, data: Json) -> Json:
    owner = app.joined(data)
    task, attempt, _ = _finished(data)
    why = fields.message(data, "why")
    key = LeaseKey(owner, _epoch(data), task, attempt)
    if fields.flag(data, "given_back"):
        _of(app, data).give_back(key)
    else:
        _of(app, data).fail(key, why)
    return {}


def progress(app: TaskApp, data: Json) -> Json:
    owner = app.joined(data)
    task, attempt, _ = _finished(data)
    upto = fields.number(data, "upto", default=0)
    found = _of(app, data)
    lease_s = found.progress(time.monotonic(), LeaseKey(owner, _epoch(data), task, attempt), upto)
    return {"lease_s": lease_s}


def epoch(app: TaskApp, query: dict[str, str]) -> Json:
    return app.state.tasks[_name(query)].summary()


def results(app: TaskApp, query: dict[str, str]) -> Json:
    found = app.state.tasks[_name(query)]
    number = fields.query_number(query, "epoch", _MOST_EPOCH, max(0, found.epoch))
    start = fields.query_number(query, "from", fields.MOST_NUMBER, 0)
    return found.results_of(number, start, _RESULTS_AT_ONCE)


def _of(app: TaskApp, data: Json) -> TaskQueue:
    return app.state.tasks[fields.text(data, "queue")]


def _epoch(data: Json) -> int:
    return fields.number(data, "epoch", most=_MOST_EPOCH)


def _name(query: dict[str, str]) -> str:
    return fields.text(dict(query), "queue")
