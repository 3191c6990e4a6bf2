"""An elastic gang as the autoscaler sees it: its members, and which of their pods hold seats."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from central.model.facts import PodSpec
from central.model.jobspec import ElasticTask
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang, GangKey

COST_S = 30.0  # of a change of size, where the Job does not say
LEAVE_S = 30.0  # how long its coordinator may take to let members go
LEAVE_FOR_NEEDS_S = 5.0  # the same if others wait for their seats


@dataclass(slots=True, eq=False)
class ElasticGang:
    gang: Gang
    task: ElasticTask
    members: frozenset[int]  # as decided, whether or not their pods exist
    settled: bool = True  # no decision about its members is on its way
    placed: dict[int, Pod] = field(default_factory=dict)  # members with a node that stay there
    pending: frozenset[int] = frozenset()  # members without a node
    used: frozenset[int] = frozenset()  # numbers whose pods exist, those that are leaving included
    ending: bool = False  # a member has succeeded: the work comes to its end

    @classmethod
    def of(
        cls, gang: Gang, task: ElasticTask, members: Iterable[int], *, settled: bool
    ) -> "ElasticGang":
        found = cls(gang, task, frozenset(members), settled)
        used = set()
        for pod in gang.members.values():
            part = pod.seen.part
            if part is None or part.task != task.task:
                continue
            used.add(part.index)
            found.ending |= pod.seen.phase == "Succeeded" and part.index in found.members
            if pod.node and pod.alive and not pod.leaving and part.index in found.members:
                found.placed[part.index] = pod
        found.used = frozenset(used)
        found.pending = found.members - found.placed.keys()
        return found

    @property
    def key(self) -> GangKey:
        return self.gang.key

    @property
    def cost_s(self) -> float:
        return COST_S if self.task.cost_s is None else self.task.cost_s

    @property
    def hold_s(self) -> float:
        """Least time between two changes that nobody else needs."""
        return self.task.hold_s if self.task.hold_s is not None else max(60.0, 20 * self.cost_s)

    @property
    def spec(self) -> PodSpec | None:
        """Of its members, which are alike; None: none has a seat."""
        return next((pod.spec for pod in self.placed.values()), None)

    @property
    def started(self) -> bool:
        return len(self.placed) >= self.task.least and not self.gang.missing()

    @property
    def spare(self) -> int:
        """How many of its seats it can give, in whole steps down to the least size."""
        return max(0, len(self.placed) - self.task.least)

    def allowed(self, size: int) -> int:
        """The largest allowed size that is no larger; at least the least one."""
        task = self.task
        above = min(max(size, task.least), task.most) - task.least
        return task.least + above // task.step * task.step

    def present_fulfilment(self) -> Fraction:
        return self.fulfilment(len(self.placed))

    def fulfilment(self, size: int) -> Fraction:
        span = self.task.most - self.task.least
        return Fraction(max(0, size - self.task.least), span) if span else Fraction(1)


@dataclass(frozen=True, slots=True)
class Resize:
    """A decision about a gang's members."""

    key: GangKey
    members: tuple[int, ...]
    why: str
    leaving: tuple[Pod, ...] = ()
    leave_s: float = LEAVE_S


def with_more(members: Collection[int], used: Collection[int], more: int, most: int) -> set[int]:
    """The members and that many more below `most`: the lowest numbers without a pod first."""
    found = set(members)
    free = [number for number in range(most) if number not in found]
    free.sort(key=lambda number: number in used)
    return found | set(free[:more])
