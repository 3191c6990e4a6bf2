"""The check of pairs before a generation's processes start: which pairs are weak, and which members are the cause.

Each member reports the seconds that it took with others. A pair counts against the others that are as near to each
other: on one node, in one rack. The conclusion waits for all members, and for no longer than the check may take.

Design: docs/design/training.md
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from central.controllers.training.generation import Generation, Process
from protos.blame import blamed

SLOWER = 3.0  # times as slow as a good pair of the same nearness
LEAST_PAIRS = 3  # that are compared
BEYOND_S = 10.0  # until a report is missing, beyond the time of the check
REPLACED_MOST = 64  # pods that the scheduler is told
BAD_PLACE = 76  # the exit code of a member that is replaced for it
Nearness = Callable[[int, int], object]
_Pair = tuple[int, int]  # members, the lower one first
_Process = tuple[int, int]  # member and incarnation


@dataclass(frozen=True, slots=True)
class PairReport:
    """seconds: with each other member. failed: with whom nothing, or something wrong, came."""

    member: int
    seconds: Mapping[int, float]
    failed: frozenset[int]


@dataclass(slots=True)
class PairChecks:
    within_s: float = 0.0  # 0: pairs are not checked
    sentence: str = ""  # about the weak pairs of the latest check
    blamed: tuple[int, ...] = ()  # members
    replaced: dict[_Process, str] = field(default_factory=dict)  # and the uids of their pods
    _checked: frozenset[_Process] = frozenset()  # of the latest generation that was checked
    _generation: int = 0
    _until: float = inf
    _reports: dict[int, PairReport] = field(default_factory=dict)

    def due_s(self, generation: Generation | None) -> float:
        """Returns how long its members may check their pairs; 0: all were checked, or the check is off."""
        if generation is None or len(generation.processes) < 2:
            return 0.0
        return self.within_s if generation.incarnations().items() - self._checked else 0.0

    def add(self, now: float, live: Generation, one: PairReport, near: Nearness) -> bool:
        """Returns whether this was the report with which all is known."""
        if not self.due_s(live):
            return False
        if live.number != self._generation:
            self._generation, self._until = live.number, now + self.within_s + BEYOND_S
            self._reports.clear()
        self._reports[one.member] = one
        if len(self._reports) < len(live.processes) and now < self._until:
            return False
        self._checked = frozenset(live.incarnations().items())
        weak = self._weak(near)
        found = blamed(weak)
        # Of a pair that nothing tells apart, one is enough.
        alone = {max(pair) for pair in weak if found.keys() >= set(pair)}
        self.blamed = tuple(sorted(alone or found))
        self.sentence = "; ".join(weak[pair] for pair in sorted(weak)[:3])
        if len(weak) > 3:
            self.sentence += f"; and {len(weak) - 3} more pairs"
        return True

    def note_replaced(self, process: Process) -> None:
        self.replaced[process.member, process.incarnation] = process.uid
        for first in list(self.replaced)[:-REPLACED_MOST]:
            del self.replaced[first]

    def _weak(self, near: Nearness) -> dict[_Pair, str]:
        """Returns a sentence for each weak pair."""
        spans: dict[_Pair, float] = {}
        found: dict[_Pair, str] = {}
        for one in self._reports.values():
            for other, seconds in one.seconds.items():
                pair = min(one.member, other), max(one.member, other)
                spans[pair] = max(spans.get(pair, 0.0), seconds)
            for other in one.failed:
                # Who waits for a member that hangs with a third one fails, too: only both ends' word counts.
                back = self._reports.get(other)
                if back is None or one.member in back.failed:
                    pair = min(one.member, other), max(one.member, other)
                    found[pair] = f"members {pair[0]} and {pair[1]} do not reach each other"
        alike: dict[object, list[float]] = defaultdict(list)
        for (a, b), seconds in spans.items():
            alike[near(a, b)].append(seconds)
        for (a, b), seconds in spans.items():
            others = sorted(alike[near(a, b)])
            good = others[len(others) // 4]
            if len(others) >= LEAST_PAIRS and seconds > SLOWER * good:
                found.setdefault((a, b), _slow(a, b, seconds, good))
        return found


def _slow(a: int, b: int, seconds: float, good: float) -> str:
    times = f"{seconds / good:.1f} times as long as pairs like them" if good else "too long"
    return f"members {a} and {b} need {times} ({1000 * seconds:.3g} ms)"
