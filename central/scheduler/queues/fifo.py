"""Queues with `dequeueStrategy: fifo`: only the first ready gang may start.

A gang that is not ready (pods missing or gated) blocks no other.

Design: docs/design/queues.md
"""

from central.scheduler.state.gangs import Gang, GangKey


class FifoQueues:
    def __init__(self) -> None:
        self._ready: dict[str, dict[GangKey, Gang]] = {}  # pending ready gangs, by queue
        self._queue: dict[GangKey, str] = {}
        self._first: dict[str, Gang] = {}  # cache, by queue

    def update(self, gang: Gang, queue: str) -> bool:
        """queue: the fifo queue in which the gang is ready; empty: none. Returns whether the gang
        left a queue, so that the next gang there may start."""
        before = self._queue.get(gang.key, "")
        if before and before != queue:
            self.forget(gang.key)
        if queue:
            self._queue[gang.key] = queue
            self._ready.setdefault(queue, {})[gang.key] = gang
            first = self._first.get(queue)
            if first is None or first is gang or gang.attempt.rank < first.attempt.rank:
                self._first.pop(queue, None)
        return bool(before) and before != queue

    def forget(self, key: GangKey) -> bool:
        queue = self._queue.pop(key, "")
        if queue:
            del self._ready[queue][key]
            self._first.pop(queue, None)
        return bool(queue)

    def first(self, queue: str) -> Gang | None:
        ready = self._ready.get(queue)
        if not ready:
            return None
        if (found := self._first.get(queue)) is None:
            found = self._first[queue] = min(ready.values(), key=lambda gang: gang.attempt.rank)
        return found


def is_ready(gang: Gang) -> bool:
    """Returns whether only capacity keeps the gang from starting."""
    missing = gang.missing()
    return missing > 0 and not gang.counts.gated and len(gang.pods_to_start(missing)) >= missing
