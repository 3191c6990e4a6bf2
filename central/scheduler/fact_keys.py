"""Which object a fact is about."""

from collections.abc import Callable
from typing import Any

from central.model.facts import (
    Answered,
    BindDone,
    BindFailed,
    CoordinatorReported,
    CoordinatorSilent,
    CronGone,
    CronSeen,
    ElasticGone,
    ElasticSeen,
    EvictDone,
    Fact,
    FlowGone,
    FlowSeen,
    GangGone,
    GangSeen,
    JobGone,
    JobSeen,
    MemoryExceeded,
    NodeOffers,
    NodeReported,
    NodeSilent,
    OwnerGone,
    OwnerSeen,
    PodGone,
    PodSeen,
    RdmaUsed,
)
from central.model.volumes import AttachLimits
from central.scheduler.quarantine import PODGROUP, SetAsideKey

REPORT = "agent report"

_KINDS: dict[type, str] = {
    GangSeen: PODGROUP,
    GangGone: PODGROUP,
    JobGone: "Job",
    CronSeen: "CronJob",
    CronGone: "CronJob",
    ElasticSeen: "elastic object",
    ElasticGone: "elastic object",
    FlowSeen: "JobFlow",
    FlowGone: "JobFlow",
    OwnerSeen: "controller",
    OwnerGone: "controller",
    NodeReported: REPORT,
    NodeSilent: "silence of an agent",
    NodeOffers: "restart of an agent or kubelet",
    MemoryExceeded: "memory report",
    RdmaUsed: "RDMA report",
    CoordinatorReported: "coordinator report",
    CoordinatorSilent: "coordinator report",
    AttachLimits: "CSINode",
    BindDone: "answer about a pod",
    BindFailed: "answer about a pod",
    EvictDone: "answer about a pod",
    Answered: "answer",
}
_WORDS = {
    "Template": "JobTemplate",
    "Priority": "PriorityClass",
    "Budget": "PodDisruptionBudget",
    "Claim": "PersistentVolumeClaim",
    "Volume": "PersistentVolume",
    "Capacity": "CSIStorageCapacity",
    "Driver": "CSIDriver",
}


def key_of(fact: Fact) -> SetAsideKey:
    """Equal for all facts about one object."""
    return SetAsideKey(kind_of(type(fact)), _IDENTITY.get(type(fact), _by_name)(fact))


def kind_of(fact: type) -> str:
    """The kind of the object, as users know it."""
    word = fact.__name__.removesuffix("Seen").removesuffix("Gone")
    return _KINDS.get(fact) or _WORDS.get(word, word)


def display_of(fact: Fact) -> tuple[str, str]:
    """Namespace and name, as far as the fact has them."""
    about: Any = fact.spec if isinstance(fact, JobSeen) else fact
    name = getattr(about, "name", "") or getattr(about, "node", "") or getattr(about, "pod", "")
    return getattr(about, "namespace", ""), name or getattr(about, "uid", "")


def is_gone(fact: Fact) -> bool:
    """Whether it says that its object does not exist any more."""
    return type(fact).__name__.endswith("Gone")


def _by_name(fact: Any) -> object:
    return display_of(fact)


def _by_uid(fact: Any) -> object:
    return fact.uid


def _by_kind_and_name(fact: Any) -> object:
    return (fact.kind, *display_of(fact))


def _answered(fact: Any) -> object:
    return (fact.verb, fact.kind, fact.namespace, fact.name)


_IDENTITY: dict[type, Callable[[Any], object]] = {
    PodSeen: _by_uid,
    PodGone: _by_uid,
    OwnerSeen: _by_uid,
    OwnerGone: _by_uid,
    BindDone: lambda fact: fact.pod,
    BindFailed: lambda fact: fact.pod,
    EvictDone: lambda fact: fact.pod,
    Answered: _answered,
    ElasticSeen: _by_kind_and_name,
    ElasticGone: _by_kind_and_name,
}
