"""The tasks of a queue: parts of a range of records, or names that the Job gave."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from central.controllers.training.generation import NotAllowed
from central.model.json_types import Json, ReadOnlyJson

MOST_TASKS = 1 << 20
MOST_NAMES = 100_000
MOST_NAME_CHARACTERS = 8 << 20


@dataclass(frozen=True, slots=True)
class QueueSettings:
    seed: int = 0
    commit: bool = False  # done is provisional until a checkpoint includes it
    failures: int = 3  # a task that failed more often is set aside
    speculate: bool = False

    def json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class TaskSource:
    """Either records and size, or names, of which `total` come in parts."""

    records: int = 0
    size: int = 0
    total: int = 0
    names: list[str] = field(default_factory=list)

    @classmethod
    def of_range(cls, records: int, size: int) -> "TaskSource":
        """Raises NotAllowed."""
        total = -(-records // size)
        if total > MOST_TASKS:
            raise NotAllowed(
                f"range: {total} tasks; at most {MOST_TASKS} are accepted, use a larger size"
            )
        return cls(records, size, total)

    @classmethod
    def of_names(cls, total: int) -> "TaskSource":
        """Raises NotAllowed."""
        if total > MOST_NAMES:
            raise NotAllowed(f"total: {total} tasks; at most {MOST_NAMES} names are accepted")
        return cls(total=total)

    @property
    def complete(self) -> bool:
        return bool(self.size) or len(self.names) == self.total

    def add(self, start: int, names: Sequence[str]) -> bool:
        """Adds the names from this number on, or compares them. Returns whether there are new ones. Raises
        NotAllowed."""
        known = self.names[start : start + len(names)]
        if start > len(self.names):
            raise NotAllowed(f"from: {start}; the tasks from {len(self.names)} on are missing")
        if list(names[: len(known)]) != known or start + len(names) > self.total:
            raise NotAllowed("tasks: the queue exists with other tasks")
        fresh = names[len(known) :]
        if fresh and (twice := self._first_twice(fresh)) is not None:
            raise NotAllowed(f"tasks: {twice} is given twice; it would be done twice in an epoch")
        if sum(map(len, self.names)) + sum(map(len, fresh)) > MOST_NAME_CHARACTERS:
            raise NotAllowed(f"tasks: the names have more than {MOST_NAME_CHARACTERS} characters")
        self.names.extend(fresh)
        return bool(fresh)

    def _first_twice(self, fresh: Sequence[str]) -> str | None:
        seen = set(self.names)
        for name in fresh:
            if name in seen:
                return name
            seen.add(name)
        return None

    def name(self, task: int) -> str:
        if not self.size:
            return self.names[task]
        return f"{task * self.size}-{min(self.records, (task + 1) * self.size) - 1}"

    def json(self) -> Json:
        return {
            "records": self.records,
            "size": self.size,
            "total": self.total,
            "names": self.names,
        }

    @classmethod
    def read(cls, data: ReadOnlyJson) -> "TaskSource":
        return cls(data["records"], data["size"], data["total"], list(data["names"]))
