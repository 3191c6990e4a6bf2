"""Kubernetes names that both sides use: resources, annotations, labels, identities. Pure."""

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"  # begins the resources of MIG slices: nvidia.com/mig-1g.10gb

DOMAIN = "lockstep.dev"
GPU_SHARE = f"{DOMAIN}/gpu-share"  # a hundredth of one GPU
GPU_MEMORY = f"{DOMAIN}/gpu-memory"  # annotations: what a pod may have of its GPU's memory
GPU_MEMORY_LEVEL = f"{DOMAIN}/gpu-memory-enforcement"  # and how surely at least
GPU_MODEL = f"{DOMAIN}/gpu-model"  # which GPUs a pod may be given: H100,H200 or A100*80GB
GPU_LEAST = f"{DOMAIN}/gpu-memory-least"  # and how much memory each of them must have
RDMA = f"{DOMAIN}/rdma"  # a share of one HCA
RDMA_HANDLES = f"{DOMAIN}/rdma-hca-handles"  # annotations: limits of a pod, of each of its HCAs
RDMA_OBJECTS = f"{DOMAIN}/rdma-hca-objects"
GANG_LABEL = f"{DOMAIN}/gang"
GANG_MIN = f"{DOMAIN}/gang-min"
# The same on a controller (a Deployment, a StatefulSet, a batch Job), as Volcano calls it.
OWNER_MIN = "scheduling.volcano.sh/group-min-member"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"  # hard or soft
TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
RUNS_FOR = f"{DOMAIN}/runs-for"  # how long a pod's work takes: 90s, 1h30m; none: for ever
CHECKPOINT = (
    f"{DOMAIN}/checkpointed-at"  # a time like 2026-11-20T10:00:00Z: work until then is safe
)
MOVABLE = f"{DOMAIN}/movable"  # "true": it may be moved so that others fit
TOPOLOGY_REQUIRED = f"{DOMAIN}/topology-required"
TOPOLOGY_PREFERRED = f"{DOMAIN}/topology-preferred"
PLACEMENT = f"{DOMAIN}/placement"  # pack or spread: the fewest nodes of a domain, or many
PACK, SPREAD = "pack", "spread"
# Pods join a PodGroup by either annotation: the second is what Volcano's operators write.
GROUP_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
TASK = "volcano.sh/task-spec"  # a pod's role in its job
# On a PodGroup: tasks that want to share nodes, and that don't; "ps,worker;ps"
TASK_NEAR = "volcano.sh/task-topology-affinity"
TASK_APART = "volcano.sh/task-topology-anti-affinity"
# On pods, and on a namespace for those of its gangs that name no queue.
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
COMMAND = f"{DOMAIN}/command"  # on a Queue: the uid of the last Command that it obeyed

ZONE = "topology.kubernetes.io/zone"
BLOCK = f"{DOMAIN}/block"
RACK = f"{DOMAIN}/rack"
# Levels that agents tell, as if they were labels: what the GPUs themselves say of their rack.
CLIQUE = f"{DOMAIN}/clique"
CHASSIS = f"{DOMAIN}/chassis"
DOMAINS = f"{DOMAIN}/domains"  # annotation of a bound pod: its domains, widest first, as z1/b2/r3
NODE = "node"  # a level between the tree's and the island
NUMA = "numa"  # a socket's GPUs, on one node
ISLAND = "island"

SCHEDULER = "lockstep"
AGENT_ACCOUNT = "lockstep-agent"
NAMESPACE = "lockstep-system"
AUDIENCE = "lockstep-central"  # of the agents' tokens: of no use anywhere else
