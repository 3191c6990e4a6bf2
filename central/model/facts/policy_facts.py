"""Facts about queues, priorities, namespaces and disruption budgets."""

from dataclasses import dataclass

from central.model.amounts import Amounts
from central.model.pod_rules import Expression, Labels


@dataclass(frozen=True, slots=True)
class DeviceClassSeen:
    """A class of devices that claims (DRA) allocate."""

    name: str
    resource: str | None = (
        None  # that pods may request instead (extendedResourceName); None: the class is gone
    )
    selectors: tuple[str, ...] = ()  # CEL expressions; all of them hold for its devices
    error: str = ""  # why its devices cannot be selected
    created: float = 0.0  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    name: str
    labels: Labels = ()
    queue: str = ""  # annotation: the queue of gangs that name none


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class QueueAccess:
    """Users of a queue: each of the lists admits on its own. Users and groups are those of the pods' ServiceAccounts,
    as in system:serviceaccount:team-a:trainer and system:serviceaccounts:team-a."""

    namespaces: tuple[str, ...] = ()
    selector: tuple[Expression, ...] | None = None  # by labels of the namespace; None: admits none
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A Queue object. Amounts are sorted by resource. A resource that is not named has no limit."""

    name: str
    weight: int = 1
    priority: int = 0
    parent: str = ""  # empty: the root
    capability: Amounts = ()  # the most that it may use
    guarantee: Amounts = ()  # kept free for it
    deserved: Amounts = ()  # its share, lent to others while unused
    reclaimable: bool = True  # usage above its share can be reclaimed
    closed: bool = False
    error: str = ""  # the invalid field and why; its gangs stay pending with it
    uid: str = ""
    fifo: bool = False  # strict order of creation
    command: str = ""  # uid of the last Command that was executed
    access: QueueAccess | None = None  # None: open to all
    borrowing_limit: Amounts = ()  # the most that it may use above deserved
    lending_limit: Amounts = ()  # the most of deserved that others may use
    running_gangs: int | None = None  # the most gangs that run at a time
    namespace_gangs: int | None = None  # the same of one namespace
    reserves: bool = True  # its first gang that does not fit may get a reservation
    namespace_amounts: Amounts = ()  # the most that the gangs of one namespace may use
    user_gangs: int | None = None  # as namespace_gangs, of one user
    user_amounts: Amounts = ()  # as namespace_amounts, of one user
    min_runtime_s: float | None = None  # run time before a gang may be evicted; None: as above it
    # Run time after which a gang that may be suspended for equals; 0: never, None: as above it.
    quantum_s: float | None = None
    idle_s: float | None = (
        None  # its gangs may leave their GPUs idle for so long; 0: for ever, None: as above it
    )
    by_namespace: bool = False  # its namespaces share it as queues with equal weights do
    strict_priority: int = 0  # higher ones get what they request before lower ones share the rest


@dataclass(frozen=True, slots=True)
class QueueGone:
    name: str


@dataclass(frozen=True, slots=True)
class QueuePast:
    """The mean use of one queue above its deserved amount, by resource, in the units of Sums."""

    name: str
    means: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class PastUsageSeen:
    """The past use of queues as an earlier leader wrote it. at: Unix time of the write."""

    at: float
    queues: tuple[QueuePast, ...]


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
    """A PodDisruptionBudget with the counts of its status."""

    namespace: str
    name: str
    selector: tuple[Expression, ...] | None = None  # None: no pod; empty: all pods
    allowed: int = 0  # disruptionsAllowed
    disrupted: tuple[str, ...] = ()  # disruptedPods: evictions that `allowed` includes already


@dataclass(frozen=True, slots=True)
class BudgetGone:
    namespace: str
    name: str
