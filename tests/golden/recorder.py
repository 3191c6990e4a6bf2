"""Records the facts and decisions of every scheduler that a program runs in this process, as journals."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.server import codec, journal
from central.server.version import version

# What days check after each step says nothing about decisions, and takes most of their time.
CHECKS = (
    "check_invariants",
    "assert_sound",
    "assert_within_budgets",
    "assert_the_ended_stay",
    "assert_reasons_true",
)

Apply = Callable[[Scheduler, Iterable[Fact], float], None]


class Recorder:
    """One journal for each scheduler, uncut: without a budget of time a cycle tries every gang."""

    def __init__(
        self, name: str, apply_facts: Apply, decide: Callable[..., list[Decision]]
    ) -> None:
        self._name, self._apply_facts, self._decide = name, apply_facts, decide
        self._journals: dict[int, tuple[Scheduler, list[bytes]]] = {}
        self._waiting: dict[int, tuple[float, list[Fact]]] = {}  # applied, before a cycle

    def apply_facts(self, scheduler: Scheduler, facts: Iterable[Fact], now: float) -> None:
        self._lines(scheduler)
        found = list(facts)
        before, waiting = self._waiting.get(id(scheduler), (now, []))
        if before != now:
            self._write(scheduler, {"learn": [before, codec.tagged(waiting)]})
            waiting = []
        self._waiting[id(scheduler)] = now, waiting + found
        self._apply_facts(scheduler, found, now)

    def apply(self, scheduler: Scheduler, fact: Fact) -> None:
        """A fact that comes without a time."""
        self.apply_facts(scheduler, [fact], scheduler.state.now)

    def decide(self, scheduler: Scheduler, now: float, *cut: object) -> list[Decision]:
        self.apply_facts(scheduler, [], now)
        _, waiting = self._waiting.pop(id(scheduler))
        self._write(scheduler, {"turn": [now, codec.tagged(waiting)]})
        decisions = self._decide(scheduler, now)
        if decisions:
            self._write(scheduler, {"decided": codec.tagged(decisions)})
        return decisions

    def journals(self) -> Iterator[bytes]:
        for _, lines in self._journals.values():
            if len(lines) > 1:
                yield b"".join(lines)

    def _write(self, scheduler: Scheduler, line: dict[str, Any]) -> None:
        self._lines(scheduler).append(codec.dumps(line) + b"\n")

    def _lines(self, scheduler: Scheduler) -> list[bytes]:
        """Begins with the settings that the scheduler has before its first fact."""
        if id(scheduler) not in self._journals:
            number = len(self._journals)
            head: dict[str, Any] = {"journal": journal.FORMAT, "version": version()}
            head["settings"] = journal.settings(scheduler)
            head["name"] = f"{self._name}, scheduler {number}" if number else self._name
            self._journals[id(scheduler)] = scheduler, [codec.dumps(head) + b"\n"]
        return self._journals[id(scheduler)][1]


@contextmanager
def recording(name: str, modules: Iterable[str]) -> Iterator[Recorder]:
    """modules: those that check what they do, or call apply() and decide() by names of their own."""
    recorder = Recorder(name, cycle.apply_facts, cycle.decide)
    replaced: list[tuple[Any, str, object]] = []

    def replace(owner: Any, attribute: str, made: object) -> None:
        if hasattr(owner, attribute):
            replaced.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, made)

    try:
        for module in map(importlib.import_module, modules):
            for check in CHECKS:
                replace(module, check, lambda *_, **__: None)
            for called in ("apply", "decide"):
                replace(module, called, getattr(recorder, called))
        replace(cycle, "apply_facts", recorder.apply_facts)
        replace(cycle, "decide", recorder.decide)
        yield recorder
    finally:
        for owner, attribute, before in reversed(replaced):
            setattr(owner, attribute, before)
