"""Usage of a queue's gangs, by their priority: how much a more urgent gang of the queue might take.

Kept up to date gang by gang, because each of thousands of claimants asks, and a queue may have as many gangs.
"""

from collections.abc import Mapping
from math import inf

from central.model.resources import Sums, add
from central.scheduler.state.gangs import Gang, GangKey

ByPriority = dict[int, Sums]


class UsageByPriority:
    def __init__(self) -> None:
        self._in_all: ByPriority = {}
        self._in_namespace: dict[str, ByPriority] = {}
        self._counted: dict[GangKey, tuple[int, Mapping[str, int]]] = {}

    def add(self, gang: Gang, used: Mapping[str, int]) -> None:
        """Counts a gang that is not counted yet."""
        self._counted[gang.key] = gang.priority, used
        self._count(gang, gang.priority, used, 1)

    def remove(self, gang: Gang) -> None:
        """Takes off what the gang was counted with: nothing if it uses nothing."""
        if (counted := self._counted.pop(gang.key, None)) is not None:
            self._count(gang, *counted, -1)

    def update(self, gang: Gang) -> None:
        """Counts it at the priority that it has now."""
        counted = self._counted.get(gang.key)
        if counted is not None and counted[0] != gang.priority:
            self.remove(gang)
            self.add(gang, counted[1])

    def below(self, priority: int, namespace: str | None = None) -> Sums:
        """Returns what all gangs with a lower priority use. namespace: only those in it."""
        every = self._in_all if namespace is None else self._in_namespace.get(namespace, {})
        found: Sums = {}
        for each, used in every.items():
            if each < priority:
                add(found, used, 1)
        return found

    def lowest(self) -> float:
        """Returns the lowest priority of the gangs that use anything; inf: none does."""
        return min(self._in_all, default=inf)

    def _count(self, gang: Gang, priority: int, used: Mapping[str, int], times: int) -> None:
        own = self._in_namespace.setdefault(gang.namespace, {})
        for sums in (self._in_all, own):
            add(sums.setdefault(priority, {}), used, times)
            if not sums[priority]:
                del sums[priority]
        if not own:
            del self._in_namespace[gang.namespace]
