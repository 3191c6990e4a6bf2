"""PodDisruptionBudgets: whom each covers, and how many of those the Eviction API would let go now. So
a claim chooses only victims that will all be let go.

What is not known is taken to the careful side: a pod that is not ready costs as much as one that is, and
a pod that two budgets cover is never let go (the Eviction API refuses it).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from central.model.facts import BudgetGone, BudgetSeen
from central.model.pod_rules import Labels
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang

BudgetKey = tuple[str, str]  # namespace and budget
_KEPT = 50_000


class DisruptionBudgets:
    def __init__(self) -> None:
        self.seen: dict[BudgetKey, BudgetSeen] = {}
        self.in_the_way = False  # of a claim that found no other way
        self._of: dict[tuple[str, Labels], tuple[BudgetKey, ...]] = {}

    def apply(self, fact: BudgetSeen | BudgetGone) -> bool:
        """Whether who was refused for its sake may be luckier now."""
        name = (fact.namespace, fact.name)
        before = self.seen.get(name)
        after = fact if isinstance(fact, BudgetSeen) else None
        if before == after:
            return False
        if after is None:
            del self.seen[name]
        else:
            self.seen[name] = after
        if before is None or after is None or before.selector != after.selector:
            self._of.clear()
        luckier = self.in_the_way and _more(before, after)
        self.in_the_way &= not luckier
        return luckier

    def of(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """Those that count the pod. Whoever has not begun, or is leaving, is let go by all of them."""
        seen = pod.seen
        if not self.seen or seen.phase == "Pending" or seen.deleting or not pod.alive:
            return ()
        key = (seen.namespace, seen.labels)
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= _KEPT:
                self._of.clear()
            labels = dict(seen.labels)
            found = self._of[key] = tuple(
                name
                for name, budget in sorted(self.seen.items())
                if budget.namespace == seen.namespace
                and budget.selector is not None
                and all(expression.matches(labels) for expression in budget.selector)
            )
        return found

    def spends(self, pods: Iterable[Pod]) -> Counter[BudgetKey]:
        """What the eviction of all of them would take of each budget."""
        spent: Counter[BudgetKey] = Counter()
        for pod in pods:
            spent.update(self.of(pod))
        return spent

    def hopeless(self, pods: Iterable[Pod]) -> bool:
        """Whether one of them is never let go."""
        return bool(self.seen) and any(len(self.of(pod)) > 1 for pod in pods)


def left(budgets: DisruptionBudgets, gangs: Iterable[Gang]) -> Mapping[BudgetKey, int]:
    """What each budget still allows, less what was asked for and is not in its status yet."""
    if not budgets.seen:
        return {}
    allowed = {name: budget.allowed for name, budget in budgets.seen.items()}
    for gang in gangs:
        if not gang.preemption.preempted_for and gang.attempt.partial_since is None:
            continue
        for pod in gang.placed():
            if pod.evicting:
                for name in budgets.of(pod):
                    if pod.seen.name not in budgets.seen[name].disrupted:
                        allowed[name] -= 1
    return allowed


def _more(before: BudgetSeen | None, after: BudgetSeen | None) -> bool:
    if before is None or after is None:
        return after is None
    return after.allowed > before.allowed or before.selector != after.selector
