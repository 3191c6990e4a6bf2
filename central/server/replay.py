"""`lockstep replay FILE`: feeds the facts of a journal to a new cluster state and compares the decisions.

A file may hold several journals, one behind the other, and may be compressed with xz. The header of a journal may name
it: {"journal": 2, ..., "name": "..."}.
"""

import lzma
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import orjson

from central.controllers.composite import new_scheduler
from central.model.decisions import (
    Create,
    Decision,
    EmitWarning,
    Evict,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.agenda import Budget
from central.scheduler.scheduler import Scheduler
from central.server import checkpoint, codec, journal
from central.server.version import version

LINE_MOST_BYTES = 1 << 30  # of a checkpoint, with some 700,000 pods

Fields = dict[type, Collection[str]]  # that records of a class have in this journal
AfterCycle = Callable[[int, Scheduler], None]


class BadJournal(ValueError):
    """One sentence with the file, the line, and what is wrong there."""


class Differs(Exception):
    """Names the first decision that differs."""


@dataclass(frozen=True, slots=True)
class Replayed:
    cycles: int
    facts: int
    decisions: int
    note: str  # what the user should know; empty: nothing


@dataclass(slots=True)
class _Cycle:
    line: int
    now: float
    facts: list[Fact]
    more: int | None = None  # attempts after the first, if it was cut
    interrupted: int | None = None  # units of work after which a long attempt was ended

    def budget(self) -> Budget | None:
        if self.more is None:
            return None
        left = iter(range(self.more))
        return lambda: next(left, None) is None

    def interrupt(self, used: int) -> bool:
        return self.interrupted is not None and used >= self.interrupted


def replay(
    path: str,
    *,
    decisions_only: bool = False,
    after_cycle: AfterCycle | None = None,
    line_most: int = LINE_MOST_BYTES,
) -> Replayed:
    """decisions_only: compare no wording. after_cycle: called with the
    line of each cycle, also of one that raises; then decisions are not compared. line_most: bytes that a line may have.
    Raises BadJournal, Differs, and what the scheduler or after_cycle raises."""
    return _Replay(path, decisions_only, after_cycle, line_most).run()


def lines_of(path: str) -> list[dict[str, Any]]:
    """The entries of a journal. Raises BadJournal."""
    return [line for _, line in _Replay(path).lines()]


class _Replay:
    def __init__(
        self,
        path: str,
        decisions_only: bool = False,
        after_cycle: AfterCycle | None = None,
        line_most: int = LINE_MOST_BYTES,
    ) -> None:
        self._path, self._after_cycle = path, after_cycle
        self._decisions_only = decisions_only
        self._line_most = line_most
        self._then, self._now = _Statuses(), _Statuses()
        self._name, self._cycles_before = "", 0  # of this journal
        self._fields: Fields = {}
        self._cycles = self._facts = self._decisions = 0
        self._note = ""
        self._written_by = ""  # the version, if it is another one
        self._scheduler = new_scheduler()

    def run(self) -> Replayed:
        pending: _Cycle | None = None
        for number, line in self.lines():
            kind, content = next(iter(line.items()))
            if kind == "cut" and pending is not None and isinstance(content, int):
                pending.more = content
                continue
            if kind == "interrupted" and pending is not None and isinstance(content, int):
                pending.interrupted = content
                continue
            if pending is not None:
                self._play(pending, self._decided(number, content) if kind == "decided" else [])
                pending = None
            match kind, content:
                case "journal", _:
                    self._begin(line)
                case "checkpoint", dict():
                    self._scheduler = self._load(number, content)
                case "learn", [now, facts]:
                    read = self._read(number, facts)
                    self._facts += len(read)
                    cycle.apply_facts(self._scheduler, read, now)
                case "turn", [now, facts]:
                    pending = _Cycle(number, now, self._read(number, facts))
                case "decided", _:
                    pass
                case _:
                    raise BadJournal(f"{self._path}: line {number} is not a journal entry")
        if pending is not None:
            self._play(pending, None)
        if not self._cycles:
            raise BadJournal(
                f"{self._path}: it has no scheduling cycle to compare: the scheduler ended before its first one, or "
                f"could not write; an older part may be in {Path(self._path).name}.1"
            )
        return Replayed(self._cycles, self._facts, self._decisions, self._note)

    def lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The last line may be incomplete, if the writer was killed."""
        try:
            with (lzma.open if self._path.endswith(".xz") else open)(self._path, "rb") as file:
                yield from self._parsed(file)
        except OSError as error:
            raise BadJournal(f"{self._path}: {error.strerror}") from error
        except (lzma.LZMAError, EOFError) as error:
            raise BadJournal(f"{self._path}: not a whole file of xz: {error}") from error

    def _parsed(self, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, raw in enumerate(iter(lambda: file.readline(self._line_most + 1), b""), 1):
            if len(raw) > self._line_most:
                raise BadJournal(
                    f"{self._path}: line {number} is longer than {self._line_most} bytes"
                )
            try:
                line = orjson.loads(raw)
            except ValueError as error:
                if not raw.endswith(b"\n") and number > 1:
                    self._note = f"line {number}, the last, is incomplete and was skipped"
                    return
                if number == 1:
                    raise BadJournal(
                        f"{self._path}: not a journal, as --journal writes it"
                    ) from error
                why = str(error).partition(": line ")[0]  # orjson counts from this line
                raise BadJournal(f"{self._path}: line {number}: not JSON: {why}") from error
            if not isinstance(line, dict) or not line or (number == 1 and "journal" not in line):
                raise BadJournal(f"{self._path}: line {number} is not a journal entry")
            yield number, line

    def _begin(self, header: dict[str, Any]) -> None:
        found, written_by = header["journal"], header.get("version")
        self._name, self._cycles_before = header.get("name", ""), self._cycles
        self._then, self._now, self._fields = _Statuses(), _Statuses(), {}
        if found != journal.FORMAT:
            raise BadJournal(
                f"{self._path}: unknown format {found} (this version reads {journal.FORMAT})"
            )
        try:
            settings = dict(header["settings"])
            settings["levels"] = tuple(settings["levels"])
            self._scheduler = new_scheduler(**settings)
        except (KeyError, TypeError, ValueError) as error:
            raise BadJournal(f"{self._path}: line 1: settings: {error}") from error
        if written_by != version():
            self._written_by = f"version {written_by}"
            self._note = f"written by {self._written_by}: gangs' statuses and the wording of reasons were not compared"

    def _read(self, number: int, found: Any) -> list[Any]:
        try:
            return codec.untagged(found)
        except (codec.UnreadableRecord, TypeError) as error:
            raise BadJournal(f"{self._path}: line {number}: {error}") from error

    def _decided(self, number: int, found: Any) -> list[Decision]:
        decisions = self._read(number, found)
        for decision, (_, fields) in zip(decisions, found, strict=True):
            self._fields.setdefault(type(decision), fields.keys())
        return decisions

    def _load(self, number: int, found: dict[str, Any]) -> Scheduler:
        try:
            return checkpoint.load(self._scheduler, found)
        except codec.UnreadableRecord as error:
            raise BadJournal(f"{self._path}: line {number}: {error}") from error

    def _play(self, pending: _Cycle, expected: Sequence[Decision] | None) -> None:
        """expected: None if unknown, because the writer ended before it recorded them."""
        self._cycles += 1
        self._facts += len(pending.facts)
        try:
            decisions = cycle.schedule_once(
                self._scheduler, pending.facts, pending.now, pending.budget(), pending.interrupt
            )
        finally:
            if self._after_cycle is not None:
                self._after_cycle(pending.line, self._scheduler)
        self._scheduler.state.nodes_to_notify.clear()
        if expected is None or self._after_cycle is not None:
            return
        decided: Sequence[Decision] = decisions
        if self._decisions_only:
            expected = self._then.changed(expected, self._fields)
            decided = self._now.changed(decisions, self._fields)
        elif self._written_by:  # versions publish different statuses and Events
            expected, decided = _without_notices(expected), _without_notices(decisions)
        for number, (then, now) in enumerate(zip_longest(expected, decided), 1):
            if not _same(
                then,
                now,
                self._fields if self._decisions_only else {},
                wording=not self._written_by and not self._decisions_only,
            ):
                raise Differs(
                    f"{self._name}{self._name and ': '}cycle {self._cycles - self._cycles_before} "
                    f"(line {pending.line}, now {pending.now:.3f}, {len(pending.facts)} facts), decision {number}:\n"
                    f"  then: {then or 'no decision'}\n  now:  {now or 'no decision'}"
                )
        self._decisions += len(decided)


class _Statuses:
    """The last statuses of one side of a comparison, without wording."""

    def __init__(self) -> None:
        self._said: dict[tuple[object, ...], Any] = {}

    def changed(self, decisions: Sequence[Decision], fields: Fields) -> list[Decision]:
        """Returns the decisions without texts for people, and without statuses that only have another wording."""
        found: list[Decision] = []
        for each in decisions:
            if isinstance(each, EmitWarning) or _is_event(each):
                continue
            if isinstance(each, UpdateGangStatus | SetStatus):
                of = (each.gang,) if isinstance(each, UpdateGangStatus) else (each.kind, each.name)
                said, key = _plain(each, fields), (each.namespace, *of)
                if self._said.get(key) == said:
                    continue
                self._said[key] = said
            found.append(each)
        return found


def _without_notices(decisions: Sequence[Decision]) -> list[Decision]:
    return [
        one for one in decisions if not isinstance(one, UpdateGangStatus) and not _is_event(one)
    ]


def _is_event(decision: Decision) -> bool:
    return isinstance(decision, Create) and decision.kind == "Event"


def _same(then: Decision | None, now: Decision | None, fields: Fields, *, wording: bool) -> bool:
    """wording: texts for people are compared, too. A journal from before evictions had a cause has none to compare."""
    if isinstance(then, Evict) and isinstance(now, Evict):
        if not then.cause:
            now = replace(now, cause="")
        elif then.cause != now.cause:
            return False
    return then == now or (not wording and bool(_plain(then, fields) == _plain(now, fields)))


def _plain(decision: Decision | None, fields: Fields) -> Any:
    """Returns the decision as JSON, without wording and without fields that are newer than the journal."""
    [[kind, found]] = orjson.loads(codec.dumps(codec.tagged([decision])))
    known = fields.get(type(decision))
    if known is not None:
        found = {key: value for key, value in found.items() if key in known}
    return kind, _without_wording(found)


def _without_wording(value: Any) -> Any:
    """JSON without its texts for people, which may differ between versions."""
    if isinstance(value, dict):
        texts = ("why", "public", "reason", "message")
        later = ("closedBy", "ancestors")  # of a Queue's status
        return {
            key: _amounts(inner) if key == "minResources" else _without_wording(inner)
            for key, inner in value.items()
            if key not in texts and key not in later
        }
    return list(map(_without_wording, value)) if isinstance(value, list) else value


def _amounts(terms: Any) -> Any:
    """minResources by resource: versions write requests.nvidia.com/gpu, nvidia.com/gpu, or both."""
    if not isinstance(terms, dict):
        return terms
    return {key.removeprefix("requests."): amount for key, amount in sorted(terms.items())}
