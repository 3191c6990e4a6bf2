"""Clients without the token that open connections, hold them, and do not read: members are served meanwhile, and
neither files nor memory grow."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from protos.common import open_files
from tests.central.coordinator.coordinator_process import (
    TOKEN,
    CoordinatorProcess,
    MemberClient,
    all_live,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CONNECTIONS = 2300  # more than members may have
STRANGERS, CLOSING, OTHER_FILES = 512, 512, 100
PROBE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def held(server: CoordinatorProcess, first: bytes) -> Iterator[None]:
    """Many connections, of which each sends these bytes at its start."""
    open_files.allow(2 * CONNECTIONS)
    with ExitStack() as stack:
        clients: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            client = connected(server)
            clients.append(stack.enter_context(closing(client)))
            if first:
                send(client, first)
            if len(clients) % 100 == 0:
                files = open_files_of(server)
                assert files <= STRANGERS + CLOSING + OTHER_FILES
        yield


def connected(server: CoordinatorProcess) -> socket.socket:
    """From another address than members."""
    address = ("127.0.0.1", server.port)
    return socket.create_connection(address, timeout=20, source_address=("127.0.0.2", 0))


def send(client: socket.socket, data: bytes) -> bool:
    try:
        client.sendall(data)
    except OSError:
        return False  # it was closed
    return True


def open_files_of(server: CoordinatorProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("first", [b"", PROBE, b"POST /v1/join HTTP/1.1\r\nX:"])
@pytest.mark.parametrize("secure", [False, True])
def test_strangers_hold_no_place_of_a_member(tmp_path: Path, first: bytes, secure: bool) -> None:
    with CoordinatorProcess(tmp_path, most="1", secure=secure) as server:
        member = MemberClient(server, 0)
        all_live([member])
        with held(server, first):
            newcomer = MemberClient(server, 0)
            newcomer.join()
            assert newcomer.generation()["state"] == "live"
            assert member.generation()["state"] == "live"
            until = time.monotonic() + 60
            while open_files_of(server) > STRANGERS + OTHER_FILES:
                assert time.monotonic() < until
                time.sleep(0.1)
        assert "Traceback" not in server.log()


def test_what_a_stranger_does_not_read_is_not_kept(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, most="1") as server:
        member = MemberClient(server, 0)
        all_live([member])
        for number in range(16):  # so that metrics are long
            queue = {"queue": f"{number}-{'x' * 200}", "range": {"records": 10}}
            member.http.ok("/v1/queue", queue)
        before = server.memory()
        with ExitStack() as stack:
            for _ in range(20):
                one = stack.enter_context(closing(connected(server)))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                if send(one, METRICS * 2000):
                    send(one, METRICS)
                assert member.generation()["state"] == "live"
                assert server.memory() - before < 32 << 20


def test_a_member_that_reads_no_answer_is_not_read_from(tmp_path: Path) -> None:
    """Its requests come one by one, and each answer is long."""
    with CoordinatorProcess(tmp_path, most="2") as server:
        member = MemberClient(server, 0)
        member.join()
        queue = {"queue": "q", "range": {"records": 2000}}
        member.http.ok("/v1/queue", queue)
        for first in range(0, 1024, 64):
            leased = member.http.ok(
                "/v1/lease", {**member.me, "queue": "q", "epoch": 0, "most": 64}
            )
            assert leased, first
            done = [
                {"task": one["task"], "attempt": one["attempt"], "result": "r" * 3500}
                for one in leased["tasks"]
            ]
            member.http.ok("/v1/done", {**member.me, "queue": "q", "epoch": 0, "tasks": done})
        before = server.memory()
        head = f"GET /v1/results?queue=q&epoch=0 HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        with closing(connected(server)) as one:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each request for itself
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(40):
                if not send(one, head.encode()):
                    break
                for _ in range(2):  # two passes of the server's loop: the request was read alone
                    assert member.generation()
                assert server.memory() - before < 24 << 20
