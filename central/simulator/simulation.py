"""The simulation: virtual time jumps from event to event. All events of one time are one scheduling cycle; their
effects are further cycles at the same time, until there are none."""

import random
import time
from collections.abc import Callable, Iterable
from functools import partial

from central.controllers.composite import jobs_of
from central.model import phases
from central.model.decisions import Decision, UpdateGangStatus
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from central.server.journal import Journal
from central.simulator.event_queue import EventQueue
from central.simulator.scenario import Scenario
from central.simulator.simulation_result import Ended, Load, Pending, SimulationResult
from central.simulator.world import Event, World

MAX_CYCLES = 10_000  # at one time; decisions that undo each other would never end
MAX_IDLE = 200  # consecutive wake-ups without any effect


class Simulation:
    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        until_s: float | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.result = SimulationResult()
        self.scheduler = scheduler
        self.now = 0.0
        self._until_s = until_s
        self._journal = journal
        self._world = World(scenario, self.result)
        self._agenda: EventQueue[Event] = EventQueue()
        self._random = random.Random(seed) if seed else None
        self._idle = 0
        self._happened_at = 0.0
        self._wake_at: float | None = None
        self._ended_gangs: set[tuple[str, str]] = set()
        for at, fact in scenario.arrivals:
            self._agenda.note(at, partial(self._world.arrive, fact))
        for at, fact in scenario.departures:
            self._agenda.note(at, partial(self._world.leave, fact))

    def run(self, progress: Callable[["Simulation"], None] = lambda _: None) -> SimulationResult:
        result = self.result
        while len(self._agenda):
            at = self._agenda.next_at()
            if self._until_s is not None and at > self._until_s:
                self._advance_to(self._until_s)
                result.stopped = "the end time of --until is reached"
                break
            self._advance_to(at)
            events = self._agenda.take(at)
            facts = [fact for event in events for fact in event(at)]
            self._idle = 0 if facts else self._idle + 1
            if facts:
                self._happened_at = at
            if self._idle > MAX_IDLE:
                self._advance_to(self._happened_at)  # the idle time at the end does not count
                result.stopped = (
                    "no progress is possible any more, though the scheduler keeps retrying"
                )
                break
            before = (len(result.placed), len(result.evicted))
            self._run_cycles(facts)
            if before != (len(result.placed), len(result.evicted)):
                self._idle, self._happened_at = 0, at
            progress(self)
        self._finish()
        return result

    def _advance_to(self, at: float) -> None:
        self.result.gpu_seconds_there += self._world.gpus_there * (at - self.now)
        self.now = at

    def _wake_up(self, now: float) -> Iterable[Fact]:
        """Runs a cycle without facts: only time has passed."""
        self._wake_at = None
        return ()

    def _run_cycles(self, facts: list[Fact]) -> None:
        """Runs cycles at this time until they have no more effects."""
        for _ in range(MAX_CYCLES):
            facts += self._world.reports(self.now)
            self._note_endings()
            decisions = self._cycle(facts)
            facts = [fact for d in decisions for fact in self._world.apply_decision(d, self.now)]
            if not facts:
                break
        else:
            raise AssertionError(f"the scheduler does not settle at {self.now} s")
        self._note_endings()
        self._note_wake()
        self._note_load()

    def _cycle(self, facts: list[Fact]) -> list[Decision]:
        """Runs the halves of cycle.turn, and measures each."""
        if self._random is not None:
            facts = _interleaved(facts, self._random)
        if self._journal is not None:
            self._journal.turn(self.now, facts)
        began = time.thread_time()  # another process takes none of it
        cycle.apply_facts(self.scheduler, facts, self.now)
        applied = time.thread_time()
        decisions = cycle.decide(self.scheduler, self.now)
        ended = time.thread_time()
        self.result.turn_s.append(ended - began)
        self.result.decide_s += ended - applied
        if self._journal is not None:
            self._journal.decided(decisions)
        self.scheduler.state.nodes_to_notify.clear()
        for decision in decisions:
            if isinstance(decision, UpdateGangStatus):
                self._note_completion(decision)
        return decisions

    def _note_completion(self, tell: UpdateGangStatus) -> None:
        name = (tell.namespace, tell.gang)
        gang = self.scheduler.state.gangs.get((*name, True))
        if gang is None or not gang.members or name in jobs_of(self.scheduler).by_group:
            return  # the Job's own end is recorded instead
        if tell.phase == phases.COMPLETED and name not in self._ended_gangs:
            self._ended_gangs.add(name)
            self.result.ended.append(Ended(self.now, *name, "PodGroup", tell.phase))

    def _note_endings(self) -> None:
        for at, event in self._world.events:
            self._agenda.note(at, event)
        self._world.events.clear()

    def _note_wake(self) -> None:
        """The scheduler may be due without any fact, for a retry or the end of a grace period."""
        due = cycle.due(self.scheduler, self.now)
        if due is not None and (self._wake_at is None or due < self._wake_at):
            self._wake_at = due
            self._agenda.note(due, self._wake_up)

    def _note_load(self) -> None:
        world = self._world
        load = Load(
            self.now,
            round(world.gpus_used, 6),
            world.pods_waiting,
            len(self.scheduler.state.pending.waiting),
        )
        loads = self.result.loads
        if loads and loads[-1].at_s == self.now:
            loads[-1] = load
        else:
            loads.append(load)
        self.result.gpus = max(self.result.gpus, world.gpus_there)

    def _finish(self) -> None:
        result = self.result
        result.end_s = self.now
        self._world.close(self.now)
        times = [placed.at_s for placed in result.placed]
        times += [ended.at_s for ended in result.ended]
        times += [evicted.at_s for evicted in result.evicted]
        result.makespan_s = max(times, default=0.0)
        jobs = jobs_of(self.scheduler)
        for gang in self.scheduler.state.pending.waiting.values():
            pods = sum(pod.waiting for pod in gang.members.values())
            reason = gang_status.describe(self.scheduler.state, gang)
            job = jobs.by_group.get((gang.namespace, gang.name))
            name = job.spec.name if job is not None else gang.name
            result.waiting.append(Pending(gang.namespace, name, reason, pods))
        for job in jobs.by_name.values():
            if not job.pods and (why := job.why_pending()):
                pods = job.spec.replicas
                result.waiting.append(Pending(job.spec.namespace, job.spec.name, why, pods))
        for pod in self.scheduler.state.pods.values():
            seen = pod.seen
            if not seen.ours and not seen.node and pod.alive:
                reason = "another scheduler's pod: its schedulerName is not in --scheduler-names"
                result.waiting.append(Pending(seen.namespace, seen.name, reason, 1))
        result.waiting.sort(key=lambda waits: (waits.namespace, waits.name))


def _interleaved(facts: list[Fact], dice: random.Random) -> list[Fact]:
    """Shuffles the facts of different kinds; each kind keeps its order, as its own watch would."""
    kinds: dict[str, list[Fact]] = {}
    for fact in reversed(facts):
        kind = type(fact).__name__.removesuffix("Gone").removesuffix("Seen")
        kinds.setdefault(kind, []).append(fact)
    order = [kind for kind, queue in kinds.items() for _ in queue]
    dice.shuffle(order)
    return [kinds[kind].pop() for kind in order]
