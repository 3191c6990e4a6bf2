"""The one owner of the cluster: inbox -> turn -> effects. Everything else only drops facts into the
inbox, or asks a question that is answered between two turns."""

import gc
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.state.cluster import Cluster
from protos.topology import Grant

log = logging.getLogger(__name__)

TICK_S = 0.5  # a turn comes at least this often: retries and grace periods end without a fact
APART_S = 0.01  # what comes within so long of a turn is for one turn: a gang's pods come one by one
BATCH = 20_000  # facts of one turn, so that a first listing does not hold up questions


class Effects(Protocol):
    def submit(self, decisions: Iterable[Decision]) -> None: ...


class Intents(Protocol):
    def publish(self, grants: Mapping[str, tuple[Grant, ...]]) -> None: ...


class Journal(Protocol):
    def learn(self, now: float, facts: Sequence[Fact]) -> None: ...
    def turn(self, now: float, facts: Sequence[Fact]) -> None: ...
    def decided(self, decisions: Sequence[Decision]) -> None: ...


class Meter(Protocol):
    """central.status.Status: counts what was told and decided."""

    def turned(
        self, facts: Sequence[Fact], decisions: Sequence[Decision], seconds: float
    ) -> None: ...


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Question:
    ask: Callable[[Cluster], Any]
    answer: "Future[Any]"


class Loop:
    """ready: whether everything has been listed; until then facts are believed and nothing is
    decided."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        ready: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        journal: Journal | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._cluster = cluster
        self._ready = ready
        self._listeners: list[Callable[[float], Iterable[Fact]]] = []
        self._clock = clock
        self._journal = journal or _NoJournal()
        self._epoch = time.time() - clock()  # what the clock's zero is since the epoch
        self._inbox: SimpleQueue[Fact | _Question | None] = SimpleQueue()
        self._stopping = False
        self._turns = 0
        self._troubles: Mapping[str, str] = {}
        self._meter = meter
        self.turned_at: float | None = None  # when it last looked into its inbox, by time.monotonic
        self.decides = False  # all is listed
        self._ended_at = 0.0  # when the last turn did

    @property
    def queued(self) -> int:
        return self._inbox.qsize()

    def listen(self, listener: Callable[[float], Iterable[Fact]]) -> None:
        """Asked for facts by the clock at every turn, such as agents that have fallen silent."""
        self._listeners.append(listener)

    def put(self, fact: Fact) -> None:
        """From any thread."""
        self._inbox.put(fact)

    def ask(self, question: Callable[[Cluster], Answer], timeout_s: float = 10.0) -> Answer:
        """From any other thread: the answer as of between two turns. Raises TimeoutError."""
        answer: Future[Answer] = Future()
        self._inbox.put(_Question(question, answer))
        return answer.result(timeout_s)

    def stop(self) -> None:
        """From any thread, and from a signal handler: no lock is taken."""
        self._stopping = True
        self._inbox.put(None)

    def run(self, effects: Effects, intents: Intents) -> None:
        """Until stop(). An exception is a fault of this program and ends it: nothing is stored
        that a restart would not learn again."""
        decided = False
        while not self._stopping:
            # Asked first: what was listed before this is in the inbox now.
            listed = not decided and self._ready()
            facts, questions = self._drain(0.0 if listed else TICK_S)
            began = time.perf_counter()
            self.turned_at = time.monotonic()
            now = self._clock()
            for listener in self._listeners:
                facts += listener(now)
            if not decided:
                self._journal.learn(self._epoch + now, facts)
                cycle.learn(self._cluster, facts, self._epoch + now)
                decided = listed and len(facts) < BATCH
                facts = []
                if decided:
                    self.decides = True
                    tame_garbage_collection()
                    log.info("all is listed: %d nodes, %d pods", *self._sizes())
            if decided:
                self._journal.turn(self._epoch + now, facts)
                decisions = cycle.turn(self._cluster, facts, self._epoch + now)
                self._journal.decided(decisions)
                self._act(decisions, effects, intents)
                self._warn_of_tree()
                took_s = time.perf_counter() - began
                self._speak(len(facts), decisions, took_s)
                if self._meter:
                    self._meter.turned(facts, decisions, took_s)
            for question in questions:
                _answer(question, self._cluster)
            self._ended_at = time.monotonic()

    def _drain(self, patience_s: float) -> tuple[list[Fact], list[_Question]]:
        facts: list[Fact] = []
        questions: list[_Question] = []
        try:
            item = self._inbox.get(timeout=patience_s) if patience_s else self._inbox.get_nowait()
            if (rest_s := self._ended_at + APART_S - time.monotonic()) > 0:
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

    def _act(self, decisions: Sequence[Decision], effects: Effects, intents: Intents) -> None:
        """Agents are told before the pods are bound: the kubelet asks soon after."""
        cluster = self._cluster
        if cluster.replanned:
            intents.publish({name: cluster.intents(name) for name in cluster.replanned})
            cluster.replanned.clear()
        if decisions:
            effects.submit(decisions)

    def _warn_of_tree(self) -> None:
        """What is wrong with HyperNodes: once, and again when it is another thing."""
        troubles = self._cluster.tree.troubles
        if troubles is self._troubles:
            return
        for name, why in sorted(troubles.items()):
            if self._troubles.get(name) != why:
                log.warning("HyperNode %s: %s", name, why)
        for name in sorted(self._troubles.keys() - troubles.keys()):
            log.info("HyperNode %s: nothing is wrong with it any more", name)
        self._troubles = troubles

    def _speak(self, facts: int, decisions: Sequence[Decision], seconds: float) -> None:
        self._turns += 1
        binds = [decision for decision in decisions if isinstance(decision, Bind)]
        evictions = sum(isinstance(each, Evict) and not each.trial for each in decisions)
        level = logging.INFO if binds or evictions else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(
                level,
                "turn %d: %d facts, %d pods bound on %d nodes, %d evicted, %d gangs wait, %.1f ms",
                self._turns,
                facts,
                len(binds),
                len({bind.node for bind in binds}),
                evictions,
                len(self._cluster.waiting),
                seconds * 1000,
            )

    def _sizes(self) -> tuple[int, int]:
        return len(self._cluster.snapshot.row), len(self._cluster.pods)


def tame_garbage_collection() -> None:
    """The listing made a million objects that stay: walking them again and again would cost a turn
    its milliseconds. What is made from here on is freed by counting, but for few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


class _NoJournal:
    def learn(self, now: float, facts: Sequence[Fact]) -> None: ...
    def turn(self, now: float, facts: Sequence[Fact]) -> None: ...
    def decided(self, decisions: Sequence[Decision]) -> None: ...


def _answer(question: _Question, cluster: Cluster) -> None:
    try:
        question.answer.set_result(question.ask(cluster))
    except Exception as error:  # noqa: BLE001  a question must not end the loop; the asker gets the error
        question.answer.set_exception(error)
