"""The cluster at a past time, and curves of queues over a span of time, from the history's file."""

import re
import threading
import zlib

import orjson

from central.model.json_types import Json
from central.server.history import pictures
from central.server.history.history_store import HistoryStore
from central.server.stats.surveyor import Survey

POINTS_MOST = 300  # of a curve
ENDED_MOST = 50_000
READ_MOST = 5_000  # records, for a list of events


class PastCluster:
    """Reads the past, from any thread. Raises OSError while the file can't be read, and ValueError for a damaged
    picture."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._lock = threading.Lock()  # one picture is read at a time, and the last one is kept
        self._last: tuple[int, Survey] | None = None

    def times(self) -> tuple[int, ...]:
        """Returns when there are pictures, in Unix time, oldest first."""
        with self._store.readable() as db:
            return tuple(at for (at,) in db.execute("SELECT at FROM pictures ORDER BY at"))

    def at(self, time_s: float) -> Survey | None:
        """The last picture that is not later, or None."""
        with self._lock, self._store.readable() as db:
            sql = "SELECT max(at) FROM pictures WHERE at <= ?"
            (at,) = db.execute(sql, (time_s,)).fetchone()
            if at is None:
                return None
            if self._last is None or self._last[0] != at:
                sql = "SELECT body FROM pictures WHERE at = ?"
                self._last = at, pictures.read_picture(*db.execute(sql, (at,)).fetchone())
            return self._last[1]

    def record(self, namespace: str, name: str) -> Json | None:
        """The latest record of a gang with this name, or whose owner has it."""
        sql = """SELECT body FROM records WHERE namespace = ? AND (gang = ? OR name = ? OR name LIKE ? ESCAPE '!')
            ORDER BY ended IS NOT NULL, ended DESC LIMIT 1"""
        with self._store.readable() as db:
            like = "%/" + re.sub(r"([!%_])", r"!\1", name)
            row = db.execute(sql, (namespace, name, name, like)).fetchone()
        return None if row is None else orjson.loads(zlib.decompress(row[0]))

    def ended(self) -> list[Json]:
        """Returns the summaries of gangs that have ended, latest first."""
        sql = "SELECT summary FROM records WHERE ended IS NOT NULL AND namespace != '' ORDER BY ended DESC LIMIT ?"
        with self._store.readable() as db:
            return [orjson.loads(body) for (body,) in db.execute(sql, (ENDED_MOST,))]

    def events(self, since_s: float) -> list[Json]:
        """Returns the records that had not ended before, those that end last first."""
        sql = "SELECT body FROM records WHERE ended >= ? ORDER BY ended DESC LIMIT ?"
        with self._store.readable() as db:
            found = db.execute(sql, (since_s, READ_MOST)).fetchall()
        return [orjson.loads(zlib.decompress(body)) for (body,) in found]

    def samples(self, since_s: float, until_s: float) -> list[tuple[int, Json]]:
        """Returns at most POINTS_MOST samples of the span, evenly chosen and with the last one, oldest first."""
        with self._store.readable() as db:
            times = [
                at
                for (at,) in db.execute(
                    "SELECT at FROM samples WHERE at >= ? AND at <= ? ORDER BY at",
                    (since_s, until_s),
                )
            ]
            step = -(-len(times) // POINTS_MOST) or 1
            chosen = times[::-1][::step][::-1]
            marks = ",".join("?" * len(chosen))
            sql = f"SELECT at, body FROM samples WHERE at IN ({marks}) ORDER BY at"
            return [(at, pictures.read_sample(body)) for at, body in db.execute(sql, chosen)]
