"""`lockstep replay --bisect JOURNAL`: the fewest facts of a journal with which the scheduler still fails.

For people who look into a bug. A failure is an exception in a cycle, also one for which an object was set aside. The
journal ends at the first failure, and is replayed again and again with less of it: without half of the objects, a
quarter, ... a single one, then without single facts of those that are left, then without single cycles. The rest fails
with the same exception at the same place, and no longer does without any one part of it.

Source: Zeller, Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28 (2), 2002.
Design: docs/design/containment.md
"""

import tempfile
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from central.model.facts import Fact, GangSeen, NodeReported, PodSeen
from central.model.wording import counted
from central.scheduler.quarantine import describe, display_of, key_of, place_of
from central.scheduler.scheduler import Scheduler
from central.server import codec
from central.server.replay import BadJournal, lines_of, replay

Item = TypeVar("Item")
RESULTS = ("decided", "cut", "interrupted")  # which say nothing of a shorter journal


class JournalFailure(NamedTuple):
    line: int  # of the cycle
    error: BaseException

    def place(self) -> tuple[str, str, str]:
        """The exception, and the file and the function that raised it: equal for the same bug."""
        return place_of(self.error)[:3]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One line of a journal."""

    kind: str
    content: dict[str, Any]
    now: float = 0.0
    facts: Sequence[Fact] = ()

    def text(self) -> bytes:
        facts = {self.kind: [self.now, codec.tagged(self.facts)]}
        return codec.dumps(facts if self.kind in ("learn", "turn") else self.content) + b"\n"

    def with_only(self, ids: set[int]) -> "Entry":
        return replace(self, facts=[fact for fact in self.facts if id(fact) in ids])


class SmallestJournal:
    """The rest of a journal that still fails. Raises BadJournal if it can't be read or no cycle of it fails."""

    def __init__(self, path: str) -> None:
        self.replays = 0
        found = first_failure(path)
        if found is None:
            raise BadJournal(f"{path}: no cycle of it fails")
        self._failure = found
        self.entries = [_entry(line) for line in lines_of(path)][: found.line]
        with tempfile.TemporaryDirectory() as folder:
            self._trial = Path(folder) / "trial.journal"
            self._shorten()

    def _shorten(self) -> None:
        plain = [each for each in self.entries if each.kind not in RESULTS]
        if self._fails(plain):
            self.entries = plain
        groups: dict[Hashable, list[Fact]] = {}
        for _, fact in self.facts():
            groups.setdefault(_object_of(fact), []).append(fact)
        objects = smallest(
            [*groups.values()], lambda some: self._fails(self._with([*chain(*some)]))
        )
        facts = smallest([*chain(*objects)], lambda some: self._fails(self._with(some)))
        self.entries = self._with(facts)
        idle = [each for each in self.entries if each.kind in ("learn", "turn") and not each.facts]
        self.entries = self._without(
            idle, smallest(idle, lambda some: self._fails(self._without(idle, some)))
        )

    def _with(self, facts: Sequence[Fact]) -> list[Entry]:
        """Returns all entries, with these of their facts."""
        ids = {*map(id, facts)}
        return [each.with_only(ids) for each in self.entries]

    def _without(self, idle: Sequence[Entry], kept: Sequence[Entry]) -> list[Entry]:
        gone = {*idle} - {*kept}
        return [each for each in self.entries if each not in gone]

    def _fails(self, entries: Sequence[Entry]) -> bool:
        """Returns whether a journal of these entries fails as the whole one does."""
        self.replays += 1
        if not any(each.kind == "turn" for each in entries):
            return False
        self._trial.write_bytes(b"".join(each.text() for each in entries))
        found = first_failure(str(self._trial))
        return found is not None and found.place() == self._failure.place()

    def facts(self) -> list[tuple[float, Fact]]:
        return [(each.now, fact) for each in self.entries for fact in each.facts]

    def text(self) -> bytes:
        return b"".join(each.text() for each in self.entries)

    def describe(self) -> str:
        facts, replays = counted(len(self.facts()), "fact"), counted(self.replays, "replay")
        cycles = counted(sum(each.kind == "turn" for each in self.entries), "cycle")
        lines = [
            f"{describe(self._failure.error)} (in {self._failure.place()[-1]})",
            f"{facts} in {cycles} are enough for it (found in {replays}):",
        ]
        for now, fact in self.facts():
            lines.append(
                f"  {now:.3f} {type(fact).__name__} {'/'.join(filter(None, display_of(fact)))}"
            )
        if any(each.kind == "checkpoint" for each in self.entries):
            lines.append("  and the whole state with which the journal begins")
        return "\n".join(lines)


def smallest(items: list[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """The items without as many of them as possible while it still fails: it does not without any single one more."""
    if fails([]):
        return []
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        starts = range(0, len(items), size)
        rests = ([*items[:start], *items[start + size :]] for start in starts)
        shorter = next((rest for rest in rests if fails(rest)), None)
        if shorter is not None:
            items, parts = shorter, max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(items))
    return items


def first_failure(path: str) -> JournalFailure | None:
    """The first one of the cycles, whatever they decide. Raises BadJournal."""

    def after_cycle(line: int, scheduler: Scheduler) -> None:
        for each in scheduler.quarantine.take_failures():
            raise _FirstFailure(JournalFailure(line, each.error))

    try:
        replay(path, after_cycle=after_cycle)
    except _FirstFailure as failed:
        return failed.failure
    return None


class _FirstFailure(Exception):
    def __init__(self, failure: JournalFailure) -> None:
        super().__init__()
        self.failure = failure


def _entry(line: dict[str, Any]) -> Entry:
    kind, content = next(iter(line.items()))
    if kind in ("learn", "turn"):
        return Entry(kind, line, content[0], codec.untagged(content[1]))
    return Entry(kind, line)


def _object_of(fact: Fact) -> Hashable:
    """A gang has its PodGroup and its pods, a node its report."""
    if isinstance(fact, PodSeen) and fact.gang_key is not None:
        return fact.gang_key
    if isinstance(fact, GangSeen):
        return fact.namespace, fact.name, True
    return ("Node", fact.node) if isinstance(fact, NodeReported) else key_of(fact)
