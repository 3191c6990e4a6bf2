"""Facts: what the outside world reported. They may arrive twice, late or in any order, and applying one again
changes nothing. The journal stores them by class and field names.

Amounts of resources are whole numbers by name: cpu in thousandths of a core, memory and storage in bytes,
everything else in units.
"""

from central.model.amounts import Amounts, Resources
from central.model.device_claims import DeviceFact
from central.model.facts.elastic_facts import ElasticGone, ElasticSeen
from central.model.facts.gang_facts import (
    GangGone,
    GangSeen,
    LaterRole,
    Pairs,
    Roles,
    SubGroupLayer,
    SubGroups,
)
from central.model.facts.job_facts import (
    CommandGone,
    CommandSeen,
    CoordinatorReported,
    CoordinatorSilent,
    CronGone,
    CronSeen,
    FlowGone,
    FlowSeen,
    FlowStep,
    JobGone,
    JobSeen,
    ReadinessCheck,
    TemplateGone,
    TemplateSeen,
)
from central.model.facts.node_facts import (
    HyperNodeGone,
    HyperNodeSeen,
    Member,
    MemoryExceeded,
    NodeGone,
    NodeOffers,
    NodeReported,
    NodeSeen,
    NodeSilent,
    RdmaUsed,
)
from central.model.facts.outcomes import Answered, BindDone, BindFailed, EvictDone
from central.model.facts.pod_facts import (
    OwnerGone,
    OwnerSeen,
    PodGone,
    PodSeen,
    PodSpec,
    Taint,
    Toleration,
)
from central.model.facts.policy_facts import (
    BudgetGone,
    BudgetSeen,
    DeviceClassSeen,
    NamespaceGone,
    NamespaceSeen,
    PastUsageSeen,
    PriorityGone,
    PrioritySeen,
    QueueAccess,
    QueueGone,
    QueuePast,
    QueueSeen,
    TenantDebt,
)
from central.model.volumes import StorageFact

__all__ = [
    "Amounts",
    "Answered",
    "BatchFact",
    "BindDone",
    "BindFailed",
    "BudgetGone",
    "BudgetSeen",
    "CommandGone",
    "CommandSeen",
    "CoordinatorFact",
    "CoordinatorReported",
    "CoordinatorSilent",
    "CronGone",
    "CronSeen",
    "DeviceClassSeen",
    "ElasticFact",
    "ElasticGone",
    "ElasticSeen",
    "EvictDone",
    "Fact",
    "FlowGone",
    "FlowSeen",
    "FlowStep",
    "GangGone",
    "GangSeen",
    "HyperNodeGone",
    "HyperNodeSeen",
    "JobGone",
    "JobSeen",
    "LaterRole",
    "Member",
    "MemoryExceeded",
    "NamespaceGone",
    "NamespaceSeen",
    "NodeGone",
    "NodeOffers",
    "NodeReported",
    "NodeSeen",
    "NodeSilent",
    "OwnerGone",
    "OwnerSeen",
    "Pairs",
    "PastUsageSeen",
    "PodGone",
    "PodSeen",
    "PodSpec",
    "PriorityGone",
    "PrioritySeen",
    "QueueAccess",
    "QueueGone",
    "QueuePast",
    "QueueSeen",
    "RdmaUsed",
    "ReadinessCheck",
    "Resources",
    "Roles",
    "Rule",
    "SubGroupLayer",
    "SubGroups",
    "Taint",
    "TemplateGone",
    "TemplateSeen",
    "TenantDebt",
    "Toleration",
]

# Facts about objects around Jobs.
BatchFact = (
    CommandSeen
    | CommandGone
    | CronSeen
    | CronGone
    | FlowSeen
    | FlowGone
    | TemplateSeen
    | TemplateGone
)

CoordinatorFact = CoordinatorReported | CoordinatorSilent
ElasticFact = ElasticSeen | ElasticGone

# Facts that change the order of gangs and their quotas.
Rule = (
    QueueSeen
    | QueueGone
    | NamespaceSeen
    | NamespaceGone
    | PrioritySeen
    | PriorityGone
    | PastUsageSeen
)

Fact = (
    NodeSeen
    | NodeGone
    | PodSeen
    | PodGone
    | OwnerSeen
    | OwnerGone
    | GangSeen
    | GangGone
    | HyperNodeSeen
    | HyperNodeGone
    | DeviceClassSeen
    | NamespaceSeen
    | NamespaceGone
    | StorageFact
    | DeviceFact
    | BudgetSeen
    | BudgetGone
    | NodeReported
    | MemoryExceeded
    | RdmaUsed
    | NodeSilent
    | NodeOffers
    | BindDone
    | BindFailed
    | EvictDone
    | BatchFact
    | CoordinatorFact
    | ElasticFact
    | JobSeen
    | JobGone
    | Answered
    | Rule
)
