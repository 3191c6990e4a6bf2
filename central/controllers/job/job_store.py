"""All known Jobs and their pods. All durable state is in the API: the Jobs' status, the pods' annotations, and
names that are the same after every restart."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from heapq import heappop, heappush

from central.controllers.job.job import Job, RequestedAction
from central.controllers.job.rate_limit import MemberFilesLimiter, StatusRateLimiter
from central.controllers.job.state_machine import TARGETED
from central.model.decisions import Create, Decision, Delete, Patch, SetStatus
from central.model.facts import Answered, CoordinatorFact, CoordinatorReported, JobSeen, PodSeen
from central.model.jobspec import ACTIONS
from central.model.stored_fields import NOT_STORED

Key = tuple[str, str]  # namespace and name
COMMANDS = tuple(action for action in ACTIONS if action not in TARGETED)  # a Command names no pods


@dataclass(slots=True, eq=False)
class JobStore:
    by_name: dict[Key, Job] = field(default_factory=dict, metadata=NOT_STORED)
    by_group: dict[Key, Job] = field(default_factory=dict, metadata=NOT_STORED)  # by PodGroup name
    elastic: dict[Key, Job] = field(
        default_factory=dict, metadata=NOT_STORED
    )  # with an elastic task
    replanned: set[Key] = field(default_factory=set)  # whose coordinator's plan may have changed
    # by namespace and uid of their controller
    _owned: dict[Key, dict[Key, Job]] = field(default_factory=dict, metadata=NOT_STORED)
    changed: dict[Key, None] = field(default_factory=dict)  # since their last reconciliation
    unadmitted: dict[Key, None] = field(default_factory=dict)  # waiting for their queues
    status_limiter: StatusRateLimiter = field(default_factory=StatusRateLimiter)
    files_limiter: MemberFilesLimiter = field(default_factory=MemberFilesLimiter)
    admission_stale: bool = False  # a change may allow more admissions
    admission_checked_at: float = 0.0  # when all of unadmitted were last checked
    # by the Job's namespace and uid; by pod uid
    _pods: dict[Key, dict[str, PodSeen]] = field(default_factory=dict, metadata=NOT_STORED)
    # The Job of a call, by verb, kind, namespace and name.
    _asked: dict[tuple[str, str, str, str], Key] = field(default_factory=dict)
    _alarms: list[tuple[float, Key]] = field(default_factory=list)  # heap of (requeue_at, Job)

    def recorded(self) -> Iterator[JobSeen | CoordinatorReported]:
        """The facts that it was told, apart from pods."""
        for job in self.by_name.values():
            yield job.seen
            if job.reported is not None:
                yield job.reported

    def with_memory(self, kept: "JobStore", jobs: Mapping[Key, Job]) -> "JobStore":
        """Returns this one with the memory of another one. jobs: its Jobs"""
        for key, job in self.by_name.items():
            if (before := jobs.get(key)) is not None:
                job.restore(before.saved())
        observed = {each.name for each in fields(kept) if each.metadata == NOT_STORED}
        return replace(kept, **{name: getattr(self, name) for name in observed})

    # --- facts -----------------------------------------------------------------

    def seen(self, fact: JobSeen) -> None:
        key = (fact.spec.namespace, fact.spec.name)
        job = self.by_name.get(key)
        if job is not None and job.spec.uid != fact.spec.uid:
            self.gone(key)  # deleted and recreated under the same name
            job = None
        if job is None:
            pods = self._pods.setdefault((key[0], fact.spec.uid), {})
            job = self.by_name[key] = Job(fact, pods)
            self.by_group[fact.spec.namespace, job.group] = job
            if fact.owner:
                self._owned.setdefault((key[0], fact.owner), {})[key] = job
        elif job.seen == fact:
            return
        else:
            before, job.seen = job.seen, fact
            self.elastic.pop(key, None)
            job.spec_changed = job.spec_changed or before.spec != fact.spec
            if not job.is_written:
                job.status = fact.status  # another scheduler leads and writes
        if fact.spec.elastic is not None:
            self.elastic[key] = job
        self.changed[key] = None

    def gone(self, key: Key) -> None:
        job = self.by_name.get(key)
        if job is not None:
            if (elastic := job.seen.spec.elastic) is not None and elastic.coordinator:
                self.replanned.add(key)
            self.by_group.pop((key[0], job.group), None)
            above = (key[0], job.seen.owner)
            if (others := self._owned.get(above)) is not None:
                others.pop(key, None)
                if not others:
                    del self._owned[above]
            self.unadmitted.pop(key, None)
            self.elastic.pop(key, None)
            self.changed.pop(key, None)
            if not job.pods:
                self._pods.pop((key[0], job.spec.uid), None)
            del self.by_name[key]  # at the end: after an exception all of this is done again

    def owned_by(self, namespace: str, uid: str) -> Iterable[Job]:
        """The Jobs that a CronJob or JobFlow controls."""
        return self._owned.get((namespace, uid), {}).values()

    def hold_pod(self, pod: PodSeen) -> None:
        """Keeps a pod whose Job is not known yet, or deleted."""
        if pod.part is not None:
            self._pods.setdefault((pod.namespace, pod.part.job_uid), {})[pod.uid] = pod

    def drop_held_pod(self, pod: PodSeen) -> None:
        """Drops a pod that hold_pod() keeps."""
        of = (pod.namespace, pod.part.job_uid if pod.part is not None else "")
        if (others := self._pods.get(of)) is not None:
            others.pop(pod.uid, None)
            if not others:
                del self._pods[of]

    def record_pod(self, job: Job, pod: PodSeen) -> None:
        """Records a pod of a Job that is set aside; its effect on the Job is determined later."""
        job.pods[pod.uid] = pod
        job.is_new = True
        self.changed[job.key] = None

    def forget_pod(self, job: Job, pod: PodSeen) -> None:
        """Removes a pod of a Job that is set aside; the effect on the Job is determined later."""
        job.pods.pop(pod.uid, None)
        job.is_new = True
        self.changed[job.key] = None

    def job_of(self, pod: PodSeen) -> Job | None:
        """The Job of the pod, if it is known."""
        if pod.part is None:
            return None
        job = self.by_name.get((pod.namespace, pod.part.job))
        return job if job is not None and job.spec.uid == pod.part.job_uid else None

    def take_asked(self, fact: Answered) -> Job | None:
        """The Job whose call this answers. It is reconciled again."""
        key = self._asked.pop((fact.verb, fact.kind, fact.namespace, fact.name), None)
        job = self.by_name.get(key) if key is not None else None
        if job is not None:
            self.changed[job.key] = None
        return job

    def request_action(self, key: Key, action: str, why: str, uid: str) -> str:
        """Queues the action of a Command with this uid, for a Job that is known. Returns why it is refused, or ""."""
        if action not in COMMANDS:
            return f'action: "{action}" must be one of {", ".join(COMMANDS)}'
        self.by_name[key].commands.append(RequestedAction(action, why, uid))
        self.changed[key] = None
        return ""

    def coordinator_said(self, fact: CoordinatorFact) -> None:
        job = self.by_name.get((fact.namespace, fact.name))
        if job is not None and job.spec.uid == fact.uid:
            job.reported = fact if isinstance(fact, CoordinatorReported) else None
            self.changed[job.key] = None

    # --- for reconcile -----------------------------------------------------------

    def record_calls(self, job: Job, decisions: list[Decision]) -> None:
        """Remembers which Job the answers to these calls belong to, and when to requeue it."""
        for asked in decisions:
            if isinstance(asked, Create | Delete | SetStatus | Patch) and asked.kind != "Event":
                verb = type(asked).__name__
                self._asked[verb, asked.kind, asked.namespace, asked.name] = job.key
        if job.requeue_at is not None and job.requeue_at != job.queued_at:
            heappush(self._alarms, (job.requeue_at, job.key))
        job.queued_at = job.requeue_at

    def pop_due(self, now: float) -> Iterator[Key]:
        """Jobs whose requeue time has come."""
        while self._alarms and self._alarms[0][0] <= now:
            _, key = heappop(self._alarms)
            if key in self.by_name:
                yield key

    def next_alarm(self) -> float | None:
        while self._alarms:
            at, key = self._alarms[0]
            job = self.by_name.get(key)
            if job is not None and job.requeue_at == at:
                return at
            heappop(self._alarms)  # outdated: the Job was reconciled since
        return None
