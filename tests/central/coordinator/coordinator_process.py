"""A coordinator as a process of its own, and a client that speaks to it over real sockets."""

import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from central.server import tls
from central.standalone.local_cluster import free_port
from tests.own_memory import own_bytes

TOKEN = "a-token-of-some-length"
START_S = 60.0


class CoordinatorProcess:
    """Stops with the block. Options are those of `lockstep coordinate`, without dashes."""

    def __init__(self, folder: Path, *, secure: bool = False, **options: str) -> None:
        self.folder = folder
        self._clients: list[Client] = []
        (folder / "token").write_text(TOKEN)
        self.port = free_port()
        given = {"job": "team/train/uid", "listen": f"127.0.0.1:{self.port}"}
        given |= {"linger": "600", **options}
        given["token-file"] = str(folder / "token")
        self.context: ssl.SSLContext | None = None
        if secure:
            issued = tls.issue("team", datetime.now(UTC))
            (folder / "tls.crt").write_bytes(issued.certificate)
            (folder / "tls.key").write_bytes(issued.key)
            given["tls-dir"] = str(folder)
            self.ca = issued.ca
            self.context = ssl.create_default_context(cadata=issued.ca.decode())
        self.command = [sys.executable, "-m", "central", "coordinate"]
        for name, value in given.items():
            self.command += [f"--{name.replace('_', '-')}", value]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while time.monotonic() < until and process.poll() is None:
            try:
                if self.client().get("/readyz", token="")[0] == 200:
                    return process
            except OSError:
                time.sleep(0.05)
        process.kill()
        raise AssertionError(f"it did not start: {self.log()}")

    def client(self) -> "Client":
        made = Client(self.port, self.context)
        self._clients.append(made)
        return made

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def restart(self) -> None:
        self.process = self._start()

    def memory(self) -> int:
        """Bytes, without pages of program files."""
        return own_bytes(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._clients:
            client.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait(10)


class Client:
    """One connection."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._made = (
            http.client.HTTPSConnection("localhost", port, timeout=45, context=context)
            if context
            else http.client.HTTPConnection("127.0.0.1", port, timeout=45)
        )

    def close(self) -> None:
        self._made.close()

    def get(self, path: str, token: str = TOKEN) -> tuple[int, Any]:
        return self._ask("GET", path, None, token)

    def post(self, path: str, body: object, token: str = TOKEN) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask("POST", path, raw, token)

    def ok(self, path: str, body: object) -> Any:
        status, answer = self.post(path, body)
        assert status == 200, answer
        return answer

    def _ask(self, method: str, path: str, body: bytes | None, token: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._made.request(method, path, body, headers)
            answer = self._made.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._made.close()
            raise
        kind = answer.headers.get("Content-Type") or ""
        return answer.status, json.loads(text) if kind == "application/json" else text


class MemberClient:
    """A member that does what it is told."""

    def __init__(self, server: CoordinatorProcess, member: int, incarnation: int = 1) -> None:
        self.http, self.member = server.client(), member
        self.me = {"member": member, "incarnation": incarnation}

    def join(self) -> None:
        self.http.ok("/v1/join", {**self.me, "address": f"w{self.member}", "node": "n1"})

    def generation(self, after: int = 0, wait: int = 0, live: bool = False) -> Any:
        more = "&state=live" if live else ""
        who = f"member={self.member}&incarnation={self.me['incarnation']}"
        status, answer = self.http.get(f"/v1/generation?after={after}&wait={wait}&{who}{more}")
        assert status == 200, answer
        return answer

    def ack(self, generation: int, step: int | None = None) -> Any:
        return self.http.ok("/v1/ack", {**self.me, "generation": generation, "step": step})


def all_live(members: list[MemberClient]) -> Any:
    """Joins and acknowledges for all. Returns the live generation."""
    for one in members:
        one.join()
    proposed = members[0].generation(0, wait=10)
    for one in members:
        one.ack(proposed["generation"])
    return members[0].generation(proposed["generation"] - 1, wait=10, live=True)
