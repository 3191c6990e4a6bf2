"""python -m lockstep_train.pair_check FILE PEERS: the members of a generation reduce a buffer in pairs before their
processes start, so that a slow or dead pair has a name before anybody trains with it.

In each turn of a tournament every member has another partner, and each of its processes, one for each GPU, reduces
with the process of the same number there: by NCCL where PyTorch sees a GPU, by gloo where there is PyTorch, else by
plain sockets. A program apart, because a collective may hang. It appends a line for each step to its file:

    try 3           the exchange with member 3 begins
    took 3 0.0021   it brought the right numbers in so many seconds
    wrong 3         it brought others

Design: docs/design/training.md"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .child_processes import ChildProcesses
from .environment import PodPlace
from .generation import Generation
from .launch_variables import endpoints, variables

MOST_TURNS = 16  # partners of a member, however many there are
NUMBERS = 1 << 20  # of 4 bytes; sixteen times as many for NCCL
REPEATS = 3
CONCLUDED_S = 15.0  # beyond the check, until the coordinator has concluded
_POLL_S = 0.05
_RETRY_S = 0.1


def partner(member: int, turn: int, size: int) -> int:
    """Returns the other rank of a pair in this turn; -1: none. In size - 1 turns (an odd size: in size) each rank
    meets all others once."""
    last = size - 1 + size % 2
    other = turn * (last + 1) // 2 % last if member == last else (turn - member) % last
    if other == member:
        other = last
    return other if other < size else -1


class Sockets:
    """Exchanges over plain sockets. The lower rank connects."""

    def __init__(self, rank: int, peers: list[str]) -> None:
        self._rank, self._peers = rank, peers
        self._listener = socket.create_server(("", int(peers[rank].rpartition(":")[2])), backlog=64)
        self._from: dict[int, socket.socket] = {}
        self._came = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def reduce(self, other: int, repeats: int) -> tuple[list[float], bool]:
        link = self._connect(other) if self._rank < other else self._accepted(other)
        mine, theirs = (bytes([rank % 251]) * (4 * NUMBERS) for rank in (self._rank, other))
        spans, right = [], True
        with link:
            for data, expected in ((mine[:1], theirs[:1]), *[(mine, theirs)] * repeats):
                began = time.perf_counter()
                sender = threading.Thread(target=link.sendall, args=(data,), daemon=True)
                sender.start()
                right &= _received(link, len(expected)) == expected
                sender.join()
                spans.append(time.perf_counter() - began)
        return spans[1:], right

    def end(self) -> None:
        """The links are closed already."""

    def _connect(self, other: int) -> socket.socket:
        host, _, port = self._peers[other].rpartition(":")
        link = None
        while link is None:
            with contextlib.suppress(OSError):  # it does not listen yet
                link = socket.create_connection((host, int(port)))
            time.sleep(0.0 if link else _RETRY_S)
        link.sendall(self._rank.to_bytes(4, "big"))
        return link

    def _accepted(self, other: int) -> socket.socket:
        with self._came:
            self._came.wait_for(lambda: other in self._from)
            return self._from.pop(other)

    def _accept(self) -> None:
        while True:
            link, _ = self._listener.accept()
            rank = int.from_bytes(_received(link, 4), "big")
            with self._came:
                self._from[rank] = link
                self._came.notify_all()


def _received(link: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count and (part := link.recv(min(count - len(found), 1 << 20))):
        found += part
    return bytes(found)


class Torch:
    """All-reduces in groups of two processes, which meet at a store of the first process."""

    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        import torch
        from torch import distributed

        self._torch, self._rank, self._size = torch, rank, size
        self._distributed: Any = distributed
        gpu = torch.cuda.is_available()
        self._backend, self._device, self._count = "gloo", "cpu", NUMBERS
        if gpu:
            self._backend, self._count = "nccl", 16 * NUMBERS
            self._device = f"cuda:{local_rank % torch.cuda.device_count()}"
            torch.cuda.set_device(self._device)
        at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._store = self._distributed.TCPStore(*at, is_master=rank == 0, wait_for_workers=False)

    def reduce(self, other: int, repeats: int) -> tuple[list[float], bool]:
        first, last = sorted((self._rank, other))
        pair = self._distributed.PrefixStore(f"{first}-{last}", self._store)
        place = {"store": pair, "rank": int(self._rank > other), "world_size": 2}
        self._distributed.init_process_group(self._backend, **place)
        spans, right = [], True
        for count in (1, *[self._count] * repeats):
            numbers = self._torch.full((count,), float(self._rank + 1), device=self._device)
            began = time.perf_counter()
            self._distributed.all_reduce(numbers)
            right &= bool((numbers == float(self._rank + other + 2)).all())  # waits for the GPU
            spans.append(time.perf_counter() - began)
        self._distributed.destroy_process_group()
        return spans[1:], right

    def end(self) -> None:
        """Keeps the store for the others."""
        self._store.add("ended", 1)
        while self._rank == 0 and self._store.add("ended", 0) < self._size:
            time.sleep(_POLL_S)


def main(files: str, peers: str) -> None:
    """files: the start of the file's name, before the process' number. peers: host:port of each process, as JSON."""
    rank, size, local_rank, processes = (
        int(os.environ[name])
        for name in ("GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    mine = rank * processes + local_rank
    with Path(files + str(local_rank)).open("w", buffering=1) as file:
        try:
            way: Sockets | Torch = Torch(mine, size * processes, local_rank)
        except ImportError:
            way = Sockets(mine, json.loads(peers))
        for turn in range(min(size - 1 + size % 2, MOST_TURNS)):
            other = partner(rank, turn, size)
            if other >= 0:
                file.write(f"try {other}\n")
                spans, right = way.reduce(other * processes + local_rank, REPEATS)
                file.write(f"took {other} {min(spans):.6f}\n" if right else f"wrong {other}\n")
        way.end()
    os._exit(0)  # no shutdown of a library that may hang


def run(found: Generation, place: PodPlace, processes: int, folder: str, ended: Any) -> Any:
    """Checks this member with the others, for at most found.check_s or until ended(). Returns what it has to report:
    the seconds with each other member, and those with whom it failed."""
    file = f"{folder}/pair-{found.number}-"
    peers = json.dumps(endpoints(found, processes))
    environments = [variables(found, place, processes, local) for local in range(processes)]
    until = time.monotonic() + found.check_s
    children = ChildProcesses([sys.executable, "-m", __name__, file, peers], environments)
    try:
        while children.running() and time.monotonic() < until and not ended():
            time.sleep(_POLL_S)
    finally:
        children.stop(0.0)
    return report([Path(f"{file}{local}") for local in range(processes)], found)


def report(files: list[Path], found: Generation) -> dict[str, Any]:
    """The slowest of the member's processes counts, and one that failed or has not ended."""
    seconds: dict[str, float] = {}
    failed: set[int] = set()
    for file in files:
        tried = ""
        lines = file.read_text().split("\n") if file.exists() else [""]
        for line in lines[:-1]:  # the last one was not ended
            word, other, *rest = line.split(" ")
            member = str(found.members[int(other)].member)
            if word == "took":
                seconds[member] = max(seconds.get(member, 0.0), float(rest[0]))
            if word == "wrong":
                failed.add(int(member))
            tried = member if word == "try" else ""
        failed |= {int(tried)} if tried else set()
    return {"seconds": seconds, "failed": sorted(failed)}


if __name__ == "__main__":
    main(*sys.argv[1:3])
