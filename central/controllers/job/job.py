"""One Job as the controller knows it: the observed objects, the calls in flight and their outcomes."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from central.controllers.job.state_machine import ACTIVE
from central.model.facts import Answered, CoordinatorReported, JobSeen, PodSeen
from central.model.jobspec import JobSpec, JobStatus, TaskSpec, group_name, pod_name, with_members
from central.model.member_files import MemberFiles
from central.model.stored_fields import NOT_STORED
from central.scheduler.elastic.elastic_gang import LEAVE_S

WATCH_TIMEOUT_S = 30.0  # a call whose effect the watch has not shown by then is repeated
RETRY_S = (1.0, 60.0)  # first, longest
GONE = 404
FILES = ("files of", "members")  # the place of refused writes of central.model.member_files

ObjectRef = tuple[str, str]  # kind and name
_SEEN_LATER = ("Pod", "PodGroup", "PersistentVolumeClaim")


@dataclass(slots=True)
class ApiRefusal:
    why: str
    times: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class RequestedSize:
    """The members of the elastic task that the autoscaler decided."""

    members: tuple[int, ...]
    why: str
    cause: str = ""
    leave_s: float = LEAVE_S


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """An action that a Command requests."""

    action: str
    why: str  # the Command's name, reason and message
    uid: str


@dataclass(slots=True)
class TrainingNotes:
    """The values that Events have reported, or need not report. at: the time, by the Event's reason."""

    checkpoint: str
    restored: str
    set_aside: str
    at: dict[str, float] = field(default_factory=dict)
    standstill: str = ""
    pairs: str = ""
    slow: str = ""


@dataclass(slots=True, eq=False)
class Job:
    """pods: all that it controls, by uid"""

    seen: JobSeen = field(metadata=NOT_STORED)
    pods: dict[str, PodSeen] = field(metadata=NOT_STORED)
    status: JobStatus = field(init=False)  # the latest known status in the API
    writing: JobStatus | None = None  # a status write in flight
    written: object = None  # the last complete status that was written
    wrote_at: float = -WATCH_TIMEOUT_S
    status_due_at: float | None = None  # when the rate limiter allows the next write of counts
    # (verb, object) of calls without an answer
    in_flight: set[tuple[str, ObjectRef]] = field(default_factory=set)
    # created, but not in the watch yet
    unobserved: dict[ObjectRef, float] = field(default_factory=dict)
    # pods by uid: when their deletion was requested
    deletions: dict[str, float] = field(default_factory=dict)
    refused: dict[ObjectRef, ApiRefusal] = field(default_factory=dict)
    # of its plugins, as last written
    objects: dict[ObjectRef, object] = field(default_factory=dict)
    podgroup_written: object = None  # the PodGroup's size as last written
    # pods that others evicted or deleted, by name
    lost: dict[str, float] = field(default_factory=dict)
    lost_from: dict[str, str] = field(default_factory=dict)  # the nodes of those, by pod name
    # by pod name: a node that failed a check of pairs, and until when
    avoided: dict[str, tuple[str, float]] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()  # of these nodes, those that are being drained
    by_scheduler: set[str] = field(default_factory=set)  # pods that the scheduler evicted
    # tasks that lost pods while no scheduler ran
    lost_by_task: dict[str, float] = field(default_factory=dict)
    event_since: dict[str, float] = field(default_factory=dict)
    commands: list[RequestedAction] = field(default_factory=list)
    spec_changed: bool = False
    admitted: bool = False  # pods may be created
    gang_reason: str = ""  # why its gang waits, for readers of the Job's namespace
    pending_reason: str = ""  # why it is not admitted, or why its gang is pending
    set_aside: str = ""  # the bug of the scheduler that keeps it from being reconciled
    requeue_at: float | None = None  # when to reconcile it again
    queued_at: float | None = None  # the requeue_at that JobStore's heap has
    is_new: bool = True  # not reconciled yet
    resize: RequestedSize | None = None  # not written yet
    # None: its coordinator is silent
    reported: CoordinatorReported | None = field(default=None, metadata=NOT_STORED)
    training_notes: TrainingNotes | None = None
    # How long a member that leaves by this plan may take until it is deleted.
    leave_s: float = LEAVE_S
    leave_by: dict[str, float] = field(default_factory=dict)  # those that do, by pod uid
    # Of members' files: (uid, contents) as last written, by pod name; when the next ones are written.
    files_written: dict[str, tuple[str, MemberFiles]] = field(default_factory=dict)
    files_due_at: float | None = None
    # of elastic_jobs.py
    elastic_view: tuple[object, Any] = field(default=(None, None), metadata=NOT_STORED)
    _desired_pods: dict[str, tuple[TaskSpec, int]] = field(
        default_factory=dict, metadata=NOT_STORED
    )
    # the spec that _desired_pods was computed from
    _desired_by: JobSpec | None = field(default=None, metadata=NOT_STORED)
    _sized: JobSpec = field(init=False, metadata=NOT_STORED)
    _sized_by: tuple[JobSpec, tuple[int, ...]] | None = field(default=None, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        self.status, self._sized = self.seen.status, self.seen.spec

    @property
    def spec(self) -> JobSpec:
        """The spec as declared; an elastic task has the members of the status."""
        declared = self.seen.spec
        if declared.elastic is None:
            return declared
        members, by = self.members, self._sized_by
        if by is None or by[0] is not declared or by[1] != members:
            self._sized, self._sized_by = with_members(declared, members), (declared, members)
        return self._sized

    @property
    def members(self) -> tuple[int, ...]:
        """The members of the elastic task. Before any are written: those that have pods, or the least size."""
        elastic = self.seen.spec.elastic
        assert elastic is not None
        if self.status.members is not None:
            return self.status.members
        parts = (pod.part for pod in self.pods.values())
        there = {part.index for part in parts if part is not None and part.task == elastic.task}
        return tuple(sorted(there)) or tuple(range(elastic.least))

    @property
    def key(self) -> tuple[str, str]:
        return (self.spec.namespace, self.spec.name)

    @property
    def group(self) -> str:
        return group_name(self.spec)

    @property
    def is_written(self) -> bool:
        """Returns whether this scheduler writes the status: then its own copy is newer than the watch."""
        return self.written is not None or self.writing is not None

    @property
    def is_making_pods(self) -> bool:
        """Returns whether pods were requested that the watch does not show yet. Their gang lacks them until then."""
        asked = any(verb == "Create" and place[0] == "Pod" for verb, place in self.in_flight)
        return asked or any(place[0] == "Pod" for place in self.unobserved)

    # --- desired pods ----------------------------------------------------------

    @property
    def desired_pods(self) -> dict[str, tuple[TaskSpec, int]]:
        """(task, index) by pod name. Cached, because every change of a pod needs it."""
        spec = self.spec
        if self._desired_by is not spec:
            self._desired_by = spec
            self._desired_pods = {
                pod_name(spec, task, index): (task, index)
                for task in spec.tasks
                for index in task.indices
            }
        return self._desired_pods

    def turn(self, name: str) -> int:
        return dict(self.status.restarts).get(name, 0)

    def current(self) -> dict[str, PodSeen]:
        """Returns by name the desired pods of this version that the controller is not deleting."""
        turns = dict(self.status.restarts)
        desired_pods = self.desired_pods
        found = {}
        for pod in self.pods.values():
            part = pod.part
            assert part is not None
            if (
                pod.name in desired_pods
                and part.version >= self.status.version
                and part.turn >= turns.get(pod.name, 0)
                and pod.uid not in self.deletions
            ):
                found[pod.name] = pod
        return found

    def names(self) -> set[str]:
        """Names of all existing pods, terminating ones included."""
        return {pod.name for pod in self.pods.values()}

    # --- pods come and go ------------------------------------------------------

    def on_pod_seen(self, pod: PodSeen, now: float, *, by_scheduler: bool = False) -> None:
        self.pods[pod.uid] = pod
        self.unobserved.pop(("Pod", pod.name), None)
        self.refused.pop(("Pod", pod.name), None)
        if pod.deleting and pod.phase not in ("Succeeded", "Failed"):
            self._lose(pod, now, by_scheduler)
        elif pod.phase == "Running" and not pod.deleting:
            self.lost.pop(pod.name, None)  # its replacement runs

    def on_pod_gone(self, pod: PodSeen, now: float, *, by_scheduler: bool = False) -> None:
        self.pods.pop(pod.uid, None)
        if pod.phase != "Succeeded":
            self._lose(pod, now, by_scheduler)
        elif self._is_current(pod):
            self._complete({_place(pod)})
        self.deletions.pop(pod.uid, None)

    def _lose(self, pod: PodSeen, now: float, by_scheduler: bool) -> None:
        """Records the loss, unless the controller itself deleted the pod."""
        if self.status.phase in ACTIVE and self._is_current(pod):
            self.lost.setdefault(pod.name, now)
            self.lost_from[pod.name] = pod.node
            (self.by_scheduler.add if by_scheduler else self.by_scheduler.discard)(pod.name)

    def _is_current(self, pod: PodSeen) -> bool:
        """Returns whether the pod is of this version and turn, and the controller does not delete it."""
        part = pod.part
        return (
            part is not None
            and pod.uid not in self.deletions
            and part.version == self.status.version
            and part.turn == self.turn(pod.name)
        )

    def record_completed(self) -> None:
        """Keeps the pods that succeeded in the status, which outlives them: they are not created again."""
        self._complete({_place(pod) for pod in self.current().values() if pod.phase == "Succeeded"})

    def _complete(self, places: set[tuple[str, int]]) -> None:
        if places <= self.status.completed:
            return
        self.status = replace(self.status, completed=self.status.completed | places)
        if self.writing is not None and self.writing.version == self.status.version:
            self.writing = replace(self.writing, completed=self.writing.completed | places)

    def detect_missed_losses(self) -> None:
        """Compares the status with the pods that exist, after a start of the scheduler."""
        self.is_new = False
        if self.status.phase not in ACTIVE:
            return
        recreated = {name for name, _ in self.status.restarts}
        there = self.names()
        for task in self.spec.tasks:
            if task.members is not None:
                continue  # its size follows what is there
            names = [pod_name(self.spec, task, index) for index in task.indices]
            known = sum(n for _, n in dict(self.status.counts).get(task.name, ()))
            excused = sum(name in recreated and name not in there for name in names)
            excused += sum(
                place[0] == task.name and pod_name(self.spec, task, place[1]) not in there
                for place in self.status.completed
            )
            left = sum(name in there for name in names)
            if min(known, task.replicas) > left + excused:
                self.lost_by_task[task.name] = self.status.since

    # --- answers of the API server ----------------------------------------------

    def on_answered(self, fact: Answered, now: float) -> None:
        place = (fact.kind, fact.name)
        self.in_flight.discard((fact.verb, place))
        if fact.verb == "SetStatus":
            self._status_answered(fact, now)
        elif (fact.verb, fact.kind) == ("Patch", "Pod"):
            self._files_answered(fact, now)
        elif fact.why:
            self._refuse(place, fact.why, now)
            self.objects.pop(place, None)
            if fact.verb == "Patch":
                self.podgroup_written = ""  # unknown
            if fact.verb == "Delete":
                self.deletions = {
                    u: at for u, at in self.deletions.items() if not self._is(u, fact.name)
                }
        else:
            self.refused.pop(place, None)
            if fact.verb == "Create" and fact.kind in _SEEN_LATER and not self._has_seen(fact):
                self.unobserved[place] = now

    def _refuse(self, place: ObjectRef, why: str, now: float) -> None:
        """Calls that were under way together count as one."""
        before = self.refused.get(place)
        again = before is not None and now >= before.retry_at
        times = (before.times if before else 1) + again
        first, longest = RETRY_S
        delay_s = min(longest, first * 2 ** min(times - 1, 10))
        self.refused[place] = ApiRefusal(why, times, now + delay_s)

    def _files_answered(self, fact: Answered, now: float) -> None:
        """A refusal is the Job's, and delays nothing else of the pod: least of all its deletion."""
        if not fact.why:
            self.refused.pop(FILES, None)
        elif fact.code != GONE:
            self.files_written.pop(fact.name, None)
            self._refuse(FILES, fact.why, now)

    def skip_answer(self, fact: Answered) -> None:
        """The answer could not be applied: no call waits for it, and the watch shows what was done."""
        self.in_flight.discard((fact.verb, (fact.kind, fact.name)))
        if fact.verb == "SetStatus" and self.writing is not None:
            if fact.why:
                self.written = ""  # unknown
            else:
                self._take_written(self.writing)
            self.writing = None
        self.is_new = True

    def _has_seen(self, fact: Answered) -> bool:
        """Returns whether the watch has delivered the created pod already."""
        if fact.kind != "Pod":
            return False
        return fact.uid in self.pods if fact.uid else fact.name in self.names()

    def _is(self, uid: str, name: str) -> bool:
        pod = self.pods.get(uid)
        return pod is None or pod.name == name

    def _status_answered(self, fact: Answered, now: float) -> None:
        if self.writing is None:
            return
        place = ("Job", fact.name)
        if fact.why:
            self._refuse(place, fact.why, now)
            self.written = ""  # unknown
        else:
            self.refused.pop(place, None)
            if self.writing.version != self.status.version:
                self.lost.clear()
                self.lost_by_task.clear()
            for name in {
                name for name, _ in set(self.writing.restarts) - set(self.status.restarts)
            }:
                self.lost.pop(name, None)
                if (known := self.desired_pods.get(name)) is not None:
                    self.lost_by_task.pop(known[0].name, None)
            self._take_written(self.writing)
        self.writing = None

    def _take_written(self, status: JobStatus) -> None:
        if status.phase in ACTIVE and self.status.phase not in ACTIVE:
            self.admitted = False  # its pods need admission again
        self.status = status

    def may_call(self, verb: str, place: ObjectRef, now: float) -> bool:
        """Returns whether to make the call now; otherwise requeues the Job for the time when it may."""
        if self._may_call_now(verb, place, now):
            return True
        refusal = self.refused.get(place)
        if refusal is not None and refusal.retry_at > now:
            self.requeue(refusal.retry_at)
        if (at := self.unobserved.get(place)) is not None:
            self.requeue(at + WATCH_TIMEOUT_S)
        return False

    def requeue(self, at: float | None) -> None:
        if at is not None:
            self.requeue_at = at if self.requeue_at is None else min(self.requeue_at, at)

    def _may_call_now(self, verb: str, place: ObjectRef, now: float) -> bool:
        """Returns whether the call may be made: not while it is in flight, in backoff, or while the watch may still
        show its effect."""
        if (verb, place) in self.in_flight:
            return False
        refusal = self.refused.get(place)
        if refusal is not None and now < refusal.retry_at:
            return False
        return (
            verb != "Create"
            or now - self.unobserved.get(place, -WATCH_TIMEOUT_S) >= WATCH_TIMEOUT_S
        )

    def saved(self) -> dict[str, Any]:
        """Returns the fields that a decision may change, for restore()."""
        found = {name: getattr(self, name) for name in _DECIDED}
        return {
            name: value.copy() if isinstance(value, dict | set | list) else value
            for name, value in found.items()
        }

    def restore(self, saved: dict[str, Any]) -> None:
        for name, value in saved.items():
            setattr(self, name, value)

    def why_pending(self) -> str:
        """Returns why the Job has no pods; "" if it has some or needs none."""
        if self.status.phase not in ACTIVE:
            return ""
        return self.seen.error or self.set_aside or self.refused_call() or self.pending_reason

    def refused_call(self) -> str:
        """The first call that the API server refused, and why; empty: none."""
        for (kind, name), refusal in sorted(self.refused.items()):
            return f"{kind} {name}: {refusal.why}"
        return ""


def _place(pod: PodSeen) -> tuple[str, int]:
    assert pod.part is not None
    return pod.part.task, pod.part.index


_DECIDED = [each.name for each in fields(Job) if each.metadata != NOT_STORED]
