"""The process behind the console's what-if: real processes of small programs in its place, and over HTTP who may
ask."""

import asyncio
import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from central.server.web import what_if_process
from central.server.web.web_request import BODY_MOST
from central.server.web.web_server import WHAT_IF, WebServer
from central.server.web.what_if_process import WhatIfProcess, parse_change
from protos.common.http_server import RequestRefused
from tests.central.server.web.console_world import Rights, cluster, served
from tests.fakes.eventually import eventually

Json = dict[str, Any]
ECHO = "import sys; print(sys.stdin.readline())"
WAIT = "import os, sys; open({!r}, 'a').write(f'{{os.getpid()}} '); sys.stdin.readline(); sys.stdin.read()"
CORDON = {"cordon": ["n1"]}


def process(program: str, time_s: float = 60.0) -> WhatIfProcess:
    command = (sys.executable, "-c", program)
    return WhatIfProcess(command, {}, {}, memory_mib=100, time_s=time_s)


def refused(asking: WhatIfProcess, change: Json = CORDON) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(asking.ask(change, "ann", "secret"))
    return caught.value


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_question_goes_through_a_pipe() -> None:
    program = "import sys, os, json; print(json.dumps({'asked': json.loads(sys.stdin.readline()), " \
        "'environment': ' '.join(os.environ.values()), 'arguments': sys.argv}))"  # fmt: skip
    told = json.loads(asyncio.run(process(program).ask(CORDON, "ann", "secret")))
    assert told["asked"]["change"] == CORDON
    assert told["asked"]["token"] == "secret"
    assert "secret" not in told["environment"]
    assert "secret" not in str(told["arguments"])


def test_what_the_process_refuses_and_what_it_does_not_survive() -> None:
    answer = json.dumps({"error": "no node named n1", "status": 400})
    why = refused(process(f"print({answer!r})"))
    assert (why.status, why.why) == (400, "no node named n1")
    why = refused(process("import os; os.kill(os.getpid(), 9)"))
    assert (why.status, "signal 9" in why.why) == (503, True)
    why = refused(process("raise SystemExit(3)"))
    assert (why.status, "exit code 3" in why.why) == (503, True)
    why = refused(process(f"print('x' * {what_if_process.ANSWER_MOST + 1})"))
    assert (why.status, why.why) == (503, "the answer is too long")


def test_it_ends_after_its_time(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    why = refused(process(WAIT.format(str(pids)), time_s=2.0))
    assert (why.status, "within 2 s" in why.why) == (503, True)
    assert not pids.exists() or gone(int(pids.read_text()))


def test_one_runs_and_few_wait(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    asking = process(WAIT.format(str(pids)))

    async def crowd() -> list[Any]:
        users = [f"user-{at}" for at in range(what_if_process.WAITING_MOST + 1)]
        tasks = [asyncio.create_task(asking.ask(CORDON, user, "secret")) for user in users]
        while not (pids.exists() and pids.read_text()):
            await asyncio.sleep(0.01)
        refusals = await asyncio.gather(
            asking.ask(CORDON, "one-more", "secret"),
            asking.ask(CORDON, users[0], "secret"),
            return_exceptions=True,
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(TimeoutError):  # whoever asks next finds it free again
            await asyncio.wait_for(asking.ask(CORDON, "ann", "secret"), 1.0)
        return list(refusals)

    first, second = asyncio.run(crowd())
    assert (first.status, "others" in first.why) == (429, True)
    assert (second.status, "last" in second.why) == (429, True)
    ran = pids.read_text().split()  # one of the crowd, and perhaps the one who asked next
    assert 1 <= len(ran) <= 2
    assert all(gone(int(pid)) for pid in ran)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "name a change"),
        (b'{"cordon": "n1"}', "cordon: must be a list"),
        (b'{"cordon": [""]}', "cordon: a name must have"),
        (b'{"cordon": [1]}', "cordon: a name must have"),
        (json.dumps({"drain": ["n"] * 21}).encode(), "drain: must be a list of at most 20"),
        (json.dumps({"without": ["n" * 301]}).encode(), "without: a name must have"),
        (b'{"submit": 3}', "submit: must be text"),
        (b'{"cordon": ["n"], "until": "99d"}', "until: must be one of"),
        (b'{"cordon": ["n"], "flags": []}', 'unknown field "flags"'),
    ],
)
def test_questions_that_are_none(body: bytes, why: str) -> None:
    with pytest.raises(RequestRefused, match=why) as caught:
        parse_change(body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("length", "status"), [("", 400), ("x", 400), ("-1", 400), (str(BODY_MOST + 1), 413)]
)
def test_bodies_are_bounded_before_they_are_read(length: str, status: int) -> None:
    head = f"POST {WHAT_IF} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin\r\nContent-Length: {length}\r\n\r\n"
    with (
        served(cluster(2), what_if=process(ECHO)) as (server, _),
        socket.create_connection(("127.0.0.1", server.port), 20) as peer,
    ):
        peer.sendall(head.encode())
        assert peer.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


def post(
    server: WebServer, token: str = "admin", path: str = WHAT_IF, change: Json = CORDON
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("POST", path, json.dumps(change), headers)
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


def test_who_may_ask() -> None:
    rights = Rights(("ann", "pods", "ns"), ("ann", "nodes", ""), ("bob", "pods", ""))
    with served(cluster(2), rights, what_if=process(ECHO)) as (server, _):
        assert post(server)[1]["change"] == CORDON
        for user in ("ann", "bob"):
            status, told = post(server, user)
            assert (status, "rights" in told["error"]) == (403, True)
        assert post(server, "stranger")[0] == post(server, "")[0] == 401
        assert post(server, path="/api/nodes")[0] == 405
        assert post(server, change={"cordon": 3})[0] == 400
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", WHAT_IF, headers={"Authorization": "Bearer admin"})
        assert connection.getresponse().status == 405
        connection.close()
    with served(cluster(2)) as (server, _):
        status, told = post(server)
        assert (status, "--console-what-if" in told["error"]) == (404, True)


def test_a_client_that_leaves_ends_the_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with served(cluster(2), what_if=process(WAIT.format(str(pids)))) as (server, _):
        with asked(server):
            eventually(lambda: pids.exists() and pids.read_text())
        eventually(lambda: gone(int(pids.read_text())))


def test_the_end_of_the_console_ends_the_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with ExitStack() as later:
        with served(cluster(2), what_if=process(WAIT.format(str(pids)))) as (server, _):
            later.enter_context(asked(server))
            eventually(lambda: pids.exists() and pids.read_text())
            assert not gone(int(pids.read_text()))
        eventually(lambda: gone(int(pids.read_text())))


@contextmanager
def asked(server: WebServer) -> Iterator[None]:
    """A client that waits for its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", WHAT_IF, json.dumps(CORDON), {"Authorization": "Bearer admin"})
    yield
    connection.close()
