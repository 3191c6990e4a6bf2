"""Storage of the coordinator's state in an SQLite file, or none. In a ConfigMap: api_store.

SQLite in WAL mode with synchronous=FULL: a commit survives the loss of the process and of the node, as far as the
volume does. One transaction for all sections that changed.
"""

import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import orjson

from central.controllers.training.stored_state import UnreadableState
from central.model.inflate import inflated
from central.model.json_types import ReadOnlyJson

MOST_SECTION = 64 << 20  # bytes of one section, uncompressed
_TIMEOUT_S = 5.0
_CACHE_KIB = 256  # of pages, of which nearly all are written once and not read again
_NOT_OURS = "stop the other coordinator, or give this Job a file of its own"


class CannotStore(Exception):
    """The store refuses now; the same may be tried again."""


class Fenced(Exception):
    """Another coordinator took over this state."""


class StateStore(Protocol):
    durable: bool  # what was saved survives the process
    before_telling: bool  # quick enough to save a generation before members learn of it
    apart_s: float  # least time between two writes
    writes_all: bool  # with each write, and not what changed alone

    def load(self) -> dict[str, ReadOnlyJson]:
        """Raises CannotStore, UnreadableState."""

    def save(self, run: int, sections: Mapping[str, ReadOnlyJson]) -> None:
        """All of them or none. run: that of this coordinator. Raises CannotStore, Fenced."""

    def close(self) -> None: ...


class NoStore:
    durable = before_telling = False
    apart_s, writes_all = 0.0, False

    def load(self) -> dict[str, ReadOnlyJson]:
        return {}

    def save(self, run: int, sections: Mapping[str, ReadOnlyJson]) -> None:
        pass

    def close(self) -> None:
        pass


class FileStore:
    durable = before_telling = True
    apart_s, writes_all = 0.0, False

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None

    def load(self) -> dict[str, ReadOnlyJson]:
        try:
            rows = self._open().execute("SELECT name, body FROM section").fetchall()
        except sqlite3.DatabaseError as error:
            self.close()
            if isinstance(error, sqlite3.OperationalError):
                raise CannotStore(f"{self._path}: {error}") from error
            raise UnreadableState(
                f"{self._path}: {error}; move the file away to start again"
            ) from error
        except OSError as error:
            raise CannotStore(f"{self._path}: {error}") from error
        return {name: self._unpack(name, body) for name, body in rows}

    def _unpack(self, name: str, body: bytes) -> ReadOnlyJson:
        try:
            if (text := inflated(body, MOST_SECTION)) is None:
                raise UnreadableState(
                    f"{self._path}: section {name} is cut off or above {MOST_SECTION} bytes"
                )
            found: ReadOnlyJson = orjson.loads(text)
        except (zlib.error, orjson.JSONDecodeError) as error:
            raise UnreadableState(f"{self._path}: section {name}: {error}") from error
        return found

    def save(self, run: int, sections: Mapping[str, ReadOnlyJson]) -> None:
        rows = [(name, zlib.compress(orjson.dumps(one), 1)) for name, one in sections.items()]
        try:
            connection = self._open()
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                known = connection.execute("SELECT run FROM owner").fetchone()
                if known is not None and known[0] > run:
                    raise Fenced(
                        f"{self._path} is used by a coordinator that started later; {_NOT_OURS}"
                    )
                connection.execute("INSERT OR REPLACE INTO owner VALUES (1, ?)", (run,))
                connection.executemany("INSERT OR REPLACE INTO section VALUES (?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            self.close()  # opened again by the next one: the volume may have been mounted again
            raise CannotStore(f"{self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            made = self._connection = sqlite3.connect(
                self._path, timeout=_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )  # closed by load() and save() if the following fails
            made.execute("PRAGMA journal_mode=WAL")
            made.execute("PRAGMA synchronous=FULL")
            made.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            made.execute("CREATE TABLE IF NOT EXISTS section (name TEXT PRIMARY KEY, body BLOB)")
            made.execute("CREATE TABLE IF NOT EXISTS owner (one INTEGER PRIMARY KEY, run INTEGER)")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
