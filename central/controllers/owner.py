"""Base class of the controllers whose objects own Jobs (CronJobs, JobFlows): which objects to reconcile, and
when. Subclasses decide what one object needs."""

from math import inf
from typing import Generic, Protocol, TypeVar

from central.controllers.job.job_store import JobStore
from central.controllers.pending_calls import Key, PendingCalls
from central.model.decisions import Decision


class _JobOwner(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def deleting(self) -> bool: ...


Owner = TypeVar("Owner", bound=_JobOwner)


class JobOwners(Generic[Owner]):
    def __init__(self) -> None:
        self.by_name: dict[Key, Owner] = {}
        self._by_uid: dict[str, Key] = {}
        self._calls = PendingCalls()
        self._changed: dict[Key, None] = {}
        self._alarms: dict[Key, float] = {}

    def seen(self, fact: Owner) -> None:
        key = (fact.namespace, fact.name)
        if (before := self.by_name.get(key)) is not None and before.uid != fact.uid:
            self.gone(key)
        self.by_name[key] = fact
        self._by_uid[fact.uid] = key
        self._changed[key] = None

    def gone(self, key: Key) -> None:
        if (maker := self.by_name.pop(key, None)) is not None:
            self._by_uid.pop(maker.uid, None)
        self._changed.pop(key, None)
        self._alarms.pop(key, None)

    def job_changed(self, namespace: str, name: str, owner: str) -> None:
        """A Job with this controller uid was added, changed or deleted."""
        self._calls.seen(("Job", namespace, name))
        if (key := self._by_uid.get(owner)) is not None:
            self._changed[key] = None

    def decide(self, jobs: JobStore, now: float) -> list[Decision]:
        if not self._changed and not self._alarms:
            return []
        due = [key for key, at in self._alarms.items() if at <= now]
        decisions: list[Decision] = []
        for key in dict.fromkeys((*self._changed, *due)):
            self._alarms.pop(key, None)
            if (maker := self.by_name.get(key)) is not None and not maker.deleting:
                decisions += self._decide(jobs, key, maker, now)
                if backoff_until := self._calls.due(now):  # refused calls are retried then
                    self._alarms[key] = min([*backoff_until, self._alarms.get(key, inf)])
        self._changed.clear()
        return decisions

    def _decide(self, jobs: JobStore, key: Key, maker: Owner, now: float) -> list[Decision]:
        raise NotImplementedError

    def due(self) -> list[float]:
        return list(self._alarms.values())

    def check(self) -> None:
        name = type(self).__name__
        assert self._alarms.keys() <= self.by_name.keys(), f"{name}: an alarm for a deleted object"
        assert not self._changed, f"{name}: a changed object was not reconciled"
