"""Kubernetes names that agent and scheduler share: resources, annotations, labels, identities.
Pure."""

GPU = "nvidia.com/gpu"
# Resources of other device plugins whose devices count as one GPU each; --mig-fraction adds to them.
OTHER_GPUS = frozenset(
    (
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "huawei.com/Ascend310P",
        "huawei.com/Ascend910",
        "huawei.com/npu",
        "google.com/tpu",
    )
)
MIG = "nvidia.com/mig-"  # prefix of MIG resources: nvidia.com/mig-1g.10gb
# Before the name of a DeviceClass: the resource that each class serves, and by which queues count its devices.
BY_CLASS = "deviceclass.resource.kubernetes.io/"
# The agent as a driver of resource claims: of its sockets, and of the scheduler's ResourceSlices.
DRA_DRIVER = "gpu.lockstep.dev"

DOMAIN = "lockstep.dev"
AGENT = f"{DOMAIN}/agent"  # node label: true, or false, to run the agent there; cpu: without GPUs
GPU_SHARE = f"{DOMAIN}/gpu-share"  # a hundredth of one GPU
GPU_MEMORY = f"{DOMAIN}/gpu-memory"  # annotation: cap on GPU memory
GPU_MEMORY_LEVEL = f"{DOMAIN}/gpu-memory-enforcement"  # annotation: lowest acceptable enforcement
GPU_MODEL = f"{DOMAIN}/gpu-model"  # annotation: allowed GPU models: H100,H200 or A100*80GB
GPU_LEAST = f"{DOMAIN}/gpu-memory-least"  # annotation: least memory of each GPU
GPU_FULL_SPEED = f"{DOMAIN}/gpu-full-speed"  # annotation: "true": no node with a slow GPU
# Node label: the number of slow GPUs. The key also of the soft taint that the scheduler assumes on such a node.
SLOW_GPU = f"{DOMAIN}/slow-gpu"
RDMA = f"{DOMAIN}/rdma"  # a share of one NIC
RAIL = f"{DOMAIN}/rail-"  # and a number: a share of a NIC of that rail
RDMA_HANDLES = f"{DOMAIN}/rdma-hca-handles"  # annotations: limits of a pod on each of its NICs
RDMA_OBJECTS = f"{DOMAIN}/rdma-hca-objects"
GANG_LABEL = f"{DOMAIN}/gang"
GANG_MIN = f"{DOMAIN}/gang-min"
GANG_OF = f"{DOMAIN}/gang-of"  # on a PodGroup that the scheduler writes for tools: deployment/web
# Volcano's equivalent on a controller (Deployment, StatefulSet, batch Job).
OWNER_MIN = "scheduling.volcano.sh/group-min-member"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"  # hard or soft
TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
RUNS_FOR = f"{DOMAIN}/runs-for"  # expected run time of a pod: 90s, 1h30m; absent: unlimited
# In simulations: how long a deleted pod takes to leave, and a bound one to run.
GRACE = f"{DOMAIN}/grace"
START_TAKES = f"{DOMAIN}/start-takes"
# In simulations: the time that one member of an elastic Job needs for all of its work, and how fast more members are.
WORK = f"{DOMAIN}/work"
SPEED = f"{DOMAIN}/speed"
CHECKPOINT = f"{DOMAIN}/checkpointed-at"  # time of the last checkpoint: 2026-11-20T10:00:00Z
RESIZE_COST = f"{DOMAIN}/resize-cost"  # what a change of an elastic Job's size costs it: 40s
WORK_LEFT = f"{DOMAIN}/work-left"  # of an elastic Job: 3h at its present size, 42%, 18000 steps
# On a Deployment, ReplicaSet, StatefulSet or batch Job whose size the scheduler decides.
ELASTIC_MIN = f"{DOMAIN}/elastic-min"
ELASTIC_MAX = f"{DOMAIN}/elastic-max"
ELASTIC_STEP = f"{DOMAIN}/elastic-step"
ELASTIC_OBJECTIVE = f"{DOMAIN}/elastic-objective"
ELASTIC_ASK = f"{DOMAIN}/elastic-ask"  # "pods": members without a seat exist as pending pods
# On members of an elastic Job with files, which show these annotations.
MEMBER_GENERATION = f"{DOMAIN}/generation"
MEMBER_SIZE = f"{DOMAIN}/size"
MEMBER_NUMBERS = f"{DOMAIN}/members"
MEMBER_LEAVING = f"{DOMAIN}/leaving"
MEMBER_LEAVE_BY = f"{DOMAIN}/leave-by"
YIELDS = f"{DOMAIN}/yields"  # "false": an elastic Job's surplus is not taken for others
MOVABLE = f"{DOMAIN}/movable"  # "true": defragmentation may move the pod
START_WITHIN = (
    f"{DOMAIN}/start-within"  # of a pod or PodGroup: until it runs and is ready: 15m; 0: no limit
)
# Of the pods of a gang: their device claims get devices with the same values of this attribute.
SAME_ATTRIBUTE = f"{DOMAIN}/same-device-attribute"
TIME_LIMIT = f"{DOMAIN}/time-limit"  # of a PodGroup or a Job: how long each run may last: 2h
MOVE_AFTER = f"{DOMAIN}/move-after"  # of a PodGroup: how long it may run below its minimum: 5m
SUSPENDABLE = f"{DOMAIN}/suspendable"  # what a suspension costs the pod: 30s; "true": 30 s
TOPOLOGY_REQUIRED = f"{DOMAIN}/topology-required"
TOPOLOGY_PREFERRED = f"{DOMAIN}/topology-preferred"
ROLE_TOPOLOGY = f"{DOMAIN}/role-topology"  # on a controller: workers/each=node
SUBGROUP_TOPOLOGY = f"{DOMAIN}/subgroup-topology"  # on a PodGroup: tp=lockstep.dev/block
PLACEMENT = f"{DOMAIN}/placement"  # pack (fewest nodes of a domain), spread or balance
PACK, SPREAD, BALANCE = "pack", "spread", "balance"
# Either annotation adds a pod to a PodGroup; Volcano's operators write the second.
GROUP_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
TASK = "volcano.sh/task-spec"  # a pod's role in its job
# On a PodGroup: tasks to place together, and apart: "ps,worker;ps"
TASK_NEAR = "volcano.sh/task-topology-affinity"
TASK_APART = "volcano.sh/task-topology-anti-affinity"
PREEMPTABLE = "volcano.sh/preemptable"  # on pods and PodGroups: "false" means never evicted
COOLDOWN = "volcano.sh/cooldown-time"  # of a pod: run time before its gang may be evicted
# On pods, and on a namespace as the default for its gangs.
MIRROR = "kubernetes.io/config.mirror"  # annotation of the object that stands for a static pod
HOSTNAME = "kubernetes.io/hostname"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
USER = "lockstep.dev/user"  # of a pod or Job: who created it; the component users writes it
QUEUE_POLICY = (
    f"{DOMAIN}/queue-policy"  # on a Queue: what the CRD of Volcano has no fields for, as JSON
)
COMMAND = f"{DOMAIN}/command"  # on a Queue: uid of the last executed Command

ZONE = "topology.kubernetes.io/zone"
BLOCK = f"{DOMAIN}/block"
RACK = f"{DOMAIN}/rack"
# As a container's name: GPUs of the pod that only its init containers use.
REST_OF_POD = ""
# Levels that agents report from the GPUs' own data, used like node labels.
CLIQUE = f"{DOMAIN}/clique"
CLIQUES = (
    CLIQUE,
    "nvidia.com/gpu.clique",
)  # the second is a label of NVIDIA's GPU Feature Discovery
COMPUTE_DOMAIN = "compute-domain-default-channel.nvidia.com"  # DeviceClass of its workload's pods
CHASSIS = f"{DOMAIN}/chassis"
DOMAINS = f"{DOMAIN}/domains"  # annotation of a bound pod: its domains, widest first: z1/b2/r3
NODE = "node"  # the level between label domains and islands
NUMA = "numa"  # the GPUs of one NUMA node
PCIE_SWITCH = "pcie-switch"  # the GPUs below one PCIe switch
ISLAND = "island"
PARTS_OF_NODE = (ISLAND, NUMA, PCIE_SWITCH)

SCHEDULER = "lockstep"
AGENT_ACCOUNT = "lockstep-agent"
CENTRAL_ACCOUNT = "lockstep-central"
NAMESPACE = "lockstep-system"
CA_CONFIG_MAP = "lockstep-ca"  # the certificate authority of the scheduler, for agents and users
AUDIENCE = "lockstep-central"  # of the agents' tokens, so that no other server accepts them
COORDINATOR_AUDIENCE = "lockstep-coordinator"  # of the tokens of elastic Jobs' coordinators
