"""The history in pages, for a replica that copies it."""

import time
from typing import Any

from central.server.history.allocations import Allocation
from central.server.history.history_store import COLUMNS, NAMES, HistoryStore, row_of
from protos.stubs import fleet_pb2 as pb

ROWS_AT_ONCE = 2_000
PAGE_BYTES = 2 << 20  # of pictures; a page has one at least
PICTURE_BYTES = 3 << 20  # a larger one is left out


class HistoryPages:
    """Reads pages, from any thread. Raises OSError while the file can't be read."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store

    def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage:
        """Returns the allocations that are open or ended since then (Unix time in ms), in the order of their rows."""
        sql = f"""SELECT rowid, {COLUMNS} FROM allocations
            WHERE rowid > ? AND (ended IS NULL OR ended >= ?) ORDER BY rowid LIMIT ?"""
        page = pb.AllocationPage(at=round(time.time() * 1000))
        with self._store.readable() as db:
            for row, *values in db.execute(sql, (after_row, ended_since, ROWS_AT_ONCE)):
                page.rows.append(to_message(Allocation(*values)))
                page.last_row = row
        page.more = len(page.rows) == ROWS_AT_ONCE
        return page

    def pictures(self, after: int) -> pb.PicturePage:
        sql = """SELECT pictures.at, samples.body, pictures.body FROM pictures JOIN samples USING (at)
            WHERE pictures.at > ? ORDER BY pictures.at"""
        page, size = pb.PicturePage(), 0
        with self._store.readable() as db:
            for at, sample, picture in db.execute(sql, (after,)):
                if len(picture) + len(sample) > PICTURE_BYTES:
                    continue
                if size and size + len(picture) > PAGE_BYTES:
                    page.more = True
                    break
                page.pictures.append(pb.HistoryPicture(at=at, sample=sample, picture=picture))
                size += len(picture) + len(sample)
        return page


def to_message(entry: Allocation) -> pb.HistoryAllocation:
    return pb.HistoryAllocation(**dict(zip(NAMES, row_of(entry), strict=True)))


def of_message(row: pb.HistoryAllocation) -> Allocation:
    absent = {name for name in ("ended", "lost_from") if not row.HasField(name)}
    values: list[Any] = [None if name in absent else getattr(row, name) for name in NAMES]
    return Allocation(*values)
