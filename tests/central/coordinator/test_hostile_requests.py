"""Requests that nobody should send: no traceback, bounded memory, others served. LOCKSTEP_REQUESTS sets how many."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.central.coordinator.coordinator_process import CoordinatorProcess, MemberClient

_REQUESTS = int(os.environ.get("LOCKSTEP_REQUESTS", "2000"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if _REQUESTS < 10_000 else 36_000)]
_MORE_MEMORY = 48 << 20
PATHS = {
    "join": ("member", "incarnation", "address", "pod", "gpus"),
    "ack": ("member", "incarnation", "generation", "step"),
    "report": (
        "member",
        "incarnation",
        "generation",
        "step",
        "samples",
        "seconds",
        "epoch_left",
        "loss",
    ),
    "leave": ("member", "incarnation", "code", "message"),
    "queue": ("queue", "seed", "commit", "range", "tasks", "total", "from", "failures"),
    "lease": ("member", "incarnation", "queue", "epoch", "most"),
    "done": ("member", "incarnation", "queue", "epoch", "task", "attempt", "tasks", "result"),
    "failed": ("member", "incarnation", "queue", "epoch", "task", "attempt", "why"),
    "progress": ("member", "incarnation", "queue", "epoch", "task", "attempt", "upto"),
    "checkpoint/begin": ("member", "incarnation", "generation", "step"),
    "checkpoint/part": ("member", "incarnation", "name", "rank", "parts", "digest", "bytes"),
    "checkpoint/complete": ("member", "incarnation", "name", "data"),
    "checkpoint/restore": ("member", "incarnation", "name"),
}
VALUES: tuple[Any, ...] = (
    0, 1, 2, 3, -1, 64, 10**9, 2**53, 2**70, 1.5, 1e308, True, None, "", "q", "a\nb", "\x00", "x" * 10_000, "0",
    [], {}, ["a"], [1], ["x" * 2000], {"records": 10, "size": 1}, {"records": 2**52, "size": 1}, {"records": -3},
    [{"task": 0, "attempt": 1}], [[[[[[]]]]]], {"a": {"b": [1, 2, 3]}}, "ckpt-1-1",
)  # fmt: skip


def body(chosen: random.Random, names: tuple[str, ...]) -> bytes:
    found = {name: chosen.choice(VALUES) for name in names if chosen.random() < 0.9}
    if chosen.random() < 0.6:  # the first checks pass
        found |= {"member": 0, "incarnation": 1, "queue": "q"}
    text = json.dumps(found).encode()
    if chosen.random() < 0.05:
        at = chosen.randrange(len(text))
        return text[:at] + chosen.randbytes(3) + text[at:]
    if chosen.random() < 0.02:
        return b"[" * chosen.randrange(200_000)
    if chosen.random() < 0.02:
        return b'{"member": NaN, "step": Infinity}'
    return text


def test_no_request_is_answered_with_a_traceback(tmp_path: Path) -> None:
    chosen = random.Random(7)
    with CoordinatorProcess(tmp_path, most="4", store=f"file:{tmp_path}/q.db") as server:
        member = MemberClient(server, 0)
        member.join()
        client = server.client()
        before = server.memory()
        lease = {"member": 0, "incarnation": 1, "queue": "q", "epoch": 1, "most": 1}
        statuses = {client.post("/v1/lease", json.dumps(lease).encode())[0]}
        assert statuses == {404}, "no queue is there yet"
        for _ in range(_REQUESTS):
            path = chosen.choice(list(PATHS))
            status, answer = client.post(f"/v1/{path}", body(chosen, PATHS[path]))
            assert status in (200, 400, 404, 409, 429), answer
            assert status == 200 or answer["error"]
            statuses.add(status)
        assert {200, 400, 404, 409} <= statuses
        assert server.memory() - before < _MORE_MEMORY
        assert server.client().get("/v1/status")[0] == 200
        assert "Traceback" not in server.log()
