"""Contains an exception in a controller's decision about one object to that object: the others of the step
are reconciled in the same cycle.

    the decision raises        its decisions are dropped, and what was noted for them is taken back
    the object changes         it is tried at once the first time, then with a backoff
    it does not change         it is tried again after the quarantine's backoff

Design: docs/design/containment.md
"""

from collections.abc import Container
from typing import cast

from central.model.object_names import NamespacedName
from central.scheduler.quarantine import Quarantine, SetAside, SetAsideKey


class ObjectFence:
    """The quarantine as the controller of one kind sees it. content: what a decision about the object
    depends on; equal as long as another try is pointless."""

    def __init__(self, quarantine: Quarantine, kind: str, now: float) -> None:
        self._quarantine, self._kind, self._now = quarantine, kind, now

    def blocks(self, key: NamespacedName, content: object) -> bool:
        """Returns whether the object, as it is now, must not be tried."""
        return self._quarantine.blocks(self._key(key), content, self._now)

    def failed(self, key: NamespacedName, content: object, error: Exception) -> SetAside:
        """Sets the object aside."""
        return self._quarantine.set_aside(self._key(key), key, error, content, self._now)

    def why(self, key: NamespacedName) -> str:
        """Returns why the object is set aside, for users; "" if it is not."""
        return self._quarantine.why(self._key(key))

    def absence(self, kind: str, name: str, namespace: str = "") -> str:
        """Returns Quarantine.absence(); "" if the object is not set aside, so that it does not exist or is not known
        yet."""
        why = self._quarantine.why(SetAsideKey(kind, (namespace, name)))
        return f"is {why}" if why else ""

    def passed(self, key: NamespacedName) -> None:
        """The object was tried without a failure."""
        self._quarantine.release(self._key(key))

    def postpone(self, key: NamespacedName, delay_s: float) -> None:
        """The object could not be tried now."""
        if (found := self._quarantine.set_asides.get(self._key(key))) is not None:
            found.retry_at = max(found.retry_at, self._now + delay_s)

    def retried(self, known: Container[NamespacedName]) -> list[NamespacedName]:
        """The objects whose backoff has ended. Forgets those that are gone."""
        due = []
        for key, found in list(self._quarantine.set_asides.items()):
            if key.kind != self._kind or not key.of_decision:
                continue
            name = cast("NamespacedName", key.identity)
            if name not in known:
                self._quarantine.release(key)
            elif self._now >= found.retry_at:
                due.append(name)
        return due

    def _key(self, key: NamespacedName) -> SetAsideKey:
        return SetAsideKey(self._kind, key, of_decision=True)
