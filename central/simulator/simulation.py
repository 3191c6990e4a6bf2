"""The simulation: virtual time jumps from one event to the next; what happens at one moment is one
turn, and its consequences are turns of the same moment until nothing more comes of them."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from central.controllers.composite import jobs_of
from central.model import phases
from central.model.decisions import Decision, UpdateGangStatus
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from central.server.journal import Journal
from central.simulator.agenda import Agenda
from central.simulator.outcome import Ended, Load, SimulationResult, Waiting
from central.simulator.scenario import Scenario
from central.simulator.world import World

MOST_TURNS = 10_000  # of one moment: decisions that undo each other would go on for ever
MOST_IDLE = 200  # moments in a row that only the clock brought about


@dataclass(frozen=True, slots=True)
class _Comes:
    fact: Fact


@dataclass(frozen=True, slots=True)
class _Goes:
    fact: Fact


@dataclass(frozen=True, slots=True)
class _Ends:
    uid: str


@dataclass(frozen=True, slots=True)
class _Wakes:
    """Nothing happens but time."""


_Event = _Comes | _Goes | _Ends | _Wakes


class Simulation:
    def __init__(
        self,
        scenario: Scenario,
        cluster: Scheduler,
        *,
        seed: int = 0,
        until_s: float | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.story = SimulationResult()
        self.cluster = cluster
        self.now = 0.0
        self._until_s = until_s
        self._journal = journal
        self._world = World(scenario, self.story)
        self._agenda: Agenda[_Event] = Agenda()
        self._dice = random.Random(seed) if seed else None
        self._idle = 0
        self._happened_at = 0.0
        self._wake_at: float | None = None
        self._ended_gangs: set[tuple[str, str]] = set()
        for at, fact in scenario.arrivals:
            self._agenda.note(at, _Comes(fact))
        for at, fact in scenario.departures:
            self._agenda.note(at, _Goes(fact))

    def run(self, progress: Callable[["Simulation"], None] = lambda _: None) -> SimulationResult:
        story = self.story
        while len(self._agenda):
            at = self._agenda.next_at()
            if self._until_s is not None and at > self._until_s:
                self._pass_to(self._until_s)
                story.stopped = "the time given with --until is over"
                break
            self._pass_to(at)
            events = self._agenda.take(at)
            facts = [fact for event in events for fact in self._happen(event)]
            self._idle = 0 if facts else self._idle + 1
            if facts:
                self._happened_at = at
            if self._idle > MOST_IDLE:
                self._pass_to(self._happened_at)  # back: what was only waited for does not count
                story.stopped = "nothing happens any more, though the scheduler hopes for it"
                break
            before = (len(story.placed), len(story.evicted))
            self._moment(facts)
            if before != (len(story.placed), len(story.evicted)):
                self._idle, self._happened_at = 0, at
            progress(self)
        self._finish()
        return story

    def _pass_to(self, at: float) -> None:
        self.story.gpu_seconds_there += self._world.gpus_there * (at - self.now)
        self.now = at

    def _happen(self, event: _Event) -> Iterable[Fact]:
        match event:
            case _Comes(fact):
                return self._world.arrive(fact, self.now)
            case _Goes(fact):
                return self._world.leave(fact, self.now)
            case _Ends(uid):
                return self._world.end(uid, self.now)
            case _Wakes():
                self._wake_at = None
                return ()

    def _moment(self, facts: list[Fact]) -> None:
        """Turns until nothing more comes of them at this moment."""
        for _ in range(MOST_TURNS):
            facts += self._world.reports(self.now)
            self._note_endings()
            decisions = self._turn(facts)
            facts = [fact for d in decisions for fact in self._world.apply_decision(d, self.now)]
            if not facts:
                break
        else:
            raise AssertionError(f"the scheduler does not come to rest at {self.now} s")
        self._note_endings()
        self._note_wake()
        self._note_load()

    def _turn(self, facts: list[Fact]) -> list[Decision]:
        """As cycle.turn, with the clock between its halves."""
        if self._dice is not None:
            facts = _interleaved(facts, self._dice)
        if self._journal is not None:
            self._journal.turn(self.now, facts)
        began = time.perf_counter()
        cycle.apply_facts(self.cluster, facts, self.now)
        applied = time.perf_counter()
        decisions = cycle.decide(self.cluster, self.now)
        ended = time.perf_counter()
        self.story.turn_s.append(ended - began)
        self.story.decide_s += ended - applied
        if self._journal is not None:
            self._journal.decided(decisions)
        self.cluster.state.nodes_to_notify.clear()
        for decision in decisions:
            if isinstance(decision, UpdateGangStatus):
                self._heard(decision)
        return decisions

    def _heard(self, tell: UpdateGangStatus) -> None:
        name = (tell.namespace, tell.gang)
        gang = self.cluster.state.gangs.get((*name, True))
        if gang is None or not gang.members or name in jobs_of(self.cluster).by_group:
            return  # a Job's own end is told instead
        if tell.phase == phases.COMPLETED and name not in self._ended_gangs:
            self._ended_gangs.add(name)
            self.story.ended.append(Ended(self.now, *name, "PodGroup", tell.phase))

    def _note_endings(self) -> None:
        for at, uid in self._world.endings:
            self._agenda.note(at, _Ends(uid))
        self._world.endings.clear()

    def _note_wake(self) -> None:
        """The core may be due without any fact: a retry, a grace period that ends."""
        due = cycle.due(self.cluster, self.now)
        if due is not None and (self._wake_at is None or due < self._wake_at):
            self._wake_at = due
            self._agenda.note(due, _Wakes())

    def _note_load(self) -> None:
        world = self._world
        load = Load(
            self.now,
            round(world.gpus_used, 6),
            world.pods_waiting,
            len(self.cluster.state.pending.waiting),
        )
        loads = self.story.loads
        if loads and loads[-1].at_s == self.now:
            loads[-1] = load
        else:
            loads.append(load)
        self.story.gpus = max(self.story.gpus, world.gpus_there)

    def _finish(self) -> None:
        story = self.story
        story.end_s = self.now
        self._world.close(self.now)
        times = [placed.at_s for placed in story.placed]
        times += [ended.at_s for ended in story.ended]
        times += [evicted.at_s for evicted in story.evicted]
        story.makespan_s = max(times, default=0.0)
        jobs = jobs_of(self.cluster)
        for gang in self.cluster.state.pending.waiting.values():
            pods = sum(pod.waiting for pod in gang.members.values())
            reason = gang_status.sentence(self.cluster.state, gang)
            job = jobs.by_group.get((gang.namespace, gang.name))
            name = job.spec.name if job is not None else gang.name
            story.waiting.append(Waiting(gang.namespace, name, reason, pods))
        for job in jobs.by_name.values():
            if not job.pods and (why := job.why_pending()):
                pods = job.spec.replicas
                story.waiting.append(Waiting(job.spec.namespace, job.spec.name, why, pods))
        for pod in self.cluster.state.pods.values():
            seen = pod.seen
            if not seen.ours and not seen.node and pod.alive:
                reason = (
                    "another scheduler's pod: its schedulerName is not one of --scheduler-names"
                )
                story.waiting.append(Waiting(seen.namespace, seen.name, reason, 1))
        story.waiting.sort(key=lambda waits: (waits.namespace, waits.name))


def _interleaved(facts: list[Fact], dice: random.Random) -> list[Fact]:
    """Each kind comes in its own order, as from its own watch; the kinds in any."""
    kinds: dict[str, list[Fact]] = {}
    for fact in reversed(facts):
        kind = type(fact).__name__.removesuffix("Gone").removesuffix("Seen")
        kinds.setdefault(kind, []).append(fact)
    order = [kind for kind, queue in kinds.items() for _ in queue]
    dice.shuffle(order)
    return [kinds[kind].pop() for kind in order]
