"""The queues of tasks of an elastic Job, by name."""

from collections.abc import Sequence

from central.controllers.training import queue_journal
from central.controllers.training.generation import NotAllowed
from central.controllers.training.task_queue import TaskQueue
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.model.json_types import Json, ReadOnlyJson

MOST_QUEUES = 16
_ATTEMPTS = 1 << 32  # attempts that one run of the coordinator may give


class NoSuchQueue(KeyError):
    """The queue was not created."""

    def __str__(self) -> str:
        return f"queue: there is no queue {self.args[0]}; POST /v1/queue creates it"


class Tasks:
    """run: the number of this run of the coordinator. Attempts of different runs are different."""

    def __init__(self, run: int = 0) -> None:
        self.queues: dict[str, TaskQueue] = {}
        self._first_attempt = 1 + run * _ATTEMPTS

    def __getitem__(self, name: str) -> TaskQueue:
        """Raises NoSuchQueue."""
        found = self.queues.get(name)
        if found is None:
            raise NoSuchQueue(name)
        return found

    def create(
        self,
        name: str,
        settings: QueueSettings,
        source: TaskSource,
        start: int = 0,
        names: Sequence[str] = (),
    ) -> TaskQueue:
        """source: without its names, which are given from number `start` on. Raises NotAllowed."""
        queue = self.queues.get(name)
        if queue is None:
            if len(self.queues) >= MOST_QUEUES:
                raise NotAllowed(f"queue: a Job has at most {MOST_QUEUES}")
            if start:
                raise NotAllowed(f"from: {start}; the tasks from 0 on are missing")
            queue = TaskQueue(name, settings, source, self._first_attempt)
            queue.source.add(0, names)
            self.queues[name] = queue
            queue.version += 1
            return queue
        kind = (queue.source.records, queue.source.size, queue.source.total)
        if (kind, queue.settings) != ((source.records, source.size, source.total), settings):
            raise NotAllowed(f"queue: {name} exists with other tasks or settings")
        if queue.source.add(start, names):
            queue.version += 1
        return queue

    def advance(self, now: float, present: dict[int, int]) -> float | None:
        """Ends leases that expired and those of processes that are not present. Returns when to call again."""
        for queue in self.queues.values():
            queue.release(present)
            queue.expire(now)
        times = [one for queue in self.queues.values() if (one := queue.next_time()) is not None]
        return min(times, default=None)

    def too_many_set_aside(self, most: float) -> str:
        """A sentence on a queue of which more than this part is set aside in its epoch; empty: there is none."""
        for name, queue in self.queues.items():
            count, total = len(queue.set_aside), queue.source.total
            if count > most * total:
                task, why = min(queue.set_aside.items())
                return (
                    f"queue {name}: {count} of {total} tasks were set aside, more than {most:.2%}; "
                    f"the first is {queue.source.name(task)}: {why[:200]}"
                )
        return ""

    def token(self) -> Json:
        """Returns the tokens of the queues that are tied to checkpoints."""
        return {name: queue.token() for name, queue in self.queues.items() if queue.settings.commit}

    def rewind(self, token: ReadOnlyJson) -> None:
        """Queues that the token does not have were created later: their tasks are all todo."""
        for name, queue in self.queues.items():
            queue.rewind(token.get(name) or queue.unbegun())

    def restore(self, now: float, sections: ReadOnlyJson) -> None:
        """Queues with their sources, snapshots, journals and results, by the names that these have in the store."""
        for key in sections:
            if key.startswith("queue/"):
                _, name = key.split("/", 1)
                self.queues[name] = TaskQueue.restore(
                    name,
                    TaskSource.read(sections[f"source/{name}"]),
                    queue_journal.stored(sections, name),
                    now,
                    self._first_attempt,
                )
        for key, section in sections.items():
            if key.startswith("results/"):
                _, rest = key.split("/", 1)
                if (queue := self.queues.get(rest.rsplit("/", 2)[0])) is not None:
                    queue.read_results(section["epoch"], section["results"])
