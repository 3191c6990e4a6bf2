"""Gangs that are one replica of an object each: the object says once what holds for all of them.

Design: docs/design/gangs.md
"""

from collections.abc import Iterable
from dataclasses import replace

from central.model import controller_gangs
from central.model.facts import GangSeen
from central.scheduler.state.gangs import GangKey

_Object = tuple[str, str]  # namespace and name, as GangSeen has them


class ReplicatedGangs:
    def __init__(self) -> None:
        self.objects: dict[_Object, GangSeen] = {}
        self._replicas: dict[_Object, dict[GangKey, None]] = {}  # those that exist

    def add(self, key: GangKey) -> GangSeen | None:
        """A gang that is new. Returns what its object says of it; None: it is not a replica, or the object is not
        known."""
        if not key[2] or not controller_gangs.is_controllers(key[1]):
            return None
        of = (key[0], controller_gangs.object_gang(key[1]))
        if of[1] != key[1]:
            self._replicas.setdefault(of, {})[key] = None
        return self.for_replica(key)

    def for_replica(self, key: GangKey) -> GangSeen | None:
        name = controller_gangs.object_gang(key[1])
        found = self.objects.get((key[0], name)) if name != key[1] else None
        return replace(found, name=key[1]) if found is not None else None

    def drop(self, key: GangKey) -> None:
        if not self._replicas:
            return
        of = (key[0], controller_gangs.object_gang(key[1]))
        if key in (kept := self._replicas.get(of, {})):
            del kept[key]
            if not kept:
                del self._replicas[of]

    def replicas_of(self, namespace: str, name: str) -> Iterable[GangKey]:
        return tuple(self._replicas.get((namespace, name), ()))
