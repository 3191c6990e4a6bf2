"""Base class of the controllers whose objects own Jobs (CronJobs, JobFlows): which objects to reconcile, and
when. Subclasses decide what one object needs."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar, Generic, TypeVar

from central.controllers.job.job_store import JobStore
from central.controllers.object_fence import ObjectFence
from central.controllers.pending_calls import Call, PendingCalls
from central.model.decisions import Decision, SetStatus
from central.model.facts import Answered, CronSeen, FlowSeen
from central.model.json_types import ReadOnlyJson
from central.model.object_names import NamespacedName

Owner = TypeVar("Owner", bound=CronSeen | FlowSeen)


@dataclass(eq=False)
class JobOwners(Generic[Owner]):
    """Subclasses say the type of by_name again: a checkpoint is read by it."""

    KIND: ClassVar = ""

    by_name: dict[NamespacedName, Owner] = field(default_factory=dict)
    _by_uid: dict[str, NamespacedName] = field(default_factory=dict)
    _calls: PendingCalls = field(default_factory=PendingCalls)
    _changed: dict[NamespacedName, None] = field(default_factory=dict)
    _alarms: dict[NamespacedName, float] = field(default_factory=dict)

    def seen(self, fact: Owner) -> None:
        key = (fact.namespace, fact.name)
        if (before := self.by_name.get(key)) is not None and before.uid != fact.uid:
            self.gone(key)
        self.by_name[key] = fact
        self._by_uid[fact.uid] = key
        self._changed[key] = None

    def gone(self, key: NamespacedName) -> None:
        if (maker := self.by_name.pop(key, None)) is not None:
            self._by_uid.pop(maker.uid, None)
        self._changed.pop(key, None)
        self._alarms.pop(key, None)
        self._forget_calls(key)

    def job_changed(self, namespace: str, name: str, owner: str) -> None:
        """A Job with this controller uid was added, changed or deleted."""
        self._calls.seen(("Job", namespace, name))
        if (key := self._by_uid.get(owner)) is not None:
            self._changed[key] = None

    def answered(self, fact: Answered, fence: ObjectFence, now: float) -> bool:
        """Returns whether the fact answers one of this controller's calls."""
        if (found := self._calls.answered(fact, now)) is None:
            return False
        call, key = found
        maker = self.by_name.get(key)
        if maker is not None:
            self._changed[key] = None
        try:
            self._note_answer(call, key, fact.why)
        except Exception as error:  # noqa: BLE001  a bug; the object is set aside
            self._forget_calls(key)
            if maker is not None:
                fence.failed(key, replace(maker, status={}), error)
        return True

    def _note_answer(self, call: Call, key: NamespacedName, why: str) -> None:
        """Records an answer. why: why the API server refused the call; "" if it did not."""
        raise NotImplementedError

    def _forget_calls(self, key: NamespacedName) -> None:
        """Forgets what was noted of the object's calls; the watch shows what they did."""
        raise NotImplementedError

    def decide(self, jobs: JobStore, fence: ObjectFence, now: float) -> list[Decision]:
        """An object whose decision raises is set aside; the others get theirs."""
        due = fence.retried(self.by_name)
        if not self._changed and not self._alarms and not due:
            return []
        due += [key for key, at in self._alarms.items() if at <= now]
        decisions: list[Decision] = []
        for key in dict.fromkeys((*self._changed, *due)):
            self._alarms.pop(key, None)
            if (maker := self.by_name.get(key)) is not None and not maker.deleting:
                decisions += self._contained(jobs, fence, key, maker, now)
                if backoff_until := self._calls.due(now):  # refused calls are retried then
                    self._alarms[key] = min([*backoff_until, self._alarms.get(key, inf)])
        self._changed.clear()
        return decisions

    def _contained(
        self, jobs: JobStore, fence: ObjectFence, key: NamespacedName, maker: Owner, now: float
    ) -> list[Decision]:
        content = replace(maker, status={})
        if fence.blocks(key, content):
            return []
        self._calls.begin()
        try:
            decisions = self._decide(jobs, key, maker, now)
        except Exception as error:  # noqa: BLE001  a bug; the object is set aside
            return self._set_aside(key, maker, fence.failed(key, content, error).why, now)
        fence.passed(key)
        return decisions

    def _set_aside(self, key: NamespacedName, maker: Owner, why: str, now: float) -> list[Decision]:
        """Takes back what was noted for the calls that are not made, and reports why."""
        dropped = self._calls.drop()
        try:
            for call in dropped:
                self._note_answer(call, key, why)
            return self._write_set_aside(key, maker, why, now)
        except Exception:  # noqa: BLE001  not even that can be computed
            self._calls.drop()
            self._forget_calls(key)
            return []

    def _write_set_aside(
        self, key: NamespacedName, maker: Owner, why: str, now: float
    ) -> list[Decision]:
        """Writes into the status why the object is set aside."""
        kind = self.KIND
        if not self._calls.may_call((kind, *key), now):
            return []
        status = self._status_of_set_aside(maker, why)
        return [self._calls.track(SetStatus(kind, *key, maker.uid, status), key)]

    def _decide(
        self, jobs: JobStore, key: NamespacedName, maker: Owner, now: float
    ) -> list[Decision]:
        raise NotImplementedError

    def _status_of_set_aside(self, maker: Owner, why: str) -> ReadOnlyJson:
        """The last status, with this message."""
        raise NotImplementedError

    def due(self) -> list[float]:
        return list(self._alarms.values())
