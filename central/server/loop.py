"""The loop that owns the cluster state: inbox -> scheduling cycle -> decisions. Other threads put facts
into its inbox, or ask questions that it answers between two cycles, so the state needs no lock."""

import gc
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.server.journal import Journal
from protos.topology import Grant

log = logging.getLogger(__name__)

TICK_S = 0.5  # the longest time between two cycles: retries and grace periods end without a fact
BATCH_WINDOW_S = 0.01  # collects facts after a cycle: a gang's pods arrive one by one
BATCH = 20_000  # facts per cycle, so that the initial list does not delay questions

Submit = Callable[[Iterable[Decision]], None]
Publish = Callable[[Mapping[str, tuple[Grant, ...]]], None]
OnCycle = Callable[[Sequence[Fact], Sequence[Decision], float], None]  # ... and its seconds
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Question:
    ask: Callable[[Scheduler], Any]
    answer: "Future[Any]"


class Loop:
    """ready: whether the initial sync is complete. Until then facts are applied and nothing is
    decided. on_cycle is called after each cycle that decides."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        ready: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        journal: Journal | None = None,
        on_cycle: OnCycle | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._ready = ready
        self._sources: list[Callable[[float], Iterable[Fact]]] = []
        self._clock = clock
        self._journal = journal
        self._epoch = time.time() - clock()  # the clock's zero in Unix time
        self._inbox: SimpleQueue[Fact | _Question | None] = SimpleQueue()
        self._stopping = False
        self._cycles = 0
        self._tree_problems: Mapping[str, str] = {}
        self._on_cycle = on_cycle
        self.last_cycle_at: float | None = None  # time.monotonic() when it last read its inbox
        self.synced = False
        self._ended_at = 0.0  # of the last cycle

    @property
    def inbox_length(self) -> int:
        return self._inbox.qsize()

    def add_source(self, source: Callable[[float], Iterable[Fact]]) -> None:
        """source(now) is called in every cycle for facts that depend on the time alone, such as
        agents that have become silent."""
        self._sources.append(source)

    def put(self, fact: Fact) -> None:
        """From any thread."""
        self._inbox.put(fact)

    def ask(self, question: Callable[[Scheduler], Result], timeout_s: float = 10.0) -> Result:
        """From any other thread: question(cluster), called between two cycles. Raises TimeoutError."""
        answer: Future[Result] = Future()
        self._inbox.put(_Question(question, answer))
        return answer.result(timeout_s)

    def stop(self) -> None:
        """From any thread and from a signal handler: it takes no lock."""
        self._stopping = True
        self._inbox.put(None)

    def run(self, submit: Submit, publish: Publish) -> None:
        """Until stop(). An exception is a bug and ends the process: a restart lists everything
        again. publish takes the planned devices by node."""
        while not self._stopping:
            # Asked before the inbox is read: the inbox holds everything that was listed by then.
            listed = not self.synced and self._ready()
            facts, questions = self._drain_inbox(0.0 if listed else TICK_S)
            began = time.perf_counter()
            self.last_cycle_at = time.monotonic()
            now = self._clock()
            for source in self._sources:
                facts += source(now)
            if not self.synced:
                self._apply(facts, self._epoch + now)
                if listed and len(facts) < BATCH:
                    self._begin()
                facts = []
            if self.synced:
                decisions = self._decide(facts, self._epoch + now)
                self._hand_over(decisions, submit, publish)
                took_s = time.perf_counter() - began
                self._log_cycle(len(facts), decisions, took_s)
                if self._on_cycle:
                    self._on_cycle(facts, decisions, took_s)
            for question in questions:
                _answer(question, self._scheduler)
            self._ended_at = time.monotonic()

    def _drain_inbox(self, wait_s: float) -> tuple[list[Fact], list[_Question]]:
        facts: list[Fact] = []
        questions: list[_Question] = []
        try:
            item = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            if (rest_s := self._ended_at + BATCH_WINDOW_S - time.monotonic()) > 0:
                time.sleep(rest_s)
            while True:
                if isinstance(item, _Question):
                    questions.append(item)
                elif item is not None:
                    facts.append(item)
                if len(facts) >= BATCH:
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
        decisions = cycle.schedule_once(self._scheduler, facts, now)
        if self._journal:
            self._journal.decided(decisions)
        return decisions

    def _hand_over(self, decisions: Sequence[Decision], submit: Submit, publish: Publish) -> None:
        """Agents get their plans before the pods are bound: the kubelet asks for devices soon after."""
        scheduler = self._scheduler
        if scheduler.state.nodes_to_notify:
            publish(
                {
                    name: scheduler.state.planned_devices(name)
                    for name in scheduler.state.nodes_to_notify
                }
            )
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
    gc.set_threshold(200_000, 20, 20)


def _answer(question: _Question, scheduler: Scheduler) -> None:
    try:
        question.answer.set_result(question.ask(scheduler))
    except Exception as error:  # noqa: BLE001  a question must not end the loop; its asker gets the error
        question.answer.set_exception(error)
