"""Checkpoints of an elastic Job. A checkpoint is complete when all parts of one generation are in place and the
position in the data is known. A torn one is never offered.

Design: docs/design/coordinator.md
"""

from dataclasses import dataclass, field
from typing import Any

from central.controllers.training.generation import NotAllowed, Stale
from central.model.json_types import Json, ReadOnlyJson

KEEP = 3
MOST_PARTS = 4096
_MOST_OPEN = 8  # begun ones; a Job has one or two at a time


class NoSuchCheckpoint(KeyError):
    """Raised for a checkpoint that was not begun or is not kept."""

    def __str__(self) -> str:
        return f"name: there is no checkpoint {self.args[0]}"


@dataclass(slots=True)
class Checkpoint:
    name: str
    step: int
    generation: int
    token: ReadOnlyJson  # what counts as done in each queue of tasks
    began: float
    parts: int = 0  # expected; 0: not known yet
    digests: dict[int, tuple[str, int]] = field(default_factory=dict)  # digest and bytes, by rank
    data: Any = None  # the position in the data
    told_data: bool = False
    completed_at: float | None = None  # by the present coordinator's clock; None: by an earlier one

    @property
    def missing(self) -> int:
        return max(1, self.parts) - len(self.digests) + (not self.told_data)

    def json(self) -> Json:
        return {
            "name": self.name,
            "step": self.step,
            "generation": self.generation,
            "parts": self.parts,
            "data": self.data,
            "digests": [[rank, *one] for rank, one in sorted(self.digests.items())],
        }

    def snapshot(self) -> Json:
        return {**self.json(), "token": self.token, "told_data": self.told_data}

    @classmethod
    def restore(cls, data: ReadOnlyJson, now: float) -> "Checkpoint":
        digests = {rank: (digest, size) for rank, digest, size in data["digests"]}
        known = (data["name"], data["step"], data["generation"], data["token"], now)
        return cls(*known, data["parts"], digests, data["data"], data["told_data"])


@dataclass(slots=True)
class Checkpoints:
    complete: list[Checkpoint] = field(default_factory=list)  # the newest last
    restored: tuple[str, int] = ("", 0)  # last one that processes loaded, and in which generation
    version: int = 0
    last_took_s: float = 0.0
    _open: dict[str, Checkpoint] = field(default_factory=dict)

    def begin(self, now: float, generation: int, step: int, token: ReadOnlyJson) -> Checkpoint:
        """generation: the live one. Raises Stale."""
        name = f"ckpt-{step}-{generation}"
        known = self._open.get(name) or self._find(name)
        if known is not None:
            return known
        if (
            self.complete
            and step < self.complete[-1].step
            and generation == self.complete[-1].generation
        ):
            raise Stale(f"step: {self.complete[-1].name} is complete already")
        made = self._open[name] = Checkpoint(name, step, generation, token, now)
        while len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]
        self.version += 1
        return made

    def part(self, name: str, rank: int, parts: int, digest: str, size: int) -> None:
        """Raises NoSuchCheckpoint, NotAllowed."""
        one = self._open.get(name) or self._find(name)
        if one is None:
            raise NoSuchCheckpoint(name)
        if one.parts not in (0, parts):
            raise NotAllowed(f"parts: {name} has {one.parts} parts, not {parts}")
        if rank >= parts:
            raise NotAllowed(f"rank: {rank} is not below parts, which is {parts}")
        if name in self._open and one.digests.get(rank) != (digest, size):
            one.parts = parts
            one.digests[rank] = (digest, size)
            self.version += 1

    def finish(self, now: float, name: str, data: Any) -> int:
        """Notes the position in the data. Returns how much is missing; 0: it is complete. Raises
        NoSuchCheckpoint."""
        if self._find(name) is not None:
            return 0
        one = self._open.get(name)
        if one is None:
            raise NoSuchCheckpoint(name)
        one.data, one.told_data = data, True
        self.version += 1
        if not one.missing:
            self._complete(now, one)
        return one.missing

    def _complete(self, now: float, one: Checkpoint) -> None:
        del self._open[one.name]
        one.completed_at = now
        self.complete.append(one)
        self.last_took_s = now - one.began
        del self.complete[:-KEEP]
        for name in [each.name for each in self._open.values() if each.began < one.began]:
            del self._open[name]

    def is_writing(self, now: float, generation: int, within_s: float) -> bool:
        """Returns whether a checkpoint of the generation was begun within that time and is not complete."""
        return any(
            one.generation == generation and now - one.began < within_s
            for one in self._open.values()
        )

    def drop_older(self, generation: int) -> None:
        """Begun ones of generations that ended stay torn."""
        for name in [one.name for one in self._open.values() if one.generation < generation]:
            del self._open[name]
            self.version += 1

    def _find(self, name: str) -> Checkpoint | None:
        return next((one for one in self.complete if one.name == name), None)

    def newest(self) -> tuple[str, float] | None:
        """Name and time of the newest complete one; None: there is none, or its time is not known."""
        newest = self.complete[-1] if self.complete else None
        if newest is None or newest.completed_at is None:
            return None
        return newest.name, newest.completed_at

    def latest(self) -> Json | None:
        if not self.complete:
            return None
        return {**self.complete[-1].json(), "keep": [one.name for one in self.complete]}

    def load(self, name: str, generation: int) -> ReadOnlyJson | None:
        """The token to which the queues are rewound; None: that was done in this generation. What is newer than the
        loaded one is given up. Raises NoSuchCheckpoint."""
        if self.restored == (name, generation):
            return None
        one = self._find(name)
        if one is None:
            raise NoSuchCheckpoint(name)
        del self.complete[self.complete.index(one) + 1 :]
        self._open.clear()
        self.restored = (name, generation)
        self.version += 1
        return one.token

    def snapshot(self) -> Json:
        return {
            "complete": [one.snapshot() for one in self.complete],
            "open": [one.snapshot() for one in self._open.values()],
            "restored": list(self.restored),
        }

    @classmethod
    def restore(cls, data: ReadOnlyJson, now: float) -> "Checkpoints":
        made = cls([Checkpoint.restore(one, now) for one in data["complete"]])
        made._open = {one["name"]: Checkpoint.restore(one, now) for one in data["open"]}
        made.restored = (data["restored"][0], data["restored"][1])
        return made
