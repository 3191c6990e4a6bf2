"""API calls in flight, and refused calls in backoff. Each object has at most one call in flight, so a
controller decides again only when it knows the answer to its last call."""

from hashlib import blake2b

from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered
from central.model.timestamps import stamp

Call = Create | Delete | SetStatus | Patch
ObjectKey = tuple[str, str, str]  # kind, namespace, name
Key = tuple[str, str]  # namespace and name

RETRY_AFTER_S = 10.0  # backoff after a refusal
WATCH_LAG_S = 5.0  # the watch shows the result of a call by then


class PendingCalls:
    def __init__(self) -> None:
        self.in_flight: dict[ObjectKey, tuple[Call, Key]] = {}
        self.backoff_until: dict[ObjectKey, float] = {}

    def may_call(self, place: ObjectKey, now: float) -> bool:
        return place not in self.in_flight and self.backoff_until.get(place, 0.0) <= now

    def track(self, call: Call, whose: Key) -> Call:
        self.in_flight[_key(call)] = (call, whose)
        return call

    def answered(self, fact: Answered, now: float) -> tuple[Call, Key] | None:
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
            self.backoff_until[place] = (
                now + WATCH_LAG_S
            )  # no repetition before the watch shows the result
        return found

    def seen(self, place: ObjectKey) -> None:
        """The watch shows the object: calls for it are allowed again."""
        if place not in self.in_flight:
            self.backoff_until.pop(place, None)

    def due(self, now: float) -> list[float]:
        self.backoff_until = {place: at for place, at in self.backoff_until.items() if at > now}
        return list(self.backoff_until.values())


def build_event(
    about: dict[str, str], reason: str, message: str, now: float, *, warning: bool = True
) -> Create:
    """An Event; about: apiVersion, kind, namespace, name, uid. Equal messages share one Event."""
    digest = blake2b("\n".join((about["uid"], reason, message)).encode(), digest_size=8).hexdigest()
    namespace = about["namespace"] or "default"
    name = f"{about['name'][:200]}.{digest}"
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {key: value for key, value in about.items() if value},
        "reason": reason,
        "message": message[:1000],
        "type": "Warning" if warning else "Normal",
        "source": {"component": "lockstep"},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }
    return Create("Event", namespace, name, body)


def _key(call: Call) -> ObjectKey:
    return (call.kind, call.namespace, call.name)
