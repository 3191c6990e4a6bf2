"""Facts: what the outside world reported. They may arrive twice, late or in any order, and applying one again
changes nothing. The journal stores them by class and field names.

Amounts of resources are whole numbers by name: cpu in thousandths of a core, memory and storage in bytes,
everything else in units.
"""

from central.model.amounts import Amounts as Amounts
from central.model.amounts import Resources as Resources
from central.model.device_claims import DeviceFact
from central.model.facts.elastic_facts import *
from central.model.facts.gang_facts import *
from central.model.facts.job_facts import *
from central.model.facts.node_facts import *
from central.model.facts.outcomes import *
from central.model.facts.pod_facts import *
from central.model.facts.policy_facts import *
from central.model.volumes import StorageFact

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
    | GpusIdle
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
