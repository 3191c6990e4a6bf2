"""The file of the history: an SQLite database of allocations, of records of gangs, of small samples, and of pictures of
the whole cluster.

It is written by one thread of one process, which holds the lock FILE.lock meanwhile, and read by others, each with a
connection of its own (write-ahead log). A process that is killed loses what it had not committed. A file that is not a
database, or is damaged, is renamed to FILE.corrupt-TIME, and an empty one takes its place.

Kept are samples and pictures of a day by the minute and of a week by ten minutes, records of gangs for a week after
their end, and allocations of KEEP_S. The file stays below its size: the oldest pictures go first, then the oldest
allocations and records that have ended.
"""

import fcntl
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

import orjson

from central.model.json_types import Json
from central.server.history.allocations import HELD, Allocation
from central.server.history.gang_records import KeptRecord
from central.server.optional_part import PartUnusable

log = logging.getLogger(__name__)

FORMAT = 2
DAY_S, WEEK_S, KEEP_S = 86_400, 7 * 86_400, 90 * 86_400
FINE_S, COARSE_S = 60, 600
PAGE_BYTES = 4096
PRUNED_ROWS = 5_000  # at once, where the file is full
SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE allocations (
    uid TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL,
    job TEXT NOT NULL, model TEXT NOT NULL, units INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER,
    cause TEXT NOT NULL, lost_from INTEGER, busy REAL NOT NULL,
    rated REAL NOT NULL);
CREATE UNIQUE INDEX open_allocations ON allocations (uid) WHERE ended IS NULL;
CREATE INDEX ended_allocations ON allocations (ended);
CREATE INDEX allocations_by_uid ON allocations (uid, began);
CREATE TABLE samples (at INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE pictures (at INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE records (
    uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, gang TEXT NOT NULL, name TEXT NOT NULL, ended REAL,
    summary BLOB NOT NULL, body BLOB NOT NULL);
CREATE INDEX ended_records ON records (ended);
"""
NAMES = tuple(each.name for each in fields(Allocation))
COLUMNS = ", ".join(NAMES)
INSERT = f"INSERT OR IGNORE INTO allocations ({COLUMNS}) VALUES ({','.join('?' * len(NAMES))})"
row_of = attrgetter(*NAMES)


class HistoryUnusable(PartUnusable):
    """The file can't be created or opened: a sentence for people."""


class HistoryLocked(HistoryUnusable):
    """Another process writes the file."""


class HistoryStore:
    """Written by one thread. readable() gives connections to others."""

    def __init__(self, file: str, most_bytes: int, now: Callable[[], float]) -> None:
        """Raises HistoryUnusable, HistoryLocked among them."""
        self._file, self._pages, self._now = Path(file), max(64, most_bytes // PAGE_BYTES), now
        self.files = 0  # grows when an empty file takes the place of a damaged one
        self._lock = _locked(self._file)
        try:
            self._db = self._opened()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Once. A thread that waits for the lock may write then."""
        self._db.close()
        os.close(self._lock)

    def alive(self) -> int:
        """The last time, in ms, at which the open allocations were known to be open; 0: never."""
        sql = "SELECT coalesce(max(value), 0) FROM facts WHERE name = 'alive'"
        return int(self._db.execute(sql).fetchone()[0])

    def last_picture(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(at), 0) FROM pictures").fetchone()[0])

    def take_over(self, entries: Iterable[Allocation]) -> None:
        """Copies entries of another replica's file: they replace the entries of the same allocations."""
        rows = [(each, row_of(each)) for each in entries]

        def write(db: sqlite3.Connection) -> None:
            for entry, row in rows:
                known = "uid = ? AND (began = ? OR (ended IS NULL AND ?))"
                open_too = entry.ended is None
                db.execute(
                    f"DELETE FROM allocations WHERE {known}", (entry.uid, entry.began, open_too)
                )
                db.execute(INSERT, row)

        self._write(write)

    def record(self, entries: Iterable[Allocation], now_s: float) -> None:
        """An allocation that is open in the file already keeps its beginning. now_s is remembered as the last time
        at which the open ones were known to be open."""

        def write(db: sqlite3.Connection) -> None:
            for entry in entries:
                _record(db, entry)
            db.execute("INSERT OR REPLACE INTO facts VALUES ('alive', ?)", (round(now_s * 1000),))

        self._write(write)

    def add_use(self, uses: Iterable[tuple[float, float, str]]) -> None:
        """uses: what to add to `busy` and `rated` of the pod's open allocation, and the pod's uid."""
        sql = "UPDATE allocations SET busy = busy + ?, rated = rated + ? WHERE uid = ? AND ended IS NULL"
        rows = [*uses]
        if rows:
            self._write(lambda db: db.executemany(sql, rows))

    def keep_records(self, records: Iterable[KeptRecord]) -> None:
        rows = [
            (*(each.summary[name] for name in ("uid", "namespace", "gang", "name", "ended")),
             orjson.dumps(each.summary), zlib.compress(each.body))
            for each in records
        ]  # fmt: skip
        if rows:
            sql = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)"
            self._write(lambda db: db.executemany(sql, rows))

    def open_records(self) -> list[Json]:
        """Returns the records of gangs whose end is not known."""
        sql = "SELECT body FROM records WHERE ended IS NULL"
        return [orjson.loads(zlib.decompress(body)) for (body,) in self._db.execute(sql)]

    def end_all_but(self, open_uids: Iterable[str], *, held: bool = True) -> int:
        """Ends every other open allocation at the last time at which it was known to be open: their ends were missed.
        held: also all those that a reservation keeps idle. Returns their number."""
        alive, known = self.alive(), {*open_uids}
        rows = self._db.execute("SELECT uid, kind FROM allocations WHERE ended IS NULL").fetchall()
        missed = [(alive, uid) for uid, kind in rows if (held and kind == HELD) or uid not in known]
        sql = "UPDATE allocations SET ended = max(began, ?) WHERE uid = ? AND ended IS NULL"
        self._write(lambda db: db.executemany(sql, missed))
        return len(missed)

    def add_picture(self, at_s: int, sample: bytes, picture: bytes) -> None:
        def write(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO samples VALUES (?, ?)", (at_s, sample))
            db.execute("INSERT OR REPLACE INTO pictures VALUES (?, ?)", (at_s, picture))

        self._write(write)
        self._write(lambda db: _thin_out(db, at_s))

    @contextmanager
    def readable(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection for another thread. Raises OSError while the file is damaged or replaced."""
        address = f"{self._file.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as db:
                yield db
        except sqlite3.Error as error:
            raise OSError(f"{self._file.name}: {error}") from error

    def _write(self, change: Callable[[sqlite3.Connection], object]) -> None:
        """Deletes the oldest entries where the file is full, and makes an empty file where it is damaged. Raises
        sqlite3.Error."""
        try:
            with self._db:
                change(self._db)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            self._prune()
            with self._db:
                change(self._db)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            self._db.close()
            self._set_aside(error)
            self._db = self._opened()
            self.files += 1
            with self._db:
                change(self._db)

    def _prune(self) -> None:
        """Half of the pictures, the oldest; where there are few, the oldest allocations that have ended."""
        with self._db:
            (count,) = self._db.execute("SELECT count(*) FROM pictures").fetchone()
            oldest = "at IN (SELECT at FROM pictures ORDER BY at LIMIT ?)"
            self._db.execute(f"DELETE FROM pictures WHERE {oldest}", (count // 2,))
            if count < 8:
                self._db.execute(
                    "DELETE FROM allocations WHERE rowid IN (SELECT rowid FROM allocations "
                    "WHERE ended IS NOT NULL ORDER BY ended LIMIT ?)",
                    (PRUNED_ROWS,),
                )
                self._db.execute(
                    "DELETE FROM records WHERE uid IN (SELECT uid FROM records "
                    "WHERE ended IS NOT NULL ORDER BY ended LIMIT ?)",
                    (PRUNED_ROWS,),
                )
        log.info("the history %s is full; its oldest part is deleted", self._file)

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise HistoryUnusable(f"--history {self._file}: {error}") from error
            self._set_aside(error)
        try:
            return self._connected()
        except sqlite3.Error as error:
            raise HistoryUnusable(f"--history {self._file}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        """Raises sqlite3.Error."""
        db = sqlite3.connect(self._file, timeout=10.0, check_same_thread=False)
        try:
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA journal_size_limit = 8388608")
            db.execute(f"PRAGMA max_page_count = {self._pages}")
            (problem,) = db.execute("PRAGMA quick_check(1)").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if problem != "ok" or version not in (0, FORMAT):
                error = sqlite3.DatabaseError(problem if problem != "ok" else f"format {version}")
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            if not version:
                db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _set_aside(self, why: sqlite3.Error) -> None:
        aside = self._file.with_name(f"{self._file.name}.corrupt-{self._now():.0f}")
        log.warning(
            "the history %s can't be read (%s); it is kept as %s, and a new one begins",
            self._file, why, aside.name,
        )  # fmt: skip
        for end in ("-wal", "-shm"):
            self._file.with_name(self._file.name + end).unlink(missing_ok=True)
        try:
            self._file.replace(aside)
        except OSError as error:
            raise HistoryUnusable(f"--history {self._file}: {error.strerror}") from error


def _record(db: sqlite3.Connection, entry: Allocation) -> None:
    if entry.ended is not None:
        ended = db.execute(
            "UPDATE allocations SET ended = max(began, ?), cause = ?, lost_from = max(began, ?) "
            "WHERE uid = ? AND ended IS NULL",
            (entry.ended, entry.cause, entry.lost_from, entry.uid),
        )
        if ended.rowcount:
            return
    else:
        db.execute(
            "UPDATE allocations SET model = ? WHERE uid = ? AND ended IS NULL",
            (entry.model, entry.uid),
        )
    db.execute(INSERT, row_of(entry))


def _locked(file: Path) -> int:
    """A descriptor that holds FILE.lock, which stays: a lock ends with its process. Raises HistoryUnusable."""
    if file.exists() and not file.is_file():
        raise HistoryUnusable(f"--history {file}: not a regular file")
    lock = file.with_name(f"{file.name}.lock")
    try:
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HistoryUnusable(f"--history {file}: {error.strerror}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        raise HistoryLocked(f"--history {file}: another process writes it ({lock.name})") from error
    except OSError as error:
        os.close(held)
        raise HistoryUnusable(f"--history {file}: no locks there: {error.strerror}") from error
    return held


def _thin_out(db: sqlite3.Connection, now_s: int) -> None:
    for table in ("samples", "pictures"):
        db.execute(
            f"DELETE FROM {table} WHERE at < ? OR (at < ? AND at % ? >= ?)",
            (now_s - WEEK_S, now_s - DAY_S, COARSE_S, FINE_S),
        )
    db.execute("DELETE FROM allocations WHERE ended < ?", ((now_s - KEEP_S) * 1000,))
    db.execute("DELETE FROM records WHERE ended < ?", (now_s - WEEK_S,))
