"""API calls in flight, and refused calls in backoff. Each object has at most one call in flight, so a
controller decides again only when it knows the answer to its last call."""

from dataclasses import dataclass, field

from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered
from central.model.object_names import NamespacedName

Call = Create | Delete | SetStatus | Patch
ObjectKey = tuple[str, str, str]  # kind, namespace, name

RETRY_AFTER_S = 10.0  # backoff after a refusal
WATCH_LAG_S = 5.0  # the watch shows the result of a call by then


@dataclass(slots=True, eq=False)
class PendingCalls:
    in_flight: dict[ObjectKey, tuple[Call, NamespacedName]] = field(default_factory=dict)
    backoff_until: dict[ObjectKey, float] = field(default_factory=dict)
    _tracked: list[Call] = field(default_factory=list)  # since begin()

    def may_call(self, place: ObjectKey, now: float) -> bool:
        return place not in self.in_flight and self.backoff_until.get(place, 0.0) <= now

    def track(self, call: Call, whose: NamespacedName) -> Call:
        self.in_flight[_key(call)] = (call, whose)
        self._tracked.append(call)
        return call

    def begin(self) -> None:
        """A decision about another object begins."""
        self._tracked.clear()

    def drop(self) -> list[Call]:
        """Forgets the calls of a decision that failed, which are not made, and returns them."""
        dropped = list(self._tracked)
        for call in dropped:
            self.in_flight.pop(_key(call), None)
        self._tracked.clear()
        return dropped

    def answered(self, fact: Answered, now: float) -> tuple[Call, NamespacedName] | None:
        """The call that this answers and the key of its object; None: another controller's call."""
        place = (fact.kind, fact.namespace, fact.name)
        found = self.in_flight.get(place)
        if found is None or type(found[0]).__name__ != fact.verb:
            return None
        del self.in_flight[place]
        self.backoff_until.pop(place, None)
        if fact.why:
            self.backoff_until[place] = now + RETRY_AFTER_S
        elif not isinstance(found[0], SetStatus):
            # no repetition before the watch shows the result
            self.backoff_until[place] = now + WATCH_LAG_S
        return found

    def seen(self, place: ObjectKey) -> None:
        """The watch shows the object: calls for it are allowed again."""
        if place not in self.in_flight:
            self.backoff_until.pop(place, None)

    def due(self, now: float) -> list[float]:
        self.backoff_until = {place: at for place, at in self.backoff_until.items() if at > now}
        return list(self.backoff_until.values())


def _key(call: Call) -> ObjectKey:
    return (call.kind, call.namespace, call.name)
