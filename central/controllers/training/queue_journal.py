"""The storage of a queue's state: a snapshot, and after it entries with the tasks that changed since. The cost of a
write grows with the changes and not with the leases that are held.

An entry names the snapshot that it follows. When the entries have more rows than the snapshot, a new snapshot
supersedes them, and their names in the store are used again. Older entries name another snapshot and are skipped. So
the store is bounded, deletes nothing, and is whole between any two writes.

Design: docs/design/coordinator.md
"""

from typing import NamedTuple

from central.controllers.training.task_queue import StoredQueue, TaskQueue
from central.model.json_types import Json, ReadOnlyJson


class JournalLimits(NamedTuple):
    """Thresholds for a new snapshot. rows: of all entries, at least; entries: at most."""

    rows: int = 2048
    entries: int = 1024


ROWS_PER_SNAPSHOT = (
    2  # rows of entries, times the rows of the snapshot: a task costs half a row more
)
_TASKS_PER_ROW = 256  # of the set of done tasks in a snapshot


class QueueJournal:
    """The journal of one queue in one run of the coordinator, whose first write is a snapshot."""

    def __init__(self, name: str, run: int, limits: JournalLimits) -> None:
        self._name, self._run, self._limits = name, run, limits
        self._snapshots = 0
        self._entries, self._rows, self._most_rows = 0, 0, -1

    def sections(self, queue: TaskQueue, now: float, *, whole: bool) -> dict[str, Json]:
        """Returns the changes of the queue since the last call. whole: no entries."""
        changed = queue.take_changed()
        if whole or changed is None or self._is_full(len(changed)):
            return self._snapshot(queue, now)
        if not changed:
            return {}
        entry = queue.rows(changed, now)
        entry["follows"] = self._mark
        key = f"journal/{self._name}/{self._entries}"
        self._entries, self._rows = self._entries + 1, self._rows + len(changed)
        return {key: entry}

    @property
    def _mark(self) -> str:
        return f"{self._run}.{self._snapshots}"

    def _is_full(self, more: int) -> bool:
        return self._rows + more > self._most_rows or self._entries >= self._limits.entries

    def _snapshot(self, queue: TaskQueue, now: float) -> dict[str, Json]:
        self._snapshots += 1
        found = queue.snapshot(now)
        found["mark"] = self._mark
        size = sum(len(tasks) for _, _, tasks, *_ in found["held"]) + len(found["progress"])
        size += len(found["set_aside"]) + queue.source.total // _TASKS_PER_ROW
        self._entries, self._rows = 0, 0
        self._most_rows = max(self._limits.rows, ROWS_PER_SNAPSHOT * size)
        return {f"queue/{self._name}": found, **self._results(queue)}

    def _results(self, queue: TaskQueue) -> dict[str, Json]:
        """Two sets of results alternate, so that those of the epoch before stay."""
        return {
            f"results/{self._name}/{epoch % 2}/{part}": {"epoch": epoch, "results": rows}
            for epoch, part, rows in queue.take_results()
        }


def stored(sections: ReadOnlyJson, name: str) -> StoredQueue:
    """The queue's snapshot and the entries that follow it. A version before journals has stored none."""
    snapshot = sections[f"queue/{name}"]
    mark = snapshot.get("mark")
    entries: list[ReadOnlyJson] = []
    while mark is not None:
        entry = sections.get(f"journal/{name}/{len(entries)}")
        if entry is None or entry["follows"] != mark:
            break
        entries.append(entry)
    return StoredQueue(snapshot, entries)
