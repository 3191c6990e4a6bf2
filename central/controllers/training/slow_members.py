"""Members for which the others of a live generation wait in most steps, by what each does before it waits itself.

Reports are compared in rounds, which have one of each member. A round in which a member makes a step take 1.3 times as
long counts 1, another one -3, never below 0. Members that are alike are above the median in at most half of the rounds,
however much their times vary: such a count reaches 60 with a probability of 1.84^-60 for each member and round.

Design: docs/design/training.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from central.controllers.training.generation import Generation, Process
from central.controllers.training.standstills import ReplacementBudget

STRAGGLES = 1.3  # times as long
LEAST_MEMBERS = 3  # that are compared
ROUNDS, _BACK = 60, 3
_ONCE_S = 86_400.0  # a node, and a member's number, are replaced once in it


def excesses(own: Mapping[int, float], step_s: float) -> dict[int, float]:
    """Returns the seconds above the median, of the members without which a step of step_s would take 1.3 times less.
    own: seconds of a step in which a member waits for no other."""
    if len(own) < LEAST_MEMBERS:
        return {}
    usual, least_s = median(own.values()), step_s * (1 - 1 / STRAGGLES)
    return {member: each - usual for member, each in own.items() if each - usual > least_s}


@dataclass(slots=True)
class _Count:
    rounds: int = 0
    since: float = 0.0
    told: str = ""  # a sentence, from the 60th round until the count is 0


@dataclass(slots=True)
class SlowMembers:
    """replace_after_s: how long the others must have waited for a member that is to be replaced; 0: none is."""

    replace_after_s: float = 0.0
    _generation: int = 0
    _round: dict[int, tuple[float, float]] = field(default_factory=dict)  # own and whole seconds
    _counts: dict[int, _Count] = field(default_factory=dict)
    _replaced: dict[str, float] = field(default_factory=dict)  # when, by node and by member

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(member for member, one in self._counts.items() if one.told))

    @property
    def sentence(self) -> str:
        more = [f"and for {len(self.members) - 3} more members"] if len(self.members) > 3 else []
        return "; ".join([*(self._counts[member].told for member in self.members[:3]), *more])

    def follow(self, live: Generation | None) -> None:
        if live is None or live.number != self._generation:
            self._generation = live.number if live is not None else 0
            self._round.clear()
            self._counts.clear()

    def add(self, now: float, live: Generation, member: int, own_s: float, step_s: float) -> None:
        """A member of the live generation reports the times of a step. own_s: 0: unknown."""
        self.follow(live)
        if own_s > 0:
            self._round[member] = own_s, step_s
        if len(self._round) >= len(live.processes):
            self._conclude(now, live)
            self._round.clear()

    def _conclude(self, now: float, live: Generation) -> None:
        own = {member: each for member, (each, _) in self._round.items()}
        step_s = median(each for _, each in self._round.values())
        found = excesses(own, step_s)
        for member in found.keys() - self._counts.keys():
            self._counts[member] = _Count(since=now)
        for member, one in list(self._counts.items()):
            one.rounds = min(ROUNDS, one.rounds + 1 if member in found else one.rounds - _BACK)
            if one.rounds <= 0:
                del self._counts[member]
            elif one.rounds == ROUNDS and not one.told:
                one.told = _describe(live, member, found[member], step_s)

    def due(self, now: float, live: Generation, budget: ReplacementBudget) -> Process | None:
        """Returns the process that is to be replaced now, and counts it. No number and no node is replaced twice in a
        day: a member that is slow on a second node has more to do than others, and a node that is slow again has no
        substitute."""
        for process in live.processes if self.replace_after_s else ():
            one = self._counts.get(process.member)
            if one is None or not one.told or now - one.since < self.replace_after_s:
                continue
            causes = {f"node {process.node}", f"member {process.member}"}
            before = {each: at for each, at in self._replaced.items() if now - at < _ONCE_S}
            if not causes & before.keys() and budget.allows(now):
                self._replaced = before | dict.fromkeys(causes, now)
                return process
        return None


def _describe(live: Generation, member: int, excess_s: float, step_s: float) -> str:
    rank = next(at for at, each in enumerate(live.processes) if each.member == member)
    node = live.processes[rank].node or "of an unknown name"
    return (
        f"the others wait {excess_s:.2g} s of each step of {step_s:.2g} s for rank {rank} (member {member}) on "
        f"node {node}"
    )
