"""PodDisruptionBudgets: the Eviction API's check and the disruption controller's status."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, Self

from central.kube.decode.fields import DECODE_ERRORS
from central.kube.decode.pod_affinity import label_expressions
from central.model.facts import BudgetGone, BudgetSeen
from central.model.json_types import Json
from central.model.pod_rules import Expression
from central.simulator.documents import MakeError


@dataclass(slots=True)
class DisruptionBudget:
    namespace: str
    name: str
    least: int | Fraction | None  # minAvailable: pods, or a fraction of them
    most: int | Fraction | None  # maxUnavailable
    selector: tuple[Expression, ...]
    pods: set[str] = field(default_factory=set)  # uids of covered pods
    running: set[str] = field(default_factory=set)
    there: bool = False  # its object exists

    @classmethod
    def read(cls, namespace: str, name: str, raw: Json, wrong: MakeError) -> Self:
        spec = raw.get("spec")
        if not isinstance(spec, dict):
            raise wrong("spec: missing")
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if (least is None) == (most is None):
            raise wrong("spec: exactly one of minAvailable and maxUnavailable is required")
        amounts = (_amount(least, "minAvailable", wrong), _amount(most, "maxUnavailable", wrong))
        try:
            selector = label_expressions(spec.get("selector") or {}, "spec.selector")
        except DECODE_ERRORS as error:
            raise wrong(f"spec.selector: invalid: {error}") from error
        return cls(namespace, name, *amounts, selector)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace == self.namespace and all(each.matches(labels) for each in self.selector)

    def allows(self) -> bool:
        """Returns whether one more running pod may be evicted."""
        return not self.there or self.allowed() > 0

    def allowed(self) -> int:
        """status.disruptionsAllowed"""
        expected, healthy = len(self.pods), len(self.running)
        if self.least is not None:
            return max(0, healthy - _of(self.least, expected))
        assert self.most is not None
        return max(0, healthy - (expected - _of(self.most, expected)))


class BudgetStatuses:
    """The status that the disruption controller writes."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._budgets = {(budget.namespace, budget.name): budget for budget in budgets}
        self._written: dict[tuple[str, str], BudgetSeen] = {}

    def add(self, fact: BudgetSeen) -> None:
        name = (fact.namespace, fact.name)
        self._budgets[name].there = True
        self._written[name] = fact

    def remove(self, fact: BudgetGone) -> None:
        name = (fact.namespace, fact.name)
        self._budgets[name].there = False
        self._written.pop(name, None)

    def changes(self) -> Iterator[BudgetSeen]:
        for name, value in self._written.items():
            allowed = self._budgets[name].allowed()
            if allowed != value.allowed:
                self._written[name] = fresh = replace(value, allowed=allowed)
                yield fresh


def _amount(value: Any, field: str, wrong: MakeError) -> int | Fraction | None:
    """A whole number, or a fraction."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return Fraction(int(value[:-1]), 100)
    raise wrong(f"spec.{field}: {value!r} is neither a whole number nor a percentage")


def _of(amount: int | Fraction, expected: int) -> int:
    """Fractions are rounded up, as Kubernetes does for both fields."""
    return amount if isinstance(amount, int) else ceil(amount * expected)
