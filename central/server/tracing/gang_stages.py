"""The stages of each gang until it runs, from the decisions and facts of each cycle.

    admission   created -> admitted     of gangs that a queue admits before their pods exist
    placement   admitted -> placed      with the causes of waiting as events
    binding     placed -> bound         until the API server or the watch confirms every binding
    startup     bound -> running        until the kubelets run every pod that was bound
    gang        created -> running      the root; `restart` is the root of later starts

GangStages.observe runs in the scheduling loop: a few dictionary look-ups for each decision, and for each fact on a pod
that is being started. It builds no span. A gang that ends before it runs ends the stage under way with an error.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import BindDone, BindFailed, Fact, PodGone, PodSeen
from central.model.phases import ENDED, INQUEUE, PENDING, RUNNING
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.server.stats.gang_counters import gang_of_update
from protos.common.metric_families import counter

ADMISSION, PLACEMENT, BINDING, STARTUP = "admission", "placement", "binding", "startup"
GANG, RESTART = "gang", "restart"  # roots
STARTS_MOST = 50_000  # gangs that are followed at once
STARTED_MOST = 50_000  # gangs that are remembered to have started
EVENTS_MOST = 64  # of a stage
TEXT_MOST = 1_000  # characters of an event
NODES_MOST = 64  # that a stage names
SWEEP_S = 5.0  # between two looks for gangs that are gone


class StageEvent(NamedTuple):
    name: str
    at: float  # Unix time in seconds
    text: str


class Stage(NamedTuple):
    """One that has ended. Times are Unix time in seconds."""

    name: str
    uid: str  # of the gang's object, of its only pod, or else NAMESPACE/NAME@CREATED
    namespace: str
    gang: str
    queue: str
    number: int  # of the gang's start, from 0
    began: float
    ended: float
    pods: int
    nodes: tuple[str, ...] = ()  # NODES_MOST at most
    node_count: int = 0
    events: tuple[StageEvent, ...] = ()
    events_dropped: int = 0
    error: str = ""


@dataclass(slots=True)
class _Start:
    """A gang's way to running."""

    uid: str
    number: int
    began: float
    stage: str
    stage_began: float
    queue: str
    pods: int
    named: bool = False  # a stage has ended, so the trace keeps its uid
    reason: str = ""
    events: list[StageEvent] = field(default_factory=list)
    events_dropped: int = 0
    unbound: set[str] = field(default_factory=set)  # uids of pods
    not_running: set[str] = field(default_factory=set)
    nodes: dict[str, None] = field(default_factory=dict)

    def learn(self, gang: Gang) -> None:
        """Pods may come before their PodGroup, whose uid and age are those that every scheduler finds."""
        if self.named:
            return
        self.uid = gang.lasting_uid
        if not self.number and gang.created and gang.created < self.began:
            if self.stage_began == self.began:
                self.stage_began = gang.created
            self.began = gang.created

    def note(self, name: str, at: float, text: str) -> None:
        event = StageEvent(name, at, text[:TEXT_MOST])
        if len(self.events) < EVENTS_MOST:
            self.events.append(event)
        else:  # the first ones say how it began, the last one what it waits for
            self.events[-1] = event
            self.events_dropped += 1


class GangStages:
    """put takes each stage that has ended, from the loop's thread; it must not wait."""

    def __init__(self, scheduler: Scheduler, put: Callable[[Stage], None]) -> None:
        self.ignored = 0  # starts that were not followed, because of STARTS_MOST
        self._scheduler, self._put = scheduler, put
        self._starts: dict[GangKey, _Start] = {}
        self._of_pod: dict[str, GangKey] = {}  # of pods that are being bound or started
        self._started: dict[GangKey, int] = {}  # how often each gang has started, latest last
        self._swept_at = 0.0

    def families(self) -> Iterator[Metric]:
        about = "Starts of gangs without a trace, because too many gangs were starting"
        yield counter("trace_starts_ignored", about, self.ignored)

    def observe(self, facts: Sequence[Fact], decisions: Sequence[Decision]) -> None:
        """Records a cycle, called after it with its facts and decisions."""
        now = self._scheduler.state.now
        if self._of_pod:
            for fact in facts:
                self._fact(fact, now)
        for decision in decisions:
            match decision:
                case Bind():
                    self._bound_to(decision, now)
                case UpdateGangStatus():
                    self._status(decision, now)
                case _:
                    pass
        if now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            self._sweep(now)

    def _fact(self, fact: Fact, now: float) -> None:
        match fact:
            case BindDone():
                self._confirmed(fact.pod, now)
            case BindFailed():
                self._left(fact.pod, now, f"binding to node {fact.node} failed: {fact.why}")
            case PodGone():
                self._left(fact.uid, now, "a pod that was being started is gone")
            case PodSeen() if fact.uid in self._of_pod:
                if fact.node:
                    self._confirmed(fact.uid, now)
                if fact.phase == "Running" or fact.phase in ENDED:
                    self._runs(fact.uid, now)
            case _:
                pass

    def _status(self, update: UpdateGangStatus, now: float) -> None:
        gang = gang_of_update(self._scheduler, update)
        if gang is None:
            return
        start = self._starts.get(gang.key)
        if update.phase in (PENDING, INQUEUE):
            start = start or self._begin(gang, now)
            if start is not None:
                self._follow(gang, start, update, now)
        elif update.phase == RUNNING and start is None:
            self._taken_over(gang, now)

    def _follow(self, gang: Gang, start: _Start, update: UpdateGangStatus, now: float) -> None:
        start.learn(gang)
        start.pods = max(start.pods, len(gang.members))
        start.queue = gang.queue_name
        if start.stage == ADMISSION and update.phase == INQUEUE:
            self._end_stage(gang.key, start, now, PLACEMENT)
        if start.stage in (ADMISSION, PLACEMENT) and update.reason != start.reason:
            start.reason = update.reason
            start.note("waiting", now, update.reason)

    def _begin(self, gang: Gang, now: float) -> _Start | None:
        if len(self._starts) >= STARTS_MOST:
            self.ignored += 1
            return None
        number = self._started.get(gang.key, 0)
        began = stage_began = min(now, gang.created or now) if not number else now
        stage = PLACEMENT
        if not number and gang.has_podgroup and not gang.members:
            stage = ADMISSION
        elif gang.object is not None and gang.object.phase == INQUEUE and gang.members:
            # Its admission came before this scheduler, which made its pods possible.
            stage_began = min(now, max(began, gang.counts.created))
        start = _Start(
            gang.lasting_uid, number, began, stage, stage_began, gang.queue_name, len(gang.members)
        )
        self._starts[gang.key] = start
        return start

    def _taken_over(self, gang: Gang, now: float) -> None:
        """Another scheduler placed it, and it does not run yet: its start continues here."""
        if gang.key in self._started or not gang.counts.placed:
            return
        waits = [pod for pod in gang.counts.placed if pod.seen.phase == PENDING]
        if not waits or gang.counts.running >= gang.minimum:
            return
        start = self._begin(gang, now)
        if start is None:
            return
        start.stage, start.stage_began = STARTUP, now
        start.note("taken over", now, "another scheduler placed the gang")
        for pod in waits:
            start.not_running.add(pod.seen.uid)
            self._of_pod[pod.seen.uid] = gang.key
        start.nodes.update((pod.node, None) for pod in gang.counts.placed)

    def _bound_to(self, bind: Bind, now: float) -> None:
        state = self._scheduler.state
        pod = state.pods.get(bind.pod)
        gang = state.gang_of(pod) if pod is not None else None
        if gang is None:
            return
        start = self._starts.get(gang.key)
        if start is None:
            if gang.key in self._started and len(gang.counts.placed) > gang.minimum:
                return  # it grows
            start = self._begin(gang, now)
            if start is None:
                return
        if start.stage in (ADMISSION, PLACEMENT):
            start.learn(gang)
            start.pods, start.queue = max(start.pods, len(gang.members)), gang.queue_name
            self._end_stage(gang.key, start, now, BINDING)
        elif start.stage == STARTUP:
            return  # it grows
        start.nodes[bind.node] = None
        start.unbound.add(bind.pod)
        start.not_running.add(bind.pod)
        self._of_pod[bind.pod] = gang.key

    def _confirmed(self, uid: str, now: float) -> None:
        key = self._of_pod.get(uid)
        start = self._starts.get(key) if key is not None else None
        if key is None or start is None or uid not in start.unbound:
            return
        start.unbound.discard(uid)
        if not start.unbound and start.stage == BINDING:
            self._end_stage(key, start, now, STARTUP)
            if not start.not_running:
                self._finish(key, start, now)

    def _runs(self, uid: str, now: float) -> None:
        key = self._of_pod.pop(uid, None)
        start = self._starts.get(key) if key is not None else None
        if key is None or start is None:
            return
        start.not_running.discard(uid)
        if not start.not_running and start.stage == STARTUP:
            self._finish(key, start, now)

    def _left(self, uid: str, now: float, why: str) -> None:
        """The pod is no longer being started. Without any other, the gang waits again."""
        key = self._of_pod.pop(uid, None)
        start = self._starts.get(key) if key is not None else None
        if key is None or start is None:
            return
        start.unbound.discard(uid)
        start.not_running.discard(uid)
        start.note("set back", now, why)
        if start.not_running:
            if not start.unbound and start.stage == BINDING:
                self._end_stage(key, start, now, STARTUP)
            return
        gang = self._scheduler.state.gangs.get(key)
        if gang is not None and gang.counts.running >= gang.minimum:
            self._finish(key, start, now)
            return
        self._end_stage(key, start, now, PLACEMENT, error=why)
        start.nodes.clear()
        start.reason = ""

    def _finish(self, key: GangKey, start: _Start, now: float) -> None:
        if start.stage == STARTUP:
            self._end_stage(key, start, now, "")
        self._put(self._stage(key, start, _root(start), now))
        del self._starts[key]
        self._started[key] = self._started.pop(key, 0) + 1
        if len(self._started) > STARTED_MOST:
            del self._started[next(iter(self._started))]

    def _end_stage(
        self, key: GangKey, start: _Start, now: float, following: str, *, error: str = ""
    ) -> None:
        self._put(self._stage(key, start, start.stage, now, error))
        start.named = True
        start.stage, start.stage_began = following, now
        start.events, start.events_dropped = [], 0

    def _stage(self, key: GangKey, start: _Start, name: str, now: float, error: str = "") -> Stage:
        root = name in (GANG, RESTART)
        began = start.began if root else start.stage_began
        nodes = start.nodes if root or name in (BINDING, STARTUP) else {}
        return Stage(
            name,
            start.uid,
            key[0],
            key[1],
            start.queue,
            start.number,
            min(began, now),
            now,
            start.pods,
            tuple(sorted(nodes)[:NODES_MOST]),
            len(nodes),
            () if root else tuple(start.events),
            0 if root else start.events_dropped,
            error[:TEXT_MOST],
        )

    def _sweep(self, now: float) -> None:
        """Ends the starts of gangs that are gone."""
        gangs = self._scheduler.state.gangs
        for key in [key for key in self._starts if key not in gangs]:
            start = self._starts[key]
            error = "deleted before it ran"
            self._end_stage(key, start, now, "", error=error)
            self._put(self._stage(key, start, _root(start), now, error))
            for uid in start.not_running:
                self._of_pod.pop(uid, None)
            del self._starts[key]
        for key in [key for key in self._started if key not in gangs]:
            del self._started[key]


def _root(start: _Start) -> str:
    return RESTART if start.number else GANG
