"""Lines of queues that are first in, first out (dequeueStrategy: fifo): whoever is ready and has no place stands in
line, and only the first of it may start. Who is not ready, because pods lack or are gated, holds up nobody."""

from central.scheduler.state.gangs import Gang, GangKey


class FifoQueues:
    def __init__(self) -> None:
        self._line: dict[str, dict[GangKey, Gang]] = {}  # by queue
        self._queue: dict[GangKey, str] = {}
        self._first: dict[str, Gang] = {}  # of the line, until that changes

    def file(self, gang: Gang, queue: str) -> bool:
        """queue: whose line it stands in; none: it does not. Says whether others may be luckier now."""
        before = self._queue.get(gang.key, "")
        if before and before != queue:
            self.forget(gang.key)
        if queue:
            self._queue[gang.key] = queue
            self._line.setdefault(queue, {})[gang.key] = gang
            first = self._first.get(queue)
            if first is None or first is gang or gang.attempt.rank < first.attempt.rank:
                self._first.pop(queue, None)
        return bool(before) and before != queue

    def forget(self, key: GangKey) -> bool:
        queue = self._queue.pop(key, "")
        if queue:
            del self._line[queue][key]
            self._first.pop(queue, None)
        return bool(queue)

    def first(self, queue: str) -> Gang | None:
        line = self._line.get(queue)
        if not line:
            return None
        if (found := self._first.get(queue)) is None:
            found = self._first[queue] = min(line.values(), key=lambda gang: gang.attempt.rank)
        return found


def is_ready(gang: Gang) -> bool:
    """Whether it could start if there were room."""
    missing = gang.missing()
    return missing > 0 and not gang.counts.gated and len(gang.starters()) >= missing
