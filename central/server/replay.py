"""`lockstep replay FILE`: feeds a journal to a fresh cluster, and says whether the same decisions come
out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import orjson

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler import cycle
from central.scheduler.state.cluster import Cluster
from central.server import codec, journal
from central.server.version import version


class BadJournal(ValueError):
    """One sentence: the file, the line, and what is wrong with it."""


class Differs(Exception):
    """The first decision that is not the same."""


@dataclass(frozen=True, slots=True)
class Replayed:
    turns: int
    facts: int
    decisions: int
    note: str  # what the reader should know beside


@dataclass(slots=True)
class _Turn:
    line: int
    now: float
    facts: list[Fact]


def replay(path: str, *, check: bool = False) -> Replayed:
    """check: look at every promise of the core after every turn. Raises BadJournal, Differs, and
    whatever the core raises."""
    return _Replay(path, check).run()


class _Replay:
    def __init__(self, path: str, check: bool) -> None:
        self._path = path
        self._check = check
        self._turns = self._facts = self._decisions = 0
        self._note = ""
        self._cluster = Cluster()

    def run(self) -> Replayed:
        pending: _Turn | None = None
        for number, line in self._lines():
            kind, content = next(iter(line.items()))
            if pending is not None:
                self._play(pending, self._read(number, content) if kind == "decided" else [])
                pending = None
            match kind, content:
                case "journal", _:
                    self._begin(line)
                case "checkpoint", str():
                    self._cluster = self._unpack(number, content)
                case "learn", [now, facts]:
                    read = self._read(number, facts)
                    self._facts += len(read)
                    cycle.apply_facts(self._cluster, read, now)
                case "turn", [now, facts]:
                    pending = _Turn(number, now, self._read(number, facts))
                case "decided", _:
                    pass
                case _:
                    raise BadJournal(f"{self._path}: line {number} is not a line of a journal")
        if pending is not None:
            self._play(pending, None)
        return Replayed(self._turns, self._facts, self._decisions, self._note)

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """A last line that is not whole was being written when the writer ended."""
        try:
            with Path(self._path).open("rb") as file:
                yield from self._parsed(file)
        except OSError as error:
            raise BadJournal(f"{self._path}: {error.strerror}") from error

    def _parsed(self, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, raw in enumerate(file, 1):
            try:
                line = orjson.loads(raw)
            except ValueError as error:
                if not raw.endswith(b"\n") and number > 1:
                    self._note = f"line {number}, the last, is not whole and was left out"
                    return
                raise BadJournal(f"{self._path}: line {number}: not JSON: {error}") from error
            if not isinstance(line, dict) or not line or (number == 1) != ("journal" in line):
                raise BadJournal(f"{self._path}: line {number} is not a line of a journal")
            yield number, line

    def _begin(self, header: dict[str, Any]) -> None:
        if header["journal"] != journal.FORMAT:
            raise BadJournal(
                f"{self._path}: its format {header['journal']} is not {journal.FORMAT}"
            )
        try:
            settings = dict(header["settings"])
            settings["levels"] = tuple(settings["levels"])
            self._cluster = Cluster(**settings)
        except (KeyError, TypeError, ValueError) as error:
            raise BadJournal(f"{self._path}: line 1: settings: {error}") from error
        if header.get("version") != version():
            self._note = f"it was written by version {header.get('version')}, this is {version()}"

    def _read(self, number: int, found: Any) -> list[Any]:
        try:
            return codec.untagged(found)
        except (codec.UnreadableRecord, TypeError) as error:
            raise BadJournal(f"{self._path}: line {number}: {error}") from error

    def _unpack(self, number: int, text: str) -> Cluster:
        try:
            return journal.unpack(text)
        except codec.UnreadableRecord as error:
            raise BadJournal(f"{self._path}: line {number}: {error}; {self._note}") from error

    def _play(self, turn: _Turn, expected: Sequence[Decision] | None) -> None:
        """expected: None where nobody knows, since the writer ended before it told."""
        self._turns += 1
        self._facts += len(turn.facts)
        decisions = cycle.schedule_once(self._cluster, turn.facts, turn.now)
        self._cluster.replanned.clear()
        if self._check:
            self._cluster.check()
        if expected is None:
            return
        for place, (then, now) in enumerate(zip_longest(expected, decisions), 1):
            if then != now:
                raise Differs(
                    f"turn {self._turns} (line {turn.line}, now {turn.now:.3f}, "
                    f"{len(turn.facts)} facts), decision {place}:\n"
                    f"  then: {then or 'nothing more'}\n  now:  {now or 'nothing more'}"
                )
        self._decisions += len(decisions)
