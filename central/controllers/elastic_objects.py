"""Objects of controllers of pods whose size the scheduler decides: Deployments, batch Jobs, JobSets and so on. Their
own controllers create and delete the pods; this one writes the size.

A size outside the range is brought into it, 0 is left alone. Each object has at most one write under way. Nothing is
decided for a while after a refusal, and where another client changes the size again and again.

Design: docs/design/elastic-controllers.md
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from central.controllers import elastic_members
from central.controllers.job.rate_limit import StatusRateLimiter
from central.controllers.object_fence import ObjectFence
from central.model.decisions import Decision, SetSize
from central.model.event_objects import about, build_event
from central.model.event_reasons import GREW, INVALID_SPEC, SHRANK, SIZE_REFUSED
from central.model.facts import Answered, ElasticGone, ElasticSeen
from central.model.facts.elastic_facts import BY_COST, BY_INDEX, BY_NAME, SIZED_KINDS
from central.model.stored_fields import NOT_STORED
from central.scheduler.elastic.elastic_gang import ElasticGang, Resize, on_its_gpus
from central.scheduler.inventory.pods import EVICTION_ENDED
from central.scheduler.state import gang_members
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey

KIND = "elastic object"
REFUSED_S = 60.0  # after a refusal the size stays as it is
LAG_S = 30.0  # between a write and what the watches show of it
CHANGES_MOST = 3  # of the size by others, inside CONTEST_S; then it stays as it is for as long
CONTEST_S = 600.0
NO_GANG_S = 60.0  # how long its pods may take to appear

ObjectName = tuple[str, str, str]  # kind, namespace, name


@dataclass(slots=True)
class NewSize:
    size: int
    why: str
    leaving: tuple[tuple[str, str], ...] = ()  # names and uids
    written: bool = False  # the API server has it
    until: float = inf  # the watch shows it by then, or somebody else has changed it since


@dataclass(slots=True)
class ElasticObject:
    seen: ElasticSeen
    decided: NewSize | None = None
    asked: bool = False  # the write is under way
    write_at: float | None = None  # the place of the write in the rate
    why: str = ""  # of the last change
    stays_until: float = 0.0  # no size is decided before
    changed_by_others: int = 0  # since the last decision
    others_at: list[float] = field(default_factory=list)
    marked: dict[str, float] = field(default_factory=dict)  # pods that count as leaving, until
    no_gang_since: float | None = None
    told: str = ""  # the last warning
    view: tuple[Any, Any] = field(default=(None, None), metadata=NOT_STORED)

    @property
    def name(self) -> ObjectName:
        return self.seen.kind, self.seen.namespace, self.seen.name

    @property
    def key(self) -> tuple[str, str]:
        return self.seen.namespace, self.seen.gang


@dataclass(slots=True, eq=False)
class ElasticObjects:
    by_name: dict[ObjectName, ElasticObject] = field(default_factory=dict)
    by_gang: dict[tuple[str, str], ElasticObject] = field(default_factory=dict, metadata=NOT_STORED)
    _changed: dict[ObjectName, None] = field(default_factory=dict)
    _due: dict[ObjectName, float] = field(default_factory=dict)
    _marking: dict[ObjectName, None] = field(default_factory=dict)  # their pods count as leaving
    _rate: StatusRateLimiter = field(default_factory=StatusRateLimiter)
    _events: list[Decision] = field(default_factory=list)

    # --- facts

    def restore(self) -> None:
        """Completes it after it was read from a checkpoint."""
        self.by_gang = {known.key: known for known in self.by_name.values()}

    def apply(self, fact: ElasticSeen | ElasticGone) -> None:
        name = (fact.kind, fact.namespace, fact.name)
        known = self.by_name.get(name)
        if isinstance(fact, ElasticGone) or (known is not None and known.seen.uid != fact.uid):
            self._forget(name)
            known = None
        if isinstance(fact, ElasticGone):
            return
        self._changed[name] = None
        if known is None:
            self.by_name[name] = self.by_gang[fact.namespace, fact.gang] = ElasticObject(fact)
            return
        size, decided = known.seen.set_size, known.decided
        own = decided is not None and known.asked and fact.set_size == decided.size
        off = not known.seen.size or not fact.size
        known.changed_by_others += fact.set_size != size and not off and not own
        known.seen = fact
        self.by_gang[known.key] = known

    def _forget(self, name: ObjectName) -> None:
        known = self.by_name.pop(name, None)
        self._changed.pop(name, None)
        self._due.pop(name, None)
        self._marking.pop(name, None)
        if known is not None and self.by_gang.get(known.key) is known:
            del self.by_gang[known.key]

    def answered(self, fact: Answered, now: float) -> bool:
        """Returns whether the fact answers a call for one of these objects."""
        if fact.verb != SetSize.__name__:
            return False
        known = self.by_name.get((fact.kind, fact.namespace, fact.name))
        if known is None or known.decided is None or not known.asked:
            return True
        self._changed[known.name] = None
        if not fact.why:
            decided = known.decided
            decided.written, decided.until = True, now + LAG_S
            self._mark(known, decided, now + LAG_S)
            known.why = decided.why
            reason = GREW if decided.size > known.seen.set_size else SHRANK
            if known.seen.set_size == decided.size:
                reason = SHRANK if decided.leaving else GREW
            self._tell(known, reason, f"{_of(known, decided.size)}: {decided.why}", now)
            return True
        self._drop(known, now)
        known.stays_until = now + REFUSED_S
        if fact.code != 404:  # it is gone
            self._warn(
                known, SIZE_REFUSED, f"its size stays as it is for a minute: {fact.why}", now
            )
        return True

    # --- what the autoscaler sees and asks

    def gangs(self, state: ClusterState) -> Iterator[ElasticGang]:
        for known in self.by_name.values():
            seen = known.seen
            if seen.error or not seen.size or known.stays_until > state.now:
                continue
            gang = state.gangs.get((*known.key, True))
            if gang is not None and gang.members:
                yield self._view(known, gang, state)

    def left_alone(self, key: GangKey, now: float) -> str:
        """Returns why its size is not decided now; "" if it is, or the object is none of these."""
        known = self.by_gang.get(key[:2])
        if known is None:
            return ""
        return known.told if known.seen.error or known.stays_until > now else ""

    def resize(self, asked: Resize) -> bool:
        """Writes the size if the gang belongs to one of these objects. Returns whether it does."""
        known = self.by_gang.get(asked.key[:2])
        if known is None:
            return False
        seen, members = known.seen, frozenset(asked.members)
        size = len(members)
        if seen.leaves == BY_INDEX and not members >= frozenset(range(seen.size)):
            size = max(members, default=seen.task.least - 1) + 1  # a lower number may lack its pod
            size = -(-size // seen.unit) * seen.unit
        leaving = tuple((pod.seen.name, pod.seen.uid) for pod in asked.leaving)
        known.decided = NewSize(min(max(size, seen.task.least), seen.task.most), asked.why, leaving)
        self._changed[known.name] = None
        return True

    @staticmethod
    def _view(known: ElasticObject, gang: Gang, state: ClusterState) -> ElasticGang:
        """Kept until the gang or a decision about its size changes."""
        counts, seen = gang.counts, known.seen
        settled = known.decided is None and not known.marked
        task = on_its_gpus(seen.task, counts.placed, state.nodes)
        stamp = (id(counts), len(counts.placed), counts.succeeded, seen, settled, task, known.why)
        if known.view[0] != stamp:
            made = elastic_members.as_gang(seen, task, gang, settled=settled, why=known.why)
            known.view = (stamp, (made, counts))  # which keeps the id
        found: ElasticGang = known.view[1][0]
        return found

    # --- decisions

    def decide(self, state: ClusterState, fence: ObjectFence, now: float) -> list[Decision]:
        due = (name for name, at in self._due.items() if at <= now)
        again = (self.by_gang[key].name for key in fence.retried(self.by_gang))
        names = [*self._changed, *due, *self._marking, *again]
        self._changed = {}
        decisions: list[Decision] = []
        for name in dict.fromkeys(names):
            self._due.pop(name, None)
            known = self.by_name[name]
            if fence.blocks(known.key, known.seen):
                continue
            try:
                decisions += self._object(known, state, now)
                fence.passed(known.key)
            except Exception as error:  # noqa: BLE001  a bug; the object is set aside
                fence.failed(known.key, known.seen, error)
        decisions += self._events
        self._events = []
        return decisions

    def due(self) -> list[float]:
        return list(self._due.values())

    def _object(self, known: ElasticObject, state: ClusterState, now: float) -> Iterator[Decision]:
        self._settle(known, state, now)
        seen = known.seen
        if seen.error:
            self._warn(known, INVALID_SPEC, seen.error, now)
            return
        self._count_others(known, now)
        if known.stays_until > now:
            self._look_again(known, known.stays_until)
            return
        self._look_for_gang(known, state, now)
        if known.decided is None and seen.size and (size := _allowed(seen)) != seen.set_size:
            why = f"{seen.set_size // seen.unit} is not a size between its elastic-min and elastic-max"
            known.decided = NewSize(size, why)
        decided = known.decided
        if decided is None or known.asked:
            return
        if decided.size == seen.set_size:
            self._drop(known, now)
            return
        if known.write_at is None:
            known.write_at = self._rate.reserve(now)
        if known.write_at > now:
            self._look_again(known, known.write_at)
            return
        known.asked, known.write_at = True, None
        chosen = decided.leaving if seen.leaves in (BY_COST, BY_NAME) else ()
        yield SetSize(
            *known.name,
            seen.uid,
            decided.size // seen.unit,
            seen.completions,
            chosen,
            int(now) if chosen else 0,
            decided.why,
            seen.role,
            seen.place,
            bool(seen.ceiling),
        )

    def _settle(self, known: ElasticObject, state: ClusterState, now: float) -> None:
        """Compares the last write with the watches."""
        decided = known.decided
        if decided is not None and decided.written:
            if known.seen.set_size == decided.size or now >= decided.until:
                known.decided, known.asked = None, False
                self._look_again(known, now)  # the autoscaler decides before this, in a cycle
            else:
                self._look_again(known, decided.until)
        if known.marked:
            self._settle_marks(known, state, now)

    def _settle_marks(self, known: ElasticObject, state: ClusterState, now: float) -> None:
        """Pods that were to leave and stay: their controller has deleted others. That is certain as soon as it has
        no more pods than it should, or else after a while."""
        gang = state.gangs.get((*known.key, True))
        pods = gang.members.values() if gang is not None else ()
        there = sum(
            pod.alive and not pod.seen.deleting and elastic_members.counts(known.seen, pod)
            for pod in pods
        )
        over = known.decided is None and there <= known.seen.size
        for uid, until in list(known.marked.items()):
            pod = state.pods.get(uid)
            if pod is None or pod.seen.deleting or not pod.evicting:
                del known.marked[uid]
            elif over or now >= until:
                del known.marked[uid]
                pod.advance(EVICTION_ENDED)
                gang_members.member_changed(state, pod)
            else:
                self._look_again(known, until)
        if not known.marked:
            del self._marking[known.name]
            self._look_again(known, now)

    def _count_others(self, known: ElasticObject, now: float) -> None:
        known.others_at = [at for at in known.others_at if now - at < CONTEST_S]
        known.others_at += [now] * known.changed_by_others
        known.changed_by_others = 0
        if len(known.others_at) >= CHANGES_MOST:
            known.others_at.clear()
            self._drop(known, now)
            known.stays_until = now + CONTEST_S
            where = SIZED_KINDS[known.seen.kind].field
            self._warn(
                known,
                SIZE_REFUSED,
                f"another client changes {where}, too, {CHANGES_MOST} times in {CONTEST_S / 60:.0f} minutes (a "
                "HorizontalPodAutoscaler, or a tool that applies manifests?); its size is left alone for as long",
                now,
            )

    def _look_for_gang(self, known: ElasticObject, state: ClusterState, now: float) -> None:
        gang = state.gangs.get((*known.key, True))
        if not known.seen.size or (gang is not None and gang.members):
            known.no_gang_since = None
            return
        if known.no_gang_since is None:
            known.no_gang_since = now
        if now - known.no_gang_since < NO_GANG_S:
            self._look_again(known, known.no_gang_since + NO_GANG_S)
            return
        why = (
            "its pods are no gang of their own here, so its size stays as it is: they need schedulerName lockstep, no "
            "PodGroup and no label lockstep.dev/gang"
        )
        self._warn(known, SIZE_REFUSED, why, now)

    def _drop(self, known: ElasticObject, now: float) -> None:
        """The decision is given up; the pods that were to leave stay."""
        if known.decided is not None:
            self._mark(known, known.decided, now)
        known.decided, known.asked, known.write_at = None, False, None
        self._look_again(known, now)

    def _mark(self, known: ElasticObject, decided: NewSize, until: float) -> None:
        known.marked |= {uid: until for _, uid in decided.leaving}
        if known.marked:
            self._marking[known.name] = None

    def _look_again(self, known: ElasticObject, at: float) -> None:
        self._due[known.name] = min(at, self._due.get(known.name, inf))

    def _warn(self, known: ElasticObject, reason: str, message: str, now: float) -> None:
        if known.told != message:
            known.told = message
            self._tell(known, reason, message, now, warning=True)

    def _tell(
        self, known: ElasticObject, reason: str, message: str, now: float, *, warning: bool = False
    ) -> None:
        version = SIZED_KINDS[known.seen.kind].api_version
        concerning = about(version, *known.name, known.seen.uid)
        self._events.append(
            build_event(concerning, reason, message, now, warning=warning, of_now=not warning)
        )


def _of(known: ElasticObject, size: int) -> str:
    task, unit = known.seen.task, known.seen.unit
    return f"{size // unit} of {task.least // unit} to {task.most // unit}"


def _allowed(seen: ElasticSeen) -> int:
    task = seen.task
    above = min(max(seen.set_size, task.least), task.most) - task.least
    return task.least + above // task.step * task.step
