"""The loop that owns the cluster state: inbox -> scheduling cycle -> decisions. Other threads put facts
into its inbox, or ask questions that it answers between two cycles, so the state needs no lock.

A cycle with much to decide is cut into slices of SLICE_S, so that facts and questions wait no longer."""

import gc
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import Empty
from typing import Any, TypeVar

from central.kube.transport.runtime import RUNTIME, Flag, Runtime
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact, PodSeen
from central.scheduler import cycle
from central.scheduler.inventory.cluster_node import NodePlan
from central.scheduler.quarantine import CYCLE
from central.scheduler.scheduler import Scheduler
from central.server.journal import Journal
from central.server.throttled_log import ThrottledLog

log = logging.getLogger(__name__)

TICK_S = 0.5  # the longest time between two cycles: retries and grace periods end without a fact
BATCH_WINDOW_S = 0.01  # collects facts after a cycle: a gang's pods arrive one by one
SLICE_S = 0.08  # after which a cycle leaves further gangs to the next one
# After this long, a search that takes a cycle of its own ends because other gangs wait.
LONG_S = 0.9  # ... for a pod
LONG_ASKED_S = 3.0  # ... for a question
BATCH = 20_000  # facts at once of the initial list, so that it does not delay questions
BATCH_SYNCED = 4_000  # facts per cycle after it, at most
BATCH_FIRST = (
    500  # in the first of several cycles with more facts than they take; then twice as many each
)

Submit = Callable[[Iterable[Decision]], None]
Publish = Callable[[Mapping[str, NodePlan]], None]
OnCycle = Callable[[Sequence[Fact], Sequence[Decision], float], None]  # ... and its seconds
Result = TypeVar("Result")


@dataclass(slots=True)
class _Question:
    ask: Callable[[Scheduler], Any]
    answered: Flag
    answer: Any = None
    error: Exception | None = field(default=None)


class SliceBudget:
    """Is spent after SLICE_S, but leaves half of it to the attempts, however long the facts took. Counts the attempts,
    so that a replay cuts the cycle at the same place."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._end = clock, clock() + SLICE_S
        self.more = 0  # attempts after the first
        self._asked = False

    def __call__(self) -> bool:
        now = self._clock()
        if not self._asked:
            self._asked, self._end = True, max(self._end, now + SLICE_S / 2)
        if now >= self._end:
            return True
        self.more += 1
        return False


class LongAttempt:
    """Ends a search that takes a cycle of its own after as long as the gangs that wait by then allow."""

    def __init__(self, clock: Callable[[], float], allowed_s: Callable[[], float]) -> None:
        self._clock, self._allowed_s = clock, allowed_s
        self._began = clock()
        self.interrupted_at: int | None = None  # units of work

    def __call__(self, used: int) -> bool:
        if self._clock() < self._began + self._allowed_s():
            return False
        self.interrupted_at = used
        return True


class Loop:
    """ready: whether the initial sync is complete. Until then facts are applied and nothing is
    decided. on_cycle is called after each cycle that decides."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        ready: Callable[[], bool],
        runtime: Runtime = RUNTIME,
        journal: Journal | None = None,
        on_cycle: OnCycle | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._ready = ready
        self._sources: list[Callable[[float], Iterable[Fact]]] = []
        self._runtime, self._clock = runtime, runtime.monotonic
        self._journal = journal
        self._epoch = runtime.time() - runtime.monotonic()  # the clock's zero in Unix time
        self._inbox = runtime.mailbox()  # of facts, questions, and None, which wakes it up
        self._stopping = False
        self._allowed_s = inf  # for a long search, with what came since the inbox was read
        self._cycles = 0
        self._tree_problems: Mapping[str, str] = {}
        self._on_cycle = on_cycle
        self._faults = ThrottledLog(log)
        self.last_cycle_at: float | None = (
            None  # by the monotonic clock, when it last read its inbox
        )
        self.synced = False
        self._ended_at = 0.0  # of the last cycle
        self._portion = BATCH_FIRST

    @property
    def inbox_length(self) -> int:
        return self._inbox.qsize()

    def add_source(self, source: Callable[[float], Iterable[Fact]]) -> None:
        """source(now) is called in every cycle for facts that depend on the time alone, such as
        agents that have become silent."""
        self._sources.append(source)

    def put(self, fact: Fact) -> None:
        """Puts a fact into the inbox, from any thread."""
        self._inbox.put(fact)
        if type(fact) is PodSeen and not fact.node:
            self._allowed_s = LONG_S

    def ask(self, question: Callable[[Scheduler], Result], timeout_s: float = 10.0) -> Result:
        """Calls question(cluster) between two cycles and returns its answer, in any other thread. Raises
        TimeoutError."""
        asked = _Question(question, self._runtime.flag())
        self._inbox.put(asked)
        self._allowed_s = min(self._allowed_s, LONG_ASKED_S)
        if not asked.answered.wait(timeout_s):
            raise TimeoutError
        if asked.error is not None:
            raise asked.error
        answer: Result = asked.answer
        return answer

    def stop(self) -> None:
        """Stops the loop, from any thread and from a signal handler: it takes no lock."""
        self._stopping, self._allowed_s = True, 0.0
        self._inbox.put(None)

    def run(self, submit: Submit, publish: Publish) -> None:
        """Runs until stop(). publish takes the planned devices by node. An exception is a bug, which the scheduler
        contains (central.scheduler.containment). What it raises ends the process: a restart lists everything again."""
        collect_seldom()
        while not self._stopping:
            # Asked before the inbox is read: the inbox holds everything that was listed by then.
            listed = not self.synced and self._ready()
            wait_s = 0.0 if listed or self._scheduler.state.pending.round is not None else TICK_S
            facts, questions = self._drain_inbox(wait_s)
            self.last_cycle_at = now = self._clock()
            for source in self._sources:
                facts += _facts_of(source, now)
            if not self.synced:
                self._apply(facts, self._epoch + now)
                if listed and len(facts) < BATCH:
                    self._begin()
                facts = []
            if self.synced:
                decisions = self._decide(facts, self._epoch + now)
                self._hand_over(decisions, submit, publish)
                took_s = self._clock() - now
                self._log_cycle(len(facts), decisions, took_s)
                if self._on_cycle:
                    self._on_cycle(facts, decisions, took_s)
            for question in questions:
                _answer(question, self._scheduler)
            self._ended_at = self._runtime.monotonic()

    def _drain_inbox(self, wait_s: float) -> tuple[list[Fact], list[_Question]]:
        facts: list[Fact] = []
        questions: list[_Question] = []
        most = self._portion if self.synced else BATCH
        self._portion = BATCH_FIRST
        try:
            item = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            if (rest_s := self._ended_at + BATCH_WINDOW_S - self._runtime.monotonic()) > 0:
                self._runtime.sleep(rest_s)
            self._allowed_s = inf
            while True:
                if isinstance(item, _Question):
                    questions.append(item)
                elif item is not None:
                    facts.append(item)
                if len(facts) >= most:
                    self._portion = min(2 * most, BATCH_SYNCED)
                    self._allowed_s = min(self._allowed_s, LONG_S)
                    break
                item = self._inbox.get_nowait()
        except Empty:
            pass
        return facts, questions

    def _apply(self, facts: Sequence[Fact], now: float) -> None:
        if self._journal:
            self._journal.learn(now, facts)
        cycle.apply_facts(self._scheduler, facts, now)

    def _begin(self) -> None:
        self.synced = True
        freeze_gc()
        state = self._scheduler.state
        nodes, pods = len(state.snapshot.columns.row), len(state.pods)
        log.info("initial sync complete: %d nodes, %d pods", nodes, pods)

    def _decide(self, facts: Sequence[Fact], now: float) -> Sequence[Decision]:
        if self._journal:
            self._journal.turn(now, facts)
        budget = SliceBudget(self._runtime.monotonic)
        long = LongAttempt(self._runtime.monotonic, lambda: self._allowed_s)
        try:
            decisions = cycle.schedule_once(self._scheduler, facts, now, budget, long)
        finally:
            self._log_faults()
        if self._journal:
            if self._scheduler.state.pending.round is not None:
                self._journal.cut(budget.more)
            if long.interrupted_at is not None:
                self._journal.interrupted(long.interrupted_at)
            self._journal.decided(decisions)
        return decisions

    def _log_faults(self) -> None:
        for fault in self._scheduler.quarantine.take_failures():
            kind, name = fault.key.kind, f"{fault.namespace}/{fault.name}".removeprefix("/")
            cause = f"{kind} {type(fault.error).__name__}"
            done = "its state is built again" if kind == CYCLE else f"set aside: {kind} {name}"
            self._faults.error(cause, fault.error, "a bug in the scheduler, %s", done)

    def _hand_over(self, decisions: Sequence[Decision], submit: Submit, publish: Publish) -> None:
        """Agents get their plans before the pods are bound: the kubelet asks for devices soon after."""
        scheduler = self._scheduler
        if scheduler.state.nodes_to_notify:
            plans: dict[str, NodePlan] = {}
            for name in scheduler.state.nodes_to_notify:
                try:
                    plans[name] = scheduler.state.node_plan(name)
                except Exception as error:  # noqa: BLE001  a bug; its kubelet chooses devices itself
                    self._faults.error("plan", error, "a bug in the plan of node %s", name)
            publish(plans)
            scheduler.state.nodes_to_notify.clear()
        if decisions:
            submit(decisions)
        self._log_tree_problems()

    def _log_tree_problems(self) -> None:
        """Each problem of a HyperNode is logged once, and again when it changes."""
        problems = self._scheduler.state.network.built.errors
        if problems is self._tree_problems:
            return
        for name, why in sorted(problems.items()):
            if self._tree_problems.get(name) != why:
                log.warning("HyperNode %s: %s", name, why)
        for name in sorted(self._tree_problems.keys() - problems.keys()):
            log.info("HyperNode %s: valid again", name)
        self._tree_problems = problems

    def _log_cycle(self, facts: int, decisions: Sequence[Decision], seconds: float) -> None:
        self._cycles += 1
        binds = [decision for decision in decisions if isinstance(decision, Bind)]
        evictions = sum(isinstance(each, Evict) and not each.trial for each in decisions)
        level = logging.INFO if binds or evictions else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(
                level,
                "cycle %d: %d facts, %d pods bound on %d nodes, %d evicted, %d gangs pending, %.1f ms",
                self._cycles,
                facts,
                len(binds),
                len({bind.node for bind in binds}),
                evictions,
                len(self._scheduler.state.pending.waiting),
                seconds * 1000,
            )


def freeze_gc() -> None:
    """Takes the objects of the initial list out of garbage collection. There are about a million of
    them and they stay, so each full collection would add milliseconds to a cycle. Later objects
    are freed by reference counting, apart from rare reference cycles."""
    gc.collect()
    gc.freeze()
    collect_seldom()


def collect_seldom() -> None:
    """A collection of the youngest objects takes about 10 ms for each 30,000 of them, wherever it begins, so it begins
    that often. While the initial list is read nothing is garbage: as often as by default collections take a third of
    it."""
    gc.set_threshold(30_000, 20, 20)


def _facts_of(source: Callable[[float], Iterable[Fact]], now: float) -> list[Fact]:
    try:
        return [*source(now)]
    except Exception:
        log.exception("a source of facts failed (bug)")
        return []


def _answer(question: _Question, scheduler: Scheduler) -> None:
    try:
        question.answer = question.ask(scheduler)
    except Exception as error:  # noqa: BLE001  a question must not end the loop; its asker gets the error
        question.error = error
    question.answered.set()
