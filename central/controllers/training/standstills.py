"""Processes of the live generation that are present and take no step, as they report it themselves.

Conclusions wait for the reports of all ranks: one that saves or evaluates sends none, and the others wait for it. The
cause are ranks that have begun fewer collectives than the others, and of those the ones that wait in none.

Design: docs/design/training.md
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from central.controllers.training.generation import Generation
from central.model import member_numbers
from central.model.json_types import Json

REPLACED_PER_HOUR = 6
_HOUR_S = 3600.0
_KEPT = 64  # stacks: of ranks that wait in a collective, and of others
_SHOWN = 200  # characters of a stack in a sentence


@dataclass(frozen=True, slots=True)
class Standstill:
    """A rank's report."""

    member: int
    rank: int
    seconds: float  # without a step
    phase: str  # what it does instead: a verb with its object
    entered: int  # collectives that it has begun; -1: unknown
    waits_in: str  # the collective; empty: none, or unknown
    stack: str  # a frame in each line, the innermost last

    def json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class ReplacementBudget:
    """Limits how many members that live are replaced in an hour."""

    _at: deque[float] = field(default_factory=deque)

    def allows(self, now: float) -> bool:
        """Returns whether one more is allowed, and counts it."""
        while self._at and now - self._at[0] >= _HOUR_S:
            self._at.popleft()
        if len(self._at) >= REPLACED_PER_HOUR:
            return False
        self._at.append(now)
        return True


@dataclass(slots=True)
class Standstills:
    """replaces: the policy."""

    replaces: bool = False
    sentence: str = ""  # empty: not all ranks stand still
    blamed: tuple[int, ...] = ()  # members
    _generation: int = 0
    _by_rank: dict[int, Standstill] = field(default_factory=dict)
    _stacks: Counter[bool] = field(default_factory=Counter)  # kept, by whether the rank waits
    budget: ReplacementBudget = field(default_factory=ReplacementBudget)

    def add(self, generation: int, size: int, one: Standstill) -> bool:
        """Returns whether this was the last rank of the generation's that stand still. size: their number."""
        if generation != self._generation:
            self.end()
            self._generation = generation
        waits, before = bool(one.waits_in), self._by_rank.pop(one.rank, None)
        if before is not None and before.stack:
            self._stacks[bool(before.waits_in)] -= 1
        if self._stacks[waits] >= _KEPT:
            one = replace(one, stack="")
        self._stacks[waits] += bool(one.stack)
        self._by_rank[one.rank] = one
        if self.sentence or len(self._by_rank) < size:
            return False
        blamed = self._cause()
        self.sentence = self._describe(blamed)
        self.blamed = tuple(sorted({each.member for each in blamed}))
        return True

    def end(self) -> None:
        """A step was taken, or the generation ends."""
        self.sentence, self.blamed = "", ()
        self._by_rank.clear()
        self._stacks.clear()

    def follow(self, live: Generation | None) -> None:
        if self._by_rank and (live is None or live.number != self._generation):
            self.end()

    def may_replace(self, now: float) -> bool:
        """Returns whether the policy and its budget allow it, and counts it."""
        return self.replaces and self.budget.allows(now)

    def json(self) -> Json | None:
        if not self.sentence:
            return None
        ranks = [self._by_rank[rank].json() for rank in sorted(self._by_rank)]
        return {"why": self.sentence, "members": list(self.blamed), "ranks": ranks}

    def ranks(self) -> int:
        return len(self._by_rank) if self.sentence else 0

    def _cause(self) -> list[Standstill]:
        """Empty: all ranks are alike."""
        every = [self._by_rank[rank] for rank in sorted(self._by_rank)]
        most = max(one.entered for one in every)
        behind = [one for one in every if one.entered < most] or every
        found = [one for one in behind if not one.waits_in] or behind
        return found if len(found) < len(every) or len(every) == 1 else []

    def _describe(self, blamed: list[Standstill]) -> str:
        every = list(self._by_rank.values())
        parts = [f"no step for {min(one.seconds for one in every):.0f} s"]
        first = (blamed or every)[0]
        frames = " < ".join(reversed(first.stack.splitlines()))[:_SHOWN]
        at = f"{first.phase}, at {frames}" if frames else first.phase
        who = f"{_named(blamed)} (member {first.member})" if blamed else "each rank"
        parts.append(f"{who} {at}")
        waits = [one for one in every if one.waits_in and one not in blamed]
        if waits:
            parts.append(f"{_named(waits)} in collective {waits[0].waits_in}")
        return "; ".join(parts)


def _named(ranks: Iterable[Standstill]) -> str:
    return f"rank {member_numbers.to_text(one.rank for one in ranks)}"
