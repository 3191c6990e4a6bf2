"""PodDisruptionBudgets: which pods each covers, and how many disruptions it allows now.

Victims are chosen so that the Eviction API will accept all evictions. Where that is uncertain the
budget counts as used: a pod that is not ready costs as much as a ready one, and a pod that two
budgets cover is never evicted, because the API refuses it.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from central.model.facts import BudgetGone, BudgetSeen
from central.model.pod_rules import Labels
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang

BudgetKey = tuple[str, str]  # namespace and budget
_CACHE_SIZE = 50_000


class DisruptionBudgets:
    def __init__(self) -> None:
        self.seen: dict[BudgetKey, BudgetSeen] = {}
        self.blocked_a_request = False  # since a budget last allowed more
        self._covering: dict[tuple[str, Labels], tuple[BudgetKey, ...]] = {}

    def apply(self, fact: BudgetSeen | BudgetGone) -> bool:
        """Returns whether a request that budgets blocked may succeed now."""
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
            self._covering.clear()
        retry = self.blocked_a_request and _allows_more(before, after)
        self.blocked_a_request &= not retry
        return retry

    def covering(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """The budgets that an eviction of the pod uses. Pending and terminating pods use none."""
        if not self.seen or pod.seen.phase == "Pending" or pod.seen.deleting or not pod.alive:
            return ()
        return self.selecting(pod)

    def selecting(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """The budgets that an eviction of the pod uses once it runs."""
        if not self.seen:
            return ()
        seen = pod.seen
        key = (seen.namespace, seen.labels)
        found = self._covering.get(key)
        if found is None:
            if len(self._covering) >= _CACHE_SIZE:
                self._covering.clear()
            labels = dict(seen.labels)
            found = self._covering[key] = tuple(
                name
                for name, budget in sorted(self.seen.items())
                if budget.namespace == seen.namespace
                and budget.selector is not None
                and all(expression.matches(labels) for expression in budget.selector)
            )
        return found

    def disruptions(self, pods: Iterable[Pod]) -> Counter[BudgetKey]:
        """Returns how many disruptions of each budget the eviction of all these pods uses."""
        spent: Counter[BudgetKey] = Counter()
        for pod in pods:
            spent.update(self.covering(pod))
        return spent

    def cover_any(self, pods: Iterable[Pod]) -> bool:
        return bool(self.seen) and any(map(self.covering, pods))

    def never_evictable(self, pods: Iterable[Pod]) -> bool:
        """Returns whether the Eviction API refuses one of the pods whatever its budgets allow."""
        return bool(self.seen) and any(len(self.covering(pod)) > 1 for pod in pods)


def disruptions_left(budgets: DisruptionBudgets, gangs: Iterable[Gang]) -> Mapping[BudgetKey, int]:
    """Returns the disruptions that each budget allows, minus requested evictions that its status does not show yet."""
    if not budgets.seen:
        return {}
    allowed = {name: budget.allowed for name, budget in budgets.seen.items()}
    for gang in gangs:
        for pod in gang.counts.placed:
            if pod.life.leaving:
                for name in budgets.covering(pod):
                    if pod.seen.name not in budgets.seen[name].disrupted:
                        allowed[name] -= 1
    return allowed


def _allows_more(before: BudgetSeen | None, after: BudgetSeen | None) -> bool:
    if before is None or after is None:
        return after is None
    return after.allowed > before.allowed or before.selector != after.selector
