"""The largest values that are accepted from outside: from objects, which any user may create, and from agents.

Each limit is well above what a demanding user needs, and low enough that one object costs milliseconds and
cannot overflow a sum. What exceeds one is refused with a sentence that names the field and the limit. The CRDs
have the same limits where they concern Volcano's kinds; they are checked here again, because a cluster may have
older CRDs. docs/reference/limits.md is written from the comments that begin with #: , and has no reasons.
"""

# --- texts -------------------------------------------------------------------
#: characters of an annotation or text field that is read
# an annotation may have 256 KiB; patterns and messages see no more than this
TEXT = 1024
#: characters of a name, of a namespace, of a uid
# as in Kubernetes
NAME = 253
#: characters of a quantity, a duration or a time
# the longest useful ones have about 30
AMOUNT_TEXT = 64
#: characters of a CronJob's schedule
# a list of all 60 minutes has 170
SCHEDULE = 256
#: characters of a HyperNode's regular expression
# it matches node names
PATTERN = 512
#: levels of nesting in a Job, CronJob, JobFlow or JobTemplate
# a pod template has about 12
NESTING = 100

# --- amounts -----------------------------------------------------------------
#: bytes or units of one resource in a pod's request or on a node; more counts as this
# 128 TiB; the sums over 65,536 pods or nodes stay below 2^63
POD_AMOUNT = 2**47
#: GPUs, shares, MIG slices or NIC shares of a pod or node; more counts as this
# no machine has that many
DEVICES = 2**20
#: seconds of a duration
# a hundred years; later times cannot be represented
DURATION_S = 100 * 366 * 86400

# --- pods and nodes ----------------------------------------------------------
#: containers of a pod, and as many init containers
CONTAINERS = 512
#: distinct resources in one list (requests, allocatable, a queue's capability)
# each is a column of the table of free capacity
RESOURCES = 128
#: distinct resources that all nodes offer together; further ones count as absent
# each is a column of the table of free capacity
COLUMNS = 512
#: labels of a nodeSelector or matchLabels
SELECTOR = 256
#: terms of one kind of affinity or anti-affinity, and topology spread constraints
# each is compared with the pods or nodes of the whole cluster
TERMS = 64
#: different rules between pods (affinity, anti-affinity, spread) that pods of one namespace have and that are
#: compared with the same pods; a rule that names a label's value is compared with pods of that value only
# a gang's own rule names the gang; a pod above the limit waits
RULES_ALIKE = 64
#: expressions of one term or selector
# as above
EXPRESSIONS = 128
#: values or namespaces of one expression
# lists of machine types have about a thousand
VALUES = 4096
#: tolerations and scheduling gates of a pod, and taints of a node
TOLERATIONS = 256
#: ports of a pod on its node
# each is compared with those of other pods
PORTS = 1024
#: volumes of a pod, and of a Job
# the kubelet attaches about 256 at most
VOLUMES = 256
#: device claims of a pod
# a pod names a few
CLAIMS = 64
#: requests, constraints, selectors and devices of a ResourceClaim
# as in Kubernetes
CLAIM_DEVICES = 32
#: alternatives of a request for devices
# as in Kubernetes
CLAIM_ALTERNATIVES = 8
#: pods that use one ResourceClaim
# as in Kubernetes
CLAIM_CONSUMERS = 256
#: devices of a ResourceSlice
# as in Kubernetes
SLICE_DEVICES = 128
#: attributes of a device, and as many capacities
# as in Kubernetes
DEVICE_ATTRIBUTES = 48
#: taints of a device, and tolerations of a request
# as in Kubernetes
DEVICE_TAINTS = 16
#: characters of a CEL expression that selects devices
# published ones have 300; each is evaluated once per distinct device
CEL_TEXT = 1024
#: owner references of an object
OWNERS = 64
#: labels of an object
LABELS = 1024
#: characters of all labels of a pod
# each pod keeps its labels; pods have about 500
LABELS_TEXT = 8192
#: characters of the parts of a pod's spec that scheduling reads, as JSON: resources, selectors, affinity,
#: tolerations
# pods with equal ones share them; a list of a thousand machine types has 20,000
POD_TEXT = 2**15

# --- gangs, Jobs, queues, networks -------------------------------------------
#: pods of a task, a Job or a gang's minimum
# the largest known clusters run 150,000 pods
REPLICAS = 100_000
#: members of an elastic Job whose step and speed are shown
# 50 KiB in each of its coordinator's reports
REPORTED_MEMBERS = 1024
#: characters of the list of an elastic Job's members in its status
# 64 KiB hold 10,000 ranges
MEMBERS_TEXT = 2**16
#: most members of an elastic Job with --files
# a change of size is a write for each of them, and 20 are done in a second
FILED_MEMBERS = 1024
#: characters of an annotation that a member's file shows
# the list of 1,024 members has 2,500 at most
FILES_TEXT = 8192
#: seconds that a change of an elastic Job's size may cost
# a day; less is worth it
RESIZE_COST_S = 86_400
#: measured speeds of an elastic Job
# the ones measured last count
MEASURED_SPEEDS = 64
#: entries of an elastic Job's annotation lockstep.dev/speed
SPEEDS = 2000
#: characters of this annotation
# 2,000 entries need about 24,000
SPEED_TEXT = 2**15
#: different GPU models in it
# each has a table of its own
SPEED_MODELS = 16
#: different numbers of nodes in it
# each has a curve that every size is looked up in
SPEED_NODES = 64
#: pods of a Job that are being created at a time; the others follow
# their manifests take a tenth of a second of a cycle
CREATES = 1000
#: tasks of a Job, and entries of minTaskMember and dependsOn
# their templates fill the 1.5 MiB that an object may have
TASKS = 1000
#: tasks in task-topology-affinity and in task-topology-anti-affinity, each
# every pair of them is a rule
ROLES = 64
#: characters of these two annotations
# 64 tasks with the longest names that a task may have
TASK_TEXT = 8192
#: subgroup policies of a PodGroup
# each has a search of its own
SUBGROUPS = 64
#: lifecycle policies of a Job or task, and events of one
# there are 8 events
POLICIES = 64
#: plugins of a Job
# there are 11
PLUGINS = 32
#: arguments of a Job plugin
ARGUMENTS = 128
#: steps of a JobFlow, dependencies of a step, and probes of one kind
# each step is a Job
STEPS = 500
#: restarts that a Job may have
# as in Volcano
RETRIES = 2**31 - 1
#: members of a HyperNode
# a line for each node of a large cluster
MEMBERS = 10_000
#: tier of a HyperNode
# each tier is a level of the network tree
TIER = 100
#: levels of queues
# an organization has about five
QUEUE_DEPTH = 16

# --- agents' reports ---------------------------------------------------------
#: GPUs of a node in its agent's report
# sets of GPUs are bits of a 64-bit number; 32 are known
GPUS = 62
#: RDMA NICs of a node, virtual functions included
NICS = 512
#: MIG slices of a GPU
# hardware has 7 GPU instances of up to 8 compute instances
SLICES = 64
#: bytes of a GPU's memory
# 128 TiB
GPU_MEMORY = 2**47
#: handles, objects and shares of a NIC, and the sum over a node's NICs
# as in the kernel
NIC_AMOUNT = 2**31 - 1
#: grants, usage records and memory records in one report
# a node has some hundred pods
GRANTS = 16_384
#: containers whose use of GPUs is in one report
GPU_USES = 1024
#: devices of one grant
GRANT_DEVICES = 4096
