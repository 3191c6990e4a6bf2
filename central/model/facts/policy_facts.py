"""Whose turn it is, what it may use, and whom nobody may evict."""

from dataclasses import dataclass

from central.model.facts.amounts import Amounts
from central.model.pod_rules import Expression, Labels


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    name: str
    labels: Labels = ()
    queue: str = ""  # annotation: of the gangs that name none


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A Queue object. Amounts are sorted by resource; one that is not named has no limit."""

    name: str
    weight: int = 1
    priority: int = 0
    parent: str = ""  # empty: the root
    capability: Amounts = ()  # what it may use at most
    guarantee: Amounts = ()  # kept free for it
    deserved: Amounts = ()  # its own, lent while it does not ask
    reclaimable: bool = True  # what it has above its share may be taken back
    closed: bool = False
    error: str = ""  # why the object can't be used, naming the field; its gangs wait with it
    uid: str = ""
    fifo: bool = False  # nobody starts before who comes first
    command: str = ""  # the uid of the last Command that it obeyed


@dataclass(frozen=True, slots=True)
class QueueGone:
    name: str


@dataclass(frozen=True, slots=True)
class PrioritySeen:
    """A PriorityClass object."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class PriorityGone:
    name: str


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A PodDisruptionBudget, as its status has it."""

    namespace: str
    name: str
    selector: tuple[Expression, ...] | None = None  # None: of no pod; none of them: of all
    allowed: int = 0  # how many more of its pods may be evicted
    disrupted: tuple[str, ...] = ()  # pods whose eviction is counted in that already


@dataclass(frozen=True, slots=True)
class BudgetGone:
    namespace: str
    name: str
