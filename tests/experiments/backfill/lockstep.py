"""The scheduler itself on a day: bound pods run at once and end when their time is up, evicted ones are made
again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import EvictDone, Fact, PodGone, PodSeen, QueueSeen
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.simulator.event_queue import EventQueue
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.experiments.backfill.days import Day, Job

LATEST_S = 100 * 24 * 3600.0


@dataclass(slots=True)
class _State:
    job: Job
    pods: dict[str, PodSeen] = field(default_factory=dict)  # by uid
    bound: set[str] = field(default_factory=set)
    run: int = 0  # grows with each start, so that the end of a run that was cut short is known
    began_s: float = -1.0


class Play:
    def __init__(
        self,
        day: Day,
        scheduler: Scheduler | None = None,
        *,
        weights: Mapping[str, int] | None = None,
    ) -> None:
        """weights: of queues that may reclaim from each other; None: they may not."""
        self._day, self._weights = day, weights
        self._scheduler = scheduler or new_scheduler(factories.LEVELS)
        self._agenda: EventQueue[Callable[[], list[Fact]]] = EventQueue()
        self._jobs = {job.name: _State(job) for job in day.jobs}
        self._of: dict[str, _State] = {}  # by uid
        self._births = 0
        self.now = 0.0
        self.evictions = 0
        self.lost_s = 0.0  # GPU seconds of runs that an eviction ended
        self.waits: dict[str, float] = {}

    def run(self, check: Callable[["Play"], None] = lambda _: None) -> dict[str, float]:
        """How long each job was there without doing work that it finished. check: called after each time."""
        for job in self._day.jobs:
            self._agenda.note(job.arrives_s, lambda job=job: self._arrive(job))  # type: ignore[misc]
        self._turn(self._cluster())
        while len(self.waits) < len(self._jobs):
            due = cycle.due(self._scheduler, self.now)
            at = self._agenda.next_at() if len(self._agenda) else LATEST_S
            self.now = min(at, max(due, self.now + 0.1)) if due is not None else at
            assert self.now < LATEST_S, f"waiting for ever: {self._jobs.keys() - self.waits.keys()}"
            events = self._agenda.take(self.now) if at == self.now else []
            self._turn([fact for event in events for fact in event()])
            check(self)
        check_invariants(self._scheduler)
        return self.waits

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    def _cluster(self) -> list[Fact]:
        nodes = [factories.node(f"n{i:03}") for i in range(self._day.nodes)]
        if self._weights is not None:
            return [
                *nodes,
                *(QueueSeen(name, weight=self._weights[name]) for name in self._day.queues),
            ]
        return [*nodes, *(QueueSeen(name, reclaimable=False) for name in self._day.queues)]

    def _arrive(self, job: Job) -> list[Fact]:
        group = factories.gang(job.name, job.pods, created=self.now, queue=job.queue or "default")
        return [group, *(self._new_pod(self._jobs[job.name], rank) for rank in range(job.pods))]

    def _new_pod(self, state: _State, rank: int) -> PodSeen:
        job = state.job
        self._births += 1
        pod = factories.pod(
            f"{job.name}-{rank}", job.gpus, job.name, created=self.now, runs_for_s=job.says_s
        )
        pod = replace(pod, uid=f"{pod.name}#{self._births}")
        state.pods[pod.uid], self._of[pod.uid] = pod, state
        return pod

    def _turn(self, facts: list[Fact]) -> None:
        for _ in range(1000):
            decisions = cycle.schedule_once(self._scheduler, facts, self.now)
            facts = [fact for decision in decisions for fact in self._obey(decision)]
            if not facts:
                return
        raise AssertionError(f"the scheduler does not settle at {self.now} s")

    def _obey(self, decision: Decision) -> list[Fact]:
        if isinstance(decision, Bind):
            state = self._of[decision.pod]
            pod = replace(
                state.pods[decision.pod], node=decision.node, phase="Running", started=self.now
            )
            state.pods[pod.uid] = pod
            state.bound.add(pod.uid)
            if len(state.bound) == state.job.pods:
                state.run, state.began_s = state.run + 1, self.now
                run = state.run
                self._agenda.note(self.now + state.job.runs_s, lambda: self._end(state, run))
            return [pod]
        if isinstance(decision, Evict):
            return self._evict(decision)
        return []

    def _evict(self, decision: Evict) -> list[Fact]:
        done = EvictDone(decision.pod, trial=decision.trial)
        if decision.trial or decision.pod not in self._of:
            return [done]
        self.evictions += 1
        state = self._of.pop(decision.pod)
        if len(state.bound) == state.job.pods:
            self.lost_s += state.job.size * (self.now - state.began_s)
        pod = state.pods.pop(decision.pod)
        state.bound.discard(pod.uid)
        state.run += 1
        return [done, PodGone(pod.uid), self._new_pod(state, pod.order[0])]

    def _end(self, state: _State, run: int) -> list[Fact]:
        if state.run != run:
            return []
        job = state.job
        self.waits[job.name] = state.began_s - job.arrives_s
        return [replace(pod, phase="Succeeded") for pod in state.pods.values()]
