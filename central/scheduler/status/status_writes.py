"""Writes the status of objects of one kind: on change, at most once a second, one write in flight per object.
A refused write is repeated after 10 s, unless the object is gone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from central.model.decisions import SetStatus
from central.model.facts import Answered

Status = Mapping[str, Any]

APART_S = 1.0
FAILED_S = 10.0
_GONE = 404


@dataclass(slots=True)
class StatusWrites:
    _kind: str
    changed: dict[str, None] = field(default_factory=dict)  # objects whose status may have changed
    # uid and status, as last written
    _written: dict[str, tuple[str, Status]] = field(default_factory=dict)
    _in_flight: dict[str, tuple[str, Status]] = field(default_factory=dict)  # not answered yet
    _not_before: dict[str, float] = field(default_factory=dict)  # not written again before

    def answered(self, fact: Answered, now: float, *, lost: bool = False) -> None:
        """Takes the answer to a write of ours, since which the status may have changed. lost: it could not be applied,
        so that the write is repeated."""
        if (fact.kind, fact.verb) != (self._kind, SetStatus.__name__):
            return
        written = self._in_flight.pop(fact.name, None)
        if written is None and not lost:
            return
        self.changed[fact.name] = None
        # a status that cannot be written any more counts as written
        if written is not None and not lost and (not fact.why or fact.code == _GONE):
            self._written[fact.name] = written
        else:
            self._not_before[fact.name] = now + FAILED_S

    def ready(self, name: str, now: float) -> bool:
        return name not in self._in_flight and now >= self._not_before.get(name, 0.0)

    def due(self, now: float) -> list[float]:
        """Returns when the changed objects may be written. One in flight is left out: it may be after its answer."""
        ready = (name for name in self.changed if name not in self._in_flight)
        return [max(now, self._not_before.get(name, now)) for name in ready]

    def write(self, name: str, uid: str, status: Status, now: float) -> SetStatus | None:
        """Writes the status of an object that is ready. None: it is written already."""
        if self._written.get(name) == (uid, status):
            return None
        self._in_flight[name] = (uid, status)
        self._not_before[name] = now + APART_S
        return SetStatus(self._kind, "", name, uid, status)

    def names(self) -> tuple[str, ...]:
        """Returns the names of the objects whose status was written."""
        return tuple(self._written)

    def forget(self, name: str) -> None:
        self._written.pop(name, None)
        self._not_before.pop(name, None)
