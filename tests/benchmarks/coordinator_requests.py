"""What a request costs the coordinator of 512 members over TLS: processor time by kind, and its memory under load. One
that costs 0.5 ms is served 2,000 times in a second on one core. Leases of one task, and of 64.

python -m tests.benchmarks.coordinator_requests [MEMBERS [ROUNDS]]
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.coordinator_members import Member, cpu_s
from tests.central.coordinator.coordinator_process import CoordinatorProcess

MEMBERS, ROUNDS = 512, 8
MOST_LEASED = 64  # tasks of a lease
QUEUE = "q"
Ask = Callable[[Member], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Costs:
    """us: of one request, by kind. memory: the most bytes after a round, without pages of program files."""

    us: dict[str, float]
    memory: int

    @property
    def mean_us(self) -> float:
        """Of leases, `done`, reports and progress in equal numbers."""
        return sum(self.us.values()) / len(self.us)


class Load:
    def __init__(self, server: CoordinatorProcess, members: list[Member], leased: int) -> None:
        self._server, self._members, self._leased = server, members, leased
        self._tasks: dict[int, list[Any]] = {}
        self._step = 0
        self.cpu_s: dict[str, float] = {}
        self.requests: dict[str, int] = {}
        self.memory = 0

    async def begin(self) -> None:
        for start in range(0, len(self._members), 32):  # a silent one is disconnected
            await asyncio.gather(*(one.begin() for one in self._members[start : start + 32]))
        await asyncio.gather(*(one.live() for one in self._members))
        records = len(self._members) * self._leased * 20
        body = {"queue": QUEUE, "range": {"records": records, "size": 1}}
        await self._members[0].ask("POST", "/v1/queue", body)

    async def round(self) -> None:
        self._step += 1
        await self._all("lease", self._lease)
        await self._all("progress", self._progress)
        await self._all("report", self._report)
        await self._all("done", self._done)
        self.memory = max(self.memory, self._server.memory())

    async def _all(self, kind: str, ask: Ask) -> None:
        before = cpu_s(self._server)
        for start in range(0, len(self._members), 64):
            await asyncio.gather(*map(ask, self._members[start : start + 64]))
        self.cpu_s[kind] = self.cpu_s.get(kind, 0.0) + cpu_s(self._server) - before
        self.requests[kind] = self.requests.get(kind, 0) + len(self._members)

    async def _lease(self, one: Member) -> None:
        body = {**one.me, "queue": QUEUE, "epoch": 0, "most": self._leased}
        found = await one.ask("POST", "/v1/lease", body)
        self._tasks[one.me["member"]] = found["tasks"]
        assert len(found["tasks"]) == self._leased

    async def _progress(self, one: Member) -> None:
        task = self._tasks[one.me["member"]][0]
        of = {"task": task["task"], "attempt": task["attempt"]}
        await one.ask("POST", "/v1/progress", {**one.me, "queue": QUEUE, "epoch": 0, **of})

    async def _report(self, one: Member) -> None:
        said = {"generation": 1, "step": self._step, "samples": 64, "seconds": 0.5}
        await one.ask("POST", "/v1/report", {**one.me, **said})

    async def _done(self, one: Member) -> None:
        tasks = self._tasks.pop(one.me["member"])
        of = [{"task": each["task"], "attempt": each["attempt"]} for each in tasks]
        body = {**one.me, "queue": QUEUE, "epoch": 0, "tasks": of}
        found = await one.ask("POST", "/v1/done", body)
        assert found["refused"] == []


async def _measured(server: CoordinatorProcess, count: int, rounds: int, leased: int) -> Costs:
    assert server.context is not None
    members = [Member(number, server.port, server.context) for number in range(count)]
    load = Load(server, members, leased)
    await load.begin()
    for _ in range(rounds):
        await load.round()
    await asyncio.gather(*(one.close() for one in members))
    us = {kind: 1e6 * load.cpu_s[kind] / load.requests[kind] for kind in load.cpu_s}
    return Costs(us, load.memory)


def measure(
    folder: Path, count: int = MEMBERS, rounds: int = ROUNDS, leased: int = MOST_LEASED
) -> Costs:
    """Its state is in a file, so each `done` is on the disk before it is answered."""
    options = {"most": str(count), "least": str(count), "join_wait": "300", "silent": "300"}
    options["store"] = f"file:{folder}/q.db"
    with CoordinatorProcess(folder, secure=True, **options) as server:
        return asyncio.run(_measured(server, count, rounds, leased))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MEMBERS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    for leased in (1, MOST_LEASED):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), count, rounds, leased)
        costs = ", ".join(f"{kind} {us:.0f}" for kind, us in found.us.items())
        print(f"{leased} tasks in a lease: {costs} us of processor time")
        rate = 1e6 / found.mean_us
        print(f"  in equal numbers {rate:.0f} in a second on one core (asked: 2,000)")
        print(f"  {found.memory >> 20} MiB for {count} members (asked: 64)")


if __name__ == "__main__":
    main()
