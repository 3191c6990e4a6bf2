"""What the core was told and what it decided, as JSON lines: `lockstep replay` does it again.

    {"journal": 1, "version": "0.1.0", "settings": {...}}    what a cluster begins with
    {"learn": [now, [fact, ...]]}                            believed; nothing was decided yet
    {"turn": [now, [fact, ...]]}                             written before the turn
    {"decided": [decision, ...]}                             what came of it, where anything did

A file that has grown too large becomes FILE.1 and a new one begins, with the whole cluster in its first
line but one: {"checkpoint": "..."}. So there are never more than two files.
"""

import base64
import io
import logging
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler.state.cluster import Cluster
from central.server import codec
from central.server.version import version

log = logging.getLogger(__name__)

FORMAT = 1
MOST_BYTES = 256 << 20


class Journal:
    """A disk that is full or gone ends the journal, not the scheduler."""

    def __init__(self, path: str | Path, cluster: Cluster, most_bytes: int = MOST_BYTES) -> None:
        """Raises OSError where the file can't be made."""
        self._path = Path(path)
        self._cluster = cluster
        self._most_bytes = most_bytes
        self._bytes = 0
        self._file: IO[bytes] | None = self._open()

    def learn(self, now: float, facts: Sequence[Fact]) -> None:
        """Before the facts are applied."""
        if facts:
            self._write({"learn": [now, codec.tagged(facts)]})

    def turn(self, now: float, facts: Sequence[Fact]) -> None:
        """Before the turn: what makes it fail is kept. Turns without facts count as well, for time
        itself decides things."""
        if self._bytes > self._most_bytes:
            self._rotate()
        self._write({"turn": [now, codec.tagged(facts)]})

    def decided(self, decisions: Sequence[Decision]) -> None:
        if decisions:
            self._write({"decided": codec.tagged(decisions)})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        if self._path.exists():
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._bytes = 0
        file = self._path.open("wb", buffering=0)
        header = {"journal": FORMAT, "version": version(), "settings": settings(self._cluster)}
        self._bytes += file.write(codec.dumps(header) + b"\n")
        return file

    def _rotate(self) -> None:
        if self._file is None:
            return
        self._file.close()
        try:
            self._file = self._open()
        except OSError as error:
            self._give_up(error)
        self._write({"checkpoint": pack(self._cluster)})
        self._most_bytes = max(self._most_bytes, 2 * self._bytes)  # a cluster larger than that

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._bytes += self._file.write(codec.dumps(line) + b"\n")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("journal %s: %s; no more is written to it", self._path, error.strerror)
        self._file = None


def settings(cluster: Cluster) -> dict[str, Any]:
    """What Cluster() is made with."""
    return {
        "levels": list(cluster.snapshot.domains.levels),
        "patience_s": cluster.patience_s,
        "half_life_s": cluster.queues.half_life_s,
        "placement": cluster.placement,
    }


def pack(cluster: Cluster) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(cluster, protocol=5), 1)).decode()


def unpack(text: str) -> Cluster:
    """Raises plain.UnreadableRecord. Only values of the core are made of it: a file that somebody sends
    can't make this program do anything else."""
    try:
        found = _Careful(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
    except (pickle.UnpicklingError, AttributeError, zlib.error, ValueError, TypeError) as error:
        raise codec.UnreadableRecord(f"checkpoint: {error}") from error
    if not isinstance(found, Cluster):
        raise codec.UnreadableRecord("checkpoint: it is not a cluster")
    return found


class _Careful(pickle.Unpickler):
    _ROOMS = ("central.scheduler.", "central.controllers.", "central.model.", "protos.topology")
    _OTHERS = frozenset(
        {
            ("builtins", "set"),
            ("builtins", "frozenset"),
            ("collections", "Counter"),
            ("collections", "OrderedDict"),
            ("collections", "deque"),
            ("itertools", "count"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "scalar"),
            ("numpy._core.numeric", "_frombuffer"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._OTHERS:
            return super().find_class(module, name)
        if module.startswith(self._ROOMS):
            found = super().find_class(module, name)
            if str(getattr(found, "__module__", "")).startswith(self._ROOMS):
                return found  # not something that a module of the core only imports
        raise pickle.UnpicklingError(f"{module}.{name} is not a value of the core")
