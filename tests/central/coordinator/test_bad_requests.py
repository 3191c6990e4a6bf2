"""What a member may get wrong: each request is answered with a sentence that names the field, and those who train do
not notice. The app without a socket, and without a store."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from central.controllers.training.generation import MembershipRules
from central.controllers.training.stored_state import StoredState
from central.coordinator.coordinator_app import CoordinatorApp
from central.coordinator.request_rates import MOST_REPORTS, MOST_REQUESTS, RequestRates
from central.coordinator.saving import Saving
from central.coordinator.state_store import NoStore
from central.coordinator.training_messages import training_report
from protos.common.http_server import HttpAnswer, HttpRequest

ME = {"member": 0, "incarnation": 1}
HERS = {"member": 1, "incarnation": 1}
QUEUE = {"queue": "q", "epoch": 0}
STANDS = {**ME, "generation": 1, "size": 2, "rank": 0, "seconds": 63.0, "phase": "is within a step"}
MIB = 1 << 20


class Served:
    """A Job of two members that train, with a queue of two tasks."""

    def __init__(self) -> None:
        state = StoredState("team/train/uid", MembershipRules(least=2, most=2))
        self.saving = Saving(state, NoStore())
        self.app = CoordinatorApp(state, self.saving)

    async def start(self) -> None:
        self.writing = asyncio.create_task(self.saving.run())
        for one in (ME, HERS):
            await self.ok("/v1/join", {**one, "address": f"w{one['member']}"})
        for one in (ME, HERS):
            await self.ok("/v1/ack", {**one, "generation": 1})
        await self.ok("/v1/queue", {"queue": "q", "range": {"records": 2, "size": 1}})

    def close(self) -> None:
        self.writing.cancel()
        self.saving.close()

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        found = self.app(HttpRequest("POST", path, {}, raw))
        answer = found if isinstance(found, HttpAnswer) else await found
        return answer.status, json.loads(answer.body)

    async def ok(self, path: str, body: object) -> Any:
        status, answer = await self.post(path, body)
        assert status == 200, answer
        return answer

    async def lease(self, who: dict[str, int]) -> dict[str, int]:
        [task] = (await self.ok("/v1/lease", {**who, **QUEUE, "most": 1}))["tasks"]
        return {"task": task["task"], "attempt": task["attempt"]}

    def status(self) -> Any:
        found = self.app(HttpRequest("GET", "/v1/status", {}))
        assert isinstance(found, HttpAnswer)
        return json.loads(found.body)

    def trains(self) -> bool:
        live = self.app.state.membership.live
        return live is not None and [one.member for one in live.processes] == [0, 1]


def serve(story: Callable[[Served], Awaitable[None]]) -> None:
    async def run() -> None:
        served = Served()
        await served.start()
        try:
            await story(served)
            assert served.trains()
        finally:
            served.close()

    asyncio.run(run())


def named(*names: object, **more: object) -> dict[str, object]:
    return {"queue": "n", "tasks": list(names), **more}


def deep(levels: int) -> bytes:
    return b'{"member":0,"data":' + b"[" * levels + b"]" * levels + b"}"


CASES: dict[str, tuple[str, object, int, str]] = {
    "a member of 10^9": ("join", {**ME, "member": 10**9, "address": "a"}, 400, "member: 1000000000 is"),
    "a member above the most": ("join", {**ME, "member": 7, "address": "a"}, 409, "member 7"),
    "a member of text": ("join", {**ME, "member": "0", "address": "a"}, 400, "member: '0' is not a"),
    "a member that is true": ("ack", {**ME, "member": True, "generation": 1}, 400, "member: True"),
    "an address of two lines": ("join", {**HERS, "address": "a\nb"}, 400, "address: 'a\\nb' is not"),
    "an address of 10 KiB": ("join", {**HERS, "address": "a" * 10_240}, 400, "address: 'aaaa"),
    "a generation far ahead": ("join", {**ME, "address": "a", "generation": 2**40}, 409, "generation"),
    "a step of -3": ("report", {**ME, "generation": 1, "step": -3}, 400, "step: -3 is not a whole"),
    "seconds of infinity": ("report", b'{"member":0,"incarnation":1,"generation":1,"step":1,"seconds":1e999}', 400, ""),
    "a loss of NaN": ("report", b'{"member":0,"incarnation":1,"generation":1,"step":1,"loss":NaN}', 400, "body: not JSON"),
    "a task with a newline": ("queue", named("a\nb"), 400, "tasks: 'a\\nb' is not a name"),
    "a task with NUL": ("queue", named("a\x00"), 400, "tasks: 'a\\x00' is not a name"),
    "a task of 10 KiB": ("queue", named("x" * 10_240), 400, "tasks: 'xxx"),
    "a task without a name": ("queue", named(""), 400, "tasks: '' is not a name"),
    "a task given twice": ("queue", named("a", "b", "a"), 409, "tasks: a is given twice"),
    "10^6 tasks": ("queue", named("a", total=10**6), 400, "total: 1000000 is not"),
    "10^5 names at once": ("queue", named(*"ab" * 50_000), 400, "tasks: not a list of at most 10000"),
    "10^9 tasks of a range": ("queue", {"queue": "n", "range": {"records": 10**9, "size": 1}}, 409, "range: 1000000000"),
    "a range of -3": ("queue", {"queue": "n", "range": {"records": -3}}, 400, "records: -3 is not"),
    "a queue with a newline": ("queue", {"queue": "a\nb", "tasks": []}, 400, "queue: 'a\\nb' is not"),
    "another queue of the name": ("queue", {"queue": "q", "range": {"records": 3, "size": 1}}, 409, "queue: q exists"),
    "done in no queue": ("done", {**ME, "queue": "another", "epoch": 0, "task": 0, "attempt": 1}, 404, "queue: there is no queue another"),
    "done of no task": ("done", {**ME, **QUEUE, "task": 99, "attempt": 1}, 409, "task 99 of queue q is no longer yours"),
    "done by nobody": ("done", {"member": 5, "incarnation": 1, **QUEUE, "task": 0, "attempt": 1}, 409, "member 5"),
    "a result of 1 MiB": ("done", {**ME, **QUEUE, "task": 0, "attempt": 1, "result": "x" * MIB}, 400, "result: not a"),
    "100 tasks done at once": ("done", {**ME, **QUEUE, "tasks": [{}] * 100}, 400, "tasks: not a list of at most"),
    "a body of 40 levels": ("checkpoint/complete", deep(40), 400, "body: nests deeper than 32"),
    "a body of 100,000 levels": ("checkpoint/complete", deep(100_000), 400, "body: not JSON"),
    "a body that is a list": ("join", b"[]", 400, "body: not a JSON object"),
    "a number of 10,000 digits": ("join", b'{"member":' + b"9" * 10_000 + b"}", 400, ""),
    "rubbish": ("join", b"\xff\x00{", 400, "body: not JSON"),
    "a standstill of a rank too many": ("standstill", {**ME, "generation": 1, "size": 2, "rank": 2}, 400, "rank: 2 is not"),
    "a standstill in two lines": ("standstill", {**STANDS, "phase": "a\nb"}, 400, "phase: 'a\\nb' is not"),
    "a standstill of old": ("standstill", {**STANDS, "generation": 7}, 409, "generation 7 is not live"),
    "pairs with a name": ("pairs", {**ME, "generation": 1, "seconds": {"x": 1}, "failed": []}, 400, "seconds: a name is not"),
    "pairs without time": ("pairs", {**ME, "generation": 1, "seconds": {"1": -1}, "failed": []}, 400, "1: -1 is not"),
    "pairs as a list": ("pairs", {**ME, "generation": 1, "seconds": [1], "failed": []}, 400, "seconds: not an object"),
    "pairs with no number": ("pairs", {**ME, "generation": 1, "seconds": {}, "failed": ["1"]}, 400, "failed: not a list"),
    "pairs of old": ("pairs", {**ME, "generation": 7, "seconds": {}, "failed": []}, 409, "generation 7 is not live"),
    "pairs of a stranger": ("pairs", {**ME, "incarnation": 9, "generation": 1}, 409, "member 0 with"),
    "a checkpoint of nobody": ("checkpoint/part", {**ME, "name": "../../etc", "rank": 0, "parts": 1}, 404, ""),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_the_field_is_named_and_the_others_train_on(what: str) -> None:
    path, body, status, says = CASES[what]

    async def story(served: Served) -> None:
        found, answer = await served.post(f"/v1/{path}", body)
        assert found == status, answer
        assert answer["error"].startswith(says), answer
        assert len(answer["error"]) < 300

    serve(story)


def test_the_stack_of_a_rank_has_no_control_characters_and_ends_with_a_step() -> None:
    async def story(served: Served) -> None:
        evil = "\x1b[31mtrain.py:1 f\n\u202eio.py:2 g\x00" + "x" * 9000
        await served.ok("/v1/standstill", {**STANDS, "stack": evil, "entered": -1})
        await served.ok("/v1/standstill", {**STANDS, **HERS, "rank": 1, "waits_in": "all_reduce 4"})
        found = served.status()["standstill"]
        assert found["members"] == [0]
        stack = found["ranks"][0]["stack"]
        assert len(stack) <= 4096
        assert all(line.isprintable() for line in stack.splitlines())
        assert training_report(served.app.state, 0).standstill == found["why"]
        assert len(found["why"]) < 1000
        await served.ok("/v1/report", {**ME, "generation": 1, "step": 9})
        assert served.status()["standstill"] is None
        assert training_report(served.app.state, 0).standstill == ""

    serve(story)


def test_done_for_what_another_member_has_changes_nothing() -> None:
    async def story(served: Served) -> None:
        leased = await served.lease(HERS)
        for wrong in ({}, {"attempt": leased["attempt"] + 1}, {"epoch": 1}):
            for path in ("done", "failed", "progress"):
                status, answer = await served.post(
                    f"/v1/{path}", {**ME, **QUEUE, **leased, **wrong}
                )
                assert (status, answer["lost"]) == (409, True)
                assert answer["error"].endswith("is no longer yours")
        await served.ok("/v1/done", {**HERS, **QUEUE, **leased})
        summary = served.app.state.tasks["q"].summary()
        assert (summary["done"], summary["todo"]) == (1, 1)

    serve(story)


def test_one_that_reports_every_millisecond_is_slowed_and_nobody_else_is() -> None:
    rates = RequestRates()
    allowed = [rates.allows(0, 10.0 + number / 1000) for number in range(1000)]
    assert allowed == [number < MOST_REQUESTS for number in range(1000)]
    assert rates.allows(1, 10.999)
    assert rates.allows(0, 11.0)


def test_of_many_reports_in_a_second_only_the_first_count() -> None:
    """A speed is by the coordinator's clock: 1,000 steps that are claimed within a second say nothing more."""
    rates = RequestRates()
    for number in range(1000):
        at = 10.0 + number / 1000
        if rates.allows(0, at):
            rates.report(0, at, number, samples=1e9, seconds=1e-9)
    assert rates.of(0).step == MOST_REPORTS - 1
