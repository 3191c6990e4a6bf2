"""One Job as the controller keeps it: what was seen, what was asked for, what came of that."""

from dataclasses import dataclass

from central.controllers.job.state_machine import ACTIVE
from central.model.facts import Answered, JobSeen, PodSeen
from central.model.jobspec import JobSpec, JobStatus, TaskSpec, group_name, pod_name

UNSEEN_S = 30.0  # what was made or deleted and is not seen so after this is asked for again
RETRY_S = (1.0, 60.0)  # first, longest

ObjectRef = tuple[str, str]  # kind and name
_SEEN_LATER = ("Pod", "PodGroup", "PersistentVolumeClaim")


@dataclass(slots=True)
class ApiRefusal:
    why: str
    times: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """What a Command asks for."""

    action: str
    why: str  # who wants it
    uid: str


class Job:
    __slots__ = (
        "_wanted",
        "_wanted_by",
        "admitted",
        "alarm_at",
        "answered",
        "asked",
        "commands",
        "due_at",
        "gave_way",
        "group_told",
        "is_fresh",
        "lost",
        "lost_of",
        "noticed",
        "objects",
        "pods",
        "refused",
        "seen",
        "status",
        "taken",
        "turn_at",
        "updated",
        "waits_for",
        "writing",
        "written",
        "wrote_at",
    )

    def __init__(self, seen: JobSeen, pods: dict[str, PodSeen]) -> None:
        self.seen = seen
        self.status = seen.status  # what the API has, as far as we know
        self.pods = pods  # by uid: all that it controls
        self.writing: JobStatus | None = None  # on its way to the API
        self.written: object = None  # the whole of what was written last
        self.wrote_at = -UNSEEN_S
        self.turn_at: float | None = None  # when its counts may be written (pacing)
        self.asked: set[tuple[str, ObjectRef]] = set()  # verb and object: not answered yet
        self.answered: dict[ObjectRef, float] = {}  # made, and not seen yet
        self.taken: dict[str, float] = {}  # uids of pods whose deletion was asked for
        self.refused: dict[ObjectRef, ApiRefusal] = {}
        self.objects: dict[ObjectRef, object] = {}  # what its plugins made, as it was written last
        self.group_told: object = None  # of its PodGroup, what was written last
        self.lost: dict[str, float] = {}  # names of pods that were taken away from it
        self.gave_way: set[str] = set()  # of those, whom the scheduler took
        self.lost_of: dict[str, float] = {}  # tasks that lost pods while nobody looked
        self.noticed: dict[str, float] = {}
        self.commands: list[RequestedAction] = []
        self.updated = False
        self.admitted = False  # its pods may be made
        self.waits_for = ""  # why not
        self.due_at: float | None = None  # when it is to be looked at again
        self.alarm_at: float | None = None  # the same, as it was noted last
        self.is_fresh = True  # nobody has looked at it yet
        self._wanted: dict[str, tuple[TaskSpec, int]] = {}
        self._wanted_by: JobSpec | None = None  # by which spec that is

    @property
    def spec(self) -> JobSpec:
        return self.seen.spec

    @property
    def key(self) -> tuple[str, str]:
        return (self.spec.namespace, self.spec.name)

    @property
    def group(self) -> str:
        return group_name(self.spec)

    @property
    def is_written(self) -> bool:
        """Whether we have written to it: then we know better than what is seen of it."""
        return self.written is not None or self.writing is not None

    @property
    def is_making_pods(self) -> bool:
        """Some were asked for and are not seen yet: that their gang lacks them is no news."""
        asked = any(verb == "Create" and place[0] == "Pod" for verb, place in self.asked)
        return asked or any(place[0] == "Pod" for place in self.answered)

    # --- what should be there --------------------------------------------------

    @property
    def wanted(self) -> dict[str, tuple[TaskSpec, int]]:
        """By name. Hot: asked for whenever one of its pods changes."""
        spec = self.spec
        if self._wanted_by is not spec:
            self._wanted_by = spec
            self._wanted = {
                pod_name(spec, task, index): (task, index)
                for task in spec.tasks
                for index in range(task.replicas)
            }
        return self._wanted

    def turn(self, name: str) -> int:
        return dict(self.status.restarts).get(name, 0)

    def current(self) -> dict[str, PodSeen]:
        """By name, the pods of this version that were not told to go and are wanted."""
        turns = dict(self.status.restarts)
        wanted = self.wanted
        found = {}
        for pod in self.pods.values():
            part = pod.part
            assert part is not None
            if (
                pod.name in wanted
                and part.version >= self.status.version
                and part.turn >= turns.get(pod.name, 0)
                and pod.uid not in self.taken
            ):
                found[pod.name] = pod
        return found

    def names(self) -> set[str]:
        """Of all pods that are there, those included that are on their way out."""
        return {pod.name for pod in self.pods.values()}

    # --- pods come and go ------------------------------------------------------

    def see(self, pod: PodSeen, now: float, *, gives_way: bool = False) -> None:
        self.pods[pod.uid] = pod
        self.answered.pop(("Pod", pod.name), None)
        self.refused.pop(("Pod", pod.name), None)
        if pod.deleting and pod.phase not in ("Succeeded", "Failed"):
            self._lose(pod, now, gives_way)
        elif pod.phase == "Running" and not pod.deleting:
            self.lost.pop(pod.name, None)  # another has taken its place

    def lose(self, pod: PodSeen, now: float, *, gives_way: bool = False) -> None:
        self.pods.pop(pod.uid, None)
        if pod.phase != "Succeeded":
            self._lose(pod, now, gives_way)
        self.taken.pop(pod.uid, None)

    def _lose(self, pod: PodSeen, now: float, gives_way: bool) -> None:
        """It was taken away, unless we did that."""
        part = pod.part
        if (
            self.status.phase in ACTIVE
            and part is not None
            and pod.uid not in self.taken
            and part.version == self.status.version
            and part.turn == self.turn(pod.name)
        ):
            self.lost.setdefault(pod.name, now)
            (self.gave_way.add if gives_way else self.gave_way.discard)(pod.name)

    def look_first(self) -> None:
        """Its status may speak of more pods than there are."""
        self.is_fresh = False
        if self.status.phase not in ACTIVE:
            return
        anew = {name for name, _ in self.status.restarts}
        there = self.names()
        for task in self.spec.tasks:
            names = [pod_name(self.spec, task, index) for index in range(task.replicas)]
            known = sum(n for _, n in dict(self.status.counts).get(task.name, ()))
            excused = sum(name in anew and name not in there for name in names)
            left = sum(name in there for name in names)
            if min(known, task.replicas) > left + excused:
                self.lost_of[task.name] = self.status.since

    # --- what came of what was asked for ----------------------------------------

    def hear(self, fact: Answered, now: float) -> None:
        place = (fact.kind, fact.name)
        self.asked.discard((fact.verb, place))
        if fact.verb == "SetStatus":
            self._status_answered(fact, now)
        elif fact.why:
            before = self.refused.get(place)
            times = before.times + 1 if before else 1
            first, longest = RETRY_S
            delay_s = min(longest, first * 2 ** min(times - 1, 10))
            self.refused[place] = ApiRefusal(fact.why, times, now + delay_s)
            self.objects.pop(place, None)
            if fact.verb == "Patch":
                self.group_told = ""  # nobody knows what stands there
            if fact.verb == "Delete":
                self.taken = {u: at for u, at in self.taken.items() if not self._is(u, fact.name)}
        else:
            self.refused.pop(place, None)
            unseen = fact.kind != "Pod" or fact.name not in self.names()
            if fact.verb == "Create" and fact.kind in _SEEN_LATER and unseen:
                self.answered[place] = now

    def _is(self, uid: str, name: str) -> bool:
        pod = self.pods.get(uid)
        return pod is None or pod.name == name

    def _status_answered(self, fact: Answered, now: float) -> None:
        if self.writing is None:
            return
        place = ("Job", fact.name)
        if fact.why:
            before = self.refused.get(place)
            times = before.times + 1 if before else 1
            first, longest = RETRY_S
            at = now + min(longest, first * 2 ** min(times - 1, 10))
            self.refused[place] = ApiRefusal(fact.why, times, at)
            self.written = ""  # nobody knows what stands there
        else:
            self.refused.pop(place, None)
            if self.writing.version != self.status.version:
                self.lost.clear()
                self.lost_of.clear()
                self.admitted = False  # its queue is asked again
            for name in {
                name for name, _ in set(self.writing.restarts) - set(self.status.restarts)
            }:
                self.lost.pop(name, None)
                self.lost_of.clear()
            self.status = self.writing
        self.writing = None

    def may(self, verb: str, place: ObjectRef, now: float) -> bool:
        """Whether to ask now; if only later, the Job is looked at then."""
        if self.may_ask(verb, place, now):
            return True
        refusal = self.refused.get(place)
        if refusal is not None and refusal.retry_at > now:
            self.wake(refusal.retry_at)
        if (at := self.answered.get(place)) is not None:
            self.wake(at + UNSEEN_S)
        return False

    def wake(self, at: float | None) -> None:
        if at is not None:
            self.due_at = at if self.due_at is None else min(self.due_at, at)

    def may_ask(self, verb: str, place: ObjectRef, now: float) -> bool:
        """Not while it is asked already, nor soon after it was refused, nor while what was made
        will soon be seen."""
        if (verb, place) in self.asked:
            return False
        refusal = self.refused.get(place)
        if refusal is not None and now < refusal.retry_at:
            return False
        return verb != "Create" or now - self.answered.get(place, -UNSEEN_S) >= UNSEEN_S

    def waits(self) -> str:
        """Why it has no pods; empty: it has, or needs none."""
        if self.status.phase not in ACTIVE:
            return ""
        return self.seen.error or self.troubles() or self.waits_for

    def troubles(self) -> str:
        """What the API server refused, in words; empty: nothing."""
        for (kind, name), refusal in sorted(self.refused.items()):
            return f"{kind} {name}: {refusal.why}"
        return ""
