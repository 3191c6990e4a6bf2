"""What 512 members cost their coordinator over TLS: memory, and processor time for joins, one generation and long
polls.

python -m tests.benchmarks.coordinator_members [MEMBERS [SECONDS]]

Processor time of the coordinator's process is measured, not time that passes, so a loaded machine changes little."""

import asyncio
import json
import os
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.central.coordinator.coordinator_process import TOKEN, CoordinatorProcess

_TICKS = os.sysconf("SC_CLK_TCK")


class Member:
    """One connection, kept open."""

    def __init__(self, number: int, port: int, context: ssl.SSLContext) -> None:
        self.me = {"member": number, "incarnation": 1}
        self._port, self._context = port, context

    async def connect(self) -> None:
        opened = asyncio.open_connection(
            "localhost", self._port, ssl=self._context, ssl_handshake_timeout=300
        )
        self._reader, self._writer = await opened

    async def begin(self) -> None:
        await self.connect()
        await self.join()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        text = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        self._writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        headers = await self._reader.readuntil(b"\r\n\r\n")
        assert headers.startswith(b"HTTP/1.1 200"), headers
        length = next(
            line for line in headers.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        return json.loads(await self._reader.readexactly(int(length.split(b":")[1])))

    async def join(self) -> None:
        node = f"n{self.me['member'] // 8}"
        address = f"train-worker-{self.me['member']}.train"
        await self.ask("POST", "/v1/join", {**self.me, "address": address, "node": node})

    async def live(self) -> None:
        found = await self._generation(0)
        while found["state"] != "live":
            if found["state"] == "proposed" and not found["acknowledged"]:
                await self.ask(
                    "POST", "/v1/ack", {**self.me, "generation": found["generation"], "step": None}
                )
            found = await self._generation(max(0, found["generation"] - 1), "&state=live")

    async def poll(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await self._generation(1)

    async def _generation(self, after: int, more: str = "") -> Any:
        who = f"member={self.me['member']}&incarnation=1"
        return await self.ask("GET", f"/v1/generation?after={after}&wait=10&{who}{more}")


def cpu_s(server: CoordinatorProcess) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def measure(server: CoordinatorProcess, count: int, seconds: float) -> None:
    assert server.context is not None
    members = [Member(number, server.port, server.context) for number in range(count)]
    at, empty = cpu_s(server), server.memory()
    for start in range(0, count, 32):  # whoever says nothing for ten seconds is disconnected
        await asyncio.gather(*(one.begin() for one in members[start : start + 32]))
    connected = cpu_s(server)
    await asyncio.gather(*(one.live() for one in members))
    agreed = cpu_s(server)
    await asyncio.gather(*(one.poll(seconds) for one in members))
    polled = cpu_s(server)
    print(f"{count} connections over TLS, and joins: {connected - at:.2f} s of processor time")
    print(f"one generation that all acknowledge: {agreed - connected:.2f} s")
    print(f"long polls of {seconds:.0f} s: {100 * (polled - agreed) / seconds:.1f} % of a core")
    print(f"memory: {empty >> 20} MiB empty, {server.memory() >> 20} MiB with all")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        options = {"most": str(count), "least": str(count), "join_wait": "300", "silent": "300"}
        with CoordinatorProcess(Path(folder), secure=True, **options) as server:
            asyncio.run(measure(server, count, seconds))


if __name__ == "__main__":
    main()
