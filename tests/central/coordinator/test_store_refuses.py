"""A coordinator whose disk is full: it serves on, promises nothing that is not stored, says since when, and goes on
when there is space again."""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.central.coordinator.coordinator_process import CoordinatorProcess, MemberClient, all_live

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
QUEUE = {"queue": "q", "epoch": 0}


LEFT = 4096  # bytes of a file: its log is shorter, and one page of the store's journal is longer


def fill_disk(server: CoordinatorProcess) -> None:
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (LEFT, most))


def free_disk(server: CoordinatorProcess) -> None:
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60.0
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def test_a_full_disk(tmp_path: Path) -> None:
    store = tmp_path / "store" / "q.db"
    with CoordinatorProcess(tmp_path, most="1", store=f"file:{store}") as server:
        member = MemberClient(server, 0)
        number = all_live([member])["generation"]
        member.http.ok("/v1/queue", {"queue": "q", "range": {"records": 20, "size": 1}})
        tasks = member.http.ok("/v1/lease", {**member.me, **QUEUE, "most": 10})["tasks"]

        def post_done(task: dict[str, Any]) -> tuple[int, Any]:
            key = {name: task[name] for name in ("task", "attempt")}
            return member.http.post("/v1/done", {**member.me, **QUEUE, **key})

        def status() -> Any:
            return member.http.get("/v1/status")[1]

        assert post_done(tasks[0])[0] == 200
        assert status()["not_durable_for_s"] is None
        until(lambda: status()["durable"], "all is stored")
        fill_disk(server)
        code, answer = post_done(tasks[1])
        assert (code, answer["error"][:10]) == (503, "not stored"), answer
        begun = member.http.ok(
            "/v1/checkpoint/begin", {**member.me, "generation": number, "step": 5}
        )
        name = {**member.me, "name": begun["name"]}
        member.http.ok("/v1/checkpoint/part", {**name, "rank": 0, "parts": 1})
        code, answer = member.http.post("/v1/checkpoint/complete", {**name, "data": {}})
        assert code == 503, "a checkpoint that may be forgotten is not called complete"
        said = status()
        assert said["not_durable_for_s"] > 0
        assert said["durable"] is False
        assert str(store) in said["trouble"]
        assert member.generation()["generation"] == number, "it serves on"
        assert member.http.ok("/v1/lease", {**member.me, **QUEUE, "most": 1})["tasks"]
        assert "state is not stored, retrying" in server.log()

        free_disk(server)
        until(lambda: status()["not_durable_for_s"] is None, "it is stored again")
        until(lambda: status()["durable"], "and said so")
        assert post_done(tasks[1])[0] == 200
        server.kill()
        server.restart()
        again = MemberClient(server, 0)
        assert again.http.get("/v1/epoch?queue=q")[1]["done"] == 2
        assert again.http.get("/v1/checkpoint/latest")[1]["name"] == begun["name"]
