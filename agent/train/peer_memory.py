"""Copies of state in the memory of another member's process, so that they survive a lost node.

A process holds copies of its own state and of one other rank's, the newest few of each, and serves them to members that
show the Job's token. Connections are those of multiprocessing, with bytes alone.

Design: docs/design/training.md"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import NamedTuple

from . import undo

# Ranks are at most one copy apart, and the one before is whole once a rank has begun the next: three steps hold one
# that all have ended.
KEPT_STEPS = 3
_CONNECTIONS = 64
_LOOK_S = 0.2
_SILENT_S = 30
_log = logging.getLogger("lockstep_train")
_LOST = (OSError, EOFError, ValueError, AuthenticationError)


class CopyName(NamedTuple):
    """A rank's state after a step."""

    generation: int
    step: int
    rank: int
    size: int  # ranks of the generation


@dataclass(frozen=True)
class StateCopy:
    plan: bytes  # which pieces of which tensors it has
    content: bytes

    def digest(self) -> str:
        found = blake2b(self.plan, digest_size=16)
        found.update(self.content)
        return found.hexdigest()


class PeerPlace(NamedTuple):
    """The location of a rank, and the address of its copies."""

    node: str
    rack: str
    address: str
    port: int


def peer_distance(places: Sequence[PeerPlace]) -> int:
    """Returns the distance in ranks from each rank to its peer, so that each holds one copy. As few copies as possible
    are on the node of their own rank, then in its rack; of equal distances the least."""
    size = len(places)

    def cost(distance: int) -> tuple[int, int, int]:
        peers = [*places[distance:], *places[:distance]]
        nodes = sum(mine.node == its.node for mine, its in zip(places, peers))
        return nodes, sum(mine.rack == its.rack for mine, its in zip(places, peers)), distance

    return min(range(1, size), key=cost, default=0)


def _bound(connection: Connection, silent_s: int) -> None:
    """Makes reads and writes that wait for longer raise OSError."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, direction, struct.pack("ll", silent_s, 0))


class PeerMemory:
    """The copies that a process holds. All methods may be called from any thread."""

    def __init__(self, token: bytes, silent_s: int = _SILENT_S) -> None:
        """silent_s: how long a stranger who says nothing holds a thread, and a holder that stands still a reader."""
        self._token, self._silent_s = token, silent_s
        self._held: dict[CopyName, tuple[StateCopy, str]] = {}  # with its digest
        self._lock = threading.Lock()
        self._sending: tuple[int, threading.Thread] | None = None  # in which generation
        self._made = threading.Event()  # the latest copy is held
        self._made.set()
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        six = socket.has_dualstack_ipv6()
        everywhere = ("::", "AF_INET6") if six else ("0.0.0.0", "AF_INET")
        self._listener = Listener((everywhere[0], 0), everywhere[1], backlog=_CONNECTIONS)
        self.port = int(self._listener.address[1])
        threading.Thread(target=self._serve, name="lockstep-copies", daemon=True).start()

    def digests(self) -> dict[CopyName, str]:
        with self._lock:
            return {name: digest for name, (_, digest) in self._held.items()}

    def find(self, name: CopyName) -> StateCopy | None:
        with self._lock:
            return self._held.get(name, (None, ""))[0]

    def hold(self, name: CopyName, copy: StateCopy, digest: str) -> None:
        """Holds a copy, and forgets those of older steps."""
        with self._lock:
            self._held[name] = copy, digest
            times = sorted({(each.generation, each.step) for each in self._held})[-KEPT_STEPS:]
            for each in [each for each in self._held if (each.generation, each.step) < times[0]]:
                del self._held[each]

    def finish(self) -> None:
        """Waits until the latest copy of this process's own state is held."""
        self._made.wait(self._silent_s)

    def send(self, name: CopyName, make: Callable[[], StateCopy], peer: PeerPlace | None) -> None:
        """Makes a copy, holds it, and sends it to the peer, if there is one, in a thread. Waits for the copy before of
        this generation. Raises RuntimeError when the turn's collectives are ended meanwhile."""
        generation, before = self._sending or (0, None)
        while before is not None and generation == name.generation and before.is_alive():
            undo.check_whole()
            before.join(_LOOK_S)

        self._made.clear()

        def run() -> None:
            try:
                copy = make()
                digest = copy.digest()
                self.hold(name, copy, digest)
            finally:
                self._made.set()
            if peer is None:
                return
            try:
                with self._connect(peer) as there:
                    there.send_bytes(json.dumps(["put", name, digest]).encode())
                    there.send_bytes(copy.plan)
                    there.send_bytes(copy.content)
                    if there.recv_bytes() != b"held":
                        raise OSError("it arrived damaged")
            except _LOST as error:
                _log.warning("copy of step %d at %s: %s", name.step, peer.address, error)

        thread = threading.Thread(target=run, name="lockstep-copy", daemon=True)
        self._sending = name.generation, thread
        thread.start()

    def fetch(self, name: CopyName, digest: str, holders: Sequence[PeerPlace]) -> StateCopy:
        """Returns a copy that another process holds, as it was made. Raises OSError where no holder has it."""
        for holder in holders:
            with suppress(*_LOST), self._connect(holder) as there:
                there.send_bytes(json.dumps(["get", name]).encode())
                copy = StateCopy(there.recv_bytes(), there.recv_bytes())
                if copy.digest() == digest:
                    return copy
            _log.warning("the copy of step %d at %s is damaged or gone", name.step, holder.address)
        raise OSError(f"no copy of rank {name.rank} after step {name.step} is whole")

    def _connect(self, place: PeerPlace) -> Connection:
        family = socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM)[0][0]
        connection = Client((place.address, place.port), family.name)
        _bound(connection, self._silent_s)
        try:
            answer_challenge(connection, self._token)
            deliver_challenge(connection, self._token)
        except BaseException:
            connection.close()
            raise
        return connection

    def _serve(self) -> None:
        while True:
            with suppress(OSError):
                connection = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        if not self._free.acquire(blocking=False):
            connection.close()
            return
        try:
            self._talk(connection)
        finally:
            self._free.release()

    def _talk(self, connection: Connection) -> None:
        with suppress(*_LOST), connection:
            _bound(connection, self._silent_s)
            deliver_challenge(connection, self._token)
            answer_challenge(connection, self._token)
            what, name, *more = json.loads(connection.recv_bytes(4096))
            if what == "put":
                copy = StateCopy(connection.recv_bytes(), connection.recv_bytes())
                is_whole = copy.digest() == more[0]
                if is_whole:
                    self.hold(CopyName(*name), copy, more[0])
                connection.send_bytes(b"held" if is_whole else b"damaged")
            elif (held := self.find(CopyName(*name))) is not None:
                connection.send_bytes(held.plan)
                connection.send_bytes(held.content)
