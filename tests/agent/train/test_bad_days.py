"""What happens to a member on a bad day: the coordinator answers rubbish, errors or nothing, and clocks are wrong."""

import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent.train.client import CoordinatorClient, RequestRefused, Stale, Unreachable
from agent.train.generation import parse
from tests.agent.train.coordinators import coordinator
from tests.agent.train.workers import wait_for, workers
from tests.fakes.quiet_server import QuietServer


@contextmanager
def server(status: int, body: bytes) -> Iterator[str]:
    """Answers each request with the same."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """No output."""

    made = QuietServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.mark.parametrize(
    ("status", "body", "raised"),
    [
        (200, b"not JSON", Unreachable),
        (200, b"[" * 100_000, Unreachable),
        (200, b"\xff\xfe", Unreachable),
        (500, b"{}", Unreachable),
        (503, b'{"error": "not stored"}', Unreachable),
        (429, b"", Unreachable),
        (400, b'{"error": "member: it is missing"}', RequestRefused),
        (401, b"", RequestRefused),
        (409, b'{"error": "old", "join": true}', Stale),
        (409, b"[1]", Stale),
    ],
)
def test_an_answer_that_is_none(status: int, body: bytes, raised: type[Exception]) -> None:
    with server(status, body) as url:
        client = CoordinatorClient(url)
        with pytest.raises(raised):
            client.get("/v1/generation", {})
        client.close()


@pytest.mark.parametrize("answer", [{}, {"generation": "x", "state": "live"}, {"generation": 1}])
def test_an_answer_that_is_no_generation(answer: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"is not a generation|invalid literal"):
        parse(answer)


def test_nobody_answers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client = CoordinatorClient(f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(Unreachable):
            client.insist("/v1/join", {}, within_s=0.5)


def test_a_request_with_nan_is_not_sent() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        CoordinatorClient("http://127.0.0.1:1").post("/v1/report", {"loss": float("nan")})


JOINS = "import lockstep_train as lt; lt.join(); print('joined')"


def outcome(environment: dict[str, str]) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-c", JOINS], env=environment, capture_output=True, text=True, timeout=60
    )
    return run.returncode, (run.stdout + run.stderr).strip().splitlines()[-1]


@pytest.mark.slow
def test_what_a_member_may_not_say(tmp_path: Path) -> None:
    """Each is refused with one sentence, and those who train go on."""
    with coordinator(tmp_path, "--most=8") as running:
        assert outcome(running.environment(0)) == (0, "joined")
        code, says = outcome(running.environment(10**9))
        assert code == 1
        assert "member: 1000000000" in says
        code, says = outcome(running.environment(9))
        assert "the Job has at most 8" in says
        code, says = outcome(running.environment(1, LOCKSTEP_ADDRESS="a\nb"))
        assert "address: " in says
        (tmp_path / "wrong").write_text("another-token-0123456789")
        code, says = outcome(running.environment(1, LOCKSTEP_TOKEN_FILE=str(tmp_path / "wrong")))
        assert "401" in says
        assert running.get("/v1/status")


@pytest.mark.slow
def test_a_certificate_of_somebody_else(tmp_path: Path) -> None:
    """The coordinator's own certificate is asked for: with another authority nothing is sent."""
    (tmp_path / "other").mkdir()
    with coordinator(tmp_path, secure=True) as running:
        assert outcome(running.environment(0)) == (0, "joined")
        untrusted = running.environment(1, LOCKSTEP_CA_FILE="")
        client = CoordinatorClient(running.url, token_file=untrusted["LOCKSTEP_TOKEN_FILE"])
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            client.get("/v1/generation", {})
        client.close()


WORKER = """
import json, os, sys
import lockstep_train as lt
for task in lt.Tasks.range(300, 3).epochs(1):
    if task.done():
        print(json.dumps(task.number), flush=True)
"""


@pytest.mark.slow
def test_the_store_refuses(tmp_path: Path) -> None:
    """No task is counted without being stored, and the work goes on when the store takes writes again."""
    store = tmp_path / "q.db"
    with (
        coordinator(tmp_path, f"--store=file:{store}", "--linger=60") as running,
        workers(tmp_path / "team", WORKER) as team,
    ):
        team.start("w0", running.environment(0))
        wait_for(lambda: len(team.said()) > 5, lambda: team.errors("w0"))
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        wait_for(lambda: "state is not stored" in running.log(), running.log)
        counted = len(team.said())
        assert team.running["w0"].poll() is None
        assert running.get("/v1/epoch?queue=tasks")["leased"] <= 1, "it serves questions"
        assert len(team.said()) == counted, "a task was counted though it is not stored"
        other.execute("ROLLBACK")
        other.close()
        assert team.ended("w0") == 0, team.errors("w0")
        assert sorted(team.said()) == list(range(100))
