"""The largest values that are accepted from outside: from objects, which any user may create, and from agents.

Each limit is well above what a demanding user needs, and low enough that one object costs milliseconds and
cannot overflow a sum. What exceeds one is refused with a sentence that names the field and the limit. The CRDs
have the same limits where they concern Volcano's kinds; they are checked here again, because a cluster may have
older CRDs. docs/reference/limits.md is written from this table.
"""

from typing import NamedTuple


class Limit(NamedTuple):
    most: int
    what: str
    why: str


TABLE: list[Limit] = []


def _limit(most: int, what: str, why: str) -> int:
    TABLE.append(Limit(most, what, why))
    return most


# --- texts -------------------------------------------------------------------
TEXT = _limit(
    1024,
    "characters of an annotation or text field that is read",
    "an annotation may have 256 KiB; patterns and messages see no more than this",
)
NAME = _limit(253, "characters of a name, of a namespace, of a uid", "as in Kubernetes")
AMOUNT_TEXT = _limit(
    64, "characters of a quantity, a duration or a time", "the longest useful ones have about 30"
)
SCHEDULE = _limit(256, "characters of a CronJob's schedule", "a list of all 60 minutes has 170")
PATTERN = _limit(512, "characters of a HyperNode's regular expression", "it matches node names")
NESTING = _limit(
    100,
    "levels of nesting in a Job, CronJob, JobFlow or JobTemplate",
    "a pod template has about 12",
)
# --- amounts -----------------------------------------------------------------
POD_AMOUNT = _limit(
    2**47,
    "bytes or units of one resource in a pod's request or on a node; more counts as this",
    "128 TiB; the sums over 65,536 pods or nodes stay below 2^63",
)
DEVICES = _limit(
    2**20, "GPUs, shares, MIG slices or NIC shares of a pod or node; more counts as this",
    "no machine has that many",
)  # fmt: skip
DURATION_S = _limit(
    100 * 366 * 86400, "seconds of a duration", "a hundred years; later times cannot be represented"
)
# --- pods and nodes ----------------------------------------------------------
CONTAINERS = _limit(512, "containers of a pod, and as many init containers", "")
RESOURCES = _limit(
    128, "distinct resources in one list (requests, allocatable, a queue's capability)",
    "each is a column of the table of free capacity",
)  # fmt: skip
COLUMNS = _limit(
    512, "distinct resources that all nodes offer together; further ones count as absent",
    "each is a column of the table of free capacity",
)  # fmt: skip
SELECTOR = _limit(256, "labels of a nodeSelector or matchLabels", "")
TERMS = _limit(
    64, "terms of one kind of affinity or anti-affinity, and topology spread constraints",
    "each is compared with the pods or nodes of the whole cluster",
)  # fmt: skip
RULES_ALIKE = _limit(
    64, "different rules between pods (affinity, anti-affinity, spread) that pods of one namespace have and that are "
    "compared with the same pods; a rule that names a label's value is compared with pods of that value only",
    "a gang's own rule names the gang; a pod above the limit waits",
)  # fmt: skip
EXPRESSIONS = _limit(128, "expressions of one term or selector", "as above")
VALUES = _limit(
    4096, "values or namespaces of one expression", "lists of machine types have about a thousand"
)
TOLERATIONS = _limit(256, "tolerations of a pod, and taints of a node", "")
PORTS = _limit(1024, "ports of a pod on its node", "each is compared with those of other pods")
VOLUMES = _limit(256, "volumes of a pod, and of a Job", "the kubelet attaches about 256 at most")
CLAIMS = _limit(64, "device claims of a pod", "a pod names a few")
CLAIM_DEVICES = _limit(
    32, "requests, constraints, selectors and devices of a ResourceClaim", "as in Kubernetes"
)
CLAIM_ALTERNATIVES = _limit(8, "alternatives of a request for devices", "as in Kubernetes")
CLAIM_CONSUMERS = _limit(256, "pods that use one ResourceClaim", "as in Kubernetes")
SLICE_DEVICES = _limit(128, "devices of a ResourceSlice", "as in Kubernetes")
DEVICE_ATTRIBUTES = _limit(48, "attributes of a device, and as many capacities", "as in Kubernetes")
DEVICE_TAINTS = _limit(16, "taints of a device, and tolerations of a request", "as in Kubernetes")
CEL_TEXT = _limit(
    1024, "characters of a CEL expression that selects devices",
    "published ones have 300; each is evaluated once per distinct device",
)  # fmt: skip
OWNERS = _limit(64, "owner references of an object", "")
LABELS = _limit(1024, "labels of an object", "")
LABELS_TEXT = _limit(
    8192, "characters of all labels of a pod", "each pod keeps its labels; pods have about 500"
)
POD_TEXT = _limit(
    2**15, "characters of the parts of a pod's spec that scheduling reads, as JSON: resources, selectors, affinity, "
    "tolerations", "pods with equal ones share them; a list of a thousand machine types has 20,000",
)  # fmt: skip
# --- gangs, Jobs, queues, networks -------------------------------------------
REPLICAS = _limit(
    100_000,
    "pods of a task, a Job or a gang's minimum",
    "the largest known clusters run 150,000 pods",
)
REPORTED_MEMBERS = _limit(
    1024, "members of an elastic Job whose step and speed are shown", "50 KiB in each of its coordinator's reports",
)  # fmt: skip
MEMBERS_TEXT = _limit(
    2**16, "characters of the list of an elastic Job's members in its status",
    "64 KiB hold 10,000 ranges",
)  # fmt: skip
FILED_MEMBERS = _limit(
    1024, "most members of an elastic Job with --files",
    "a change of size is a write for each of them, and 20 are done in a second",
)  # fmt: skip
FILES_TEXT = _limit(
    8192, "characters of an annotation that a member's file shows",
    "the list of 1,024 members has 2,500 at most",
)  # fmt: skip
RESIZE_COST_S = _limit(
    86_400, "seconds that a change of an elastic Job's size may cost", "a day; less is worth it"
)
MEASURED_SPEEDS = _limit(64, "measured speeds of an elastic Job", "the ones measured last count")
SPEEDS = _limit(2000, "entries of an elastic Job's annotation lockstep.dev/speed", "")
SPEED_TEXT = _limit(2**15, "characters of this annotation", "2,000 entries need about 24,000")
SPEED_MODELS = _limit(16, "different GPU models in it", "each has a table of its own")
SPEED_NODES = _limit(
    64, "different numbers of nodes in it", "each has a curve that every size is looked up in"
)
CREATES = _limit(
    1000, "pods of a Job that are being created at a time; the others follow",
    "their manifests take a tenth of a second of a cycle",
)  # fmt: skip
TASKS = _limit(
    1000, "tasks of a Job, and entries of minTaskMember and dependsOn",
    "their templates fill the 1.5 MiB that an object may have",
)  # fmt: skip
ROLES = _limit(
    64, "tasks in task-topology-affinity and in task-topology-anti-affinity, each",
    "every pair of them is a rule",
)  # fmt: skip
TASK_TEXT = _limit(
    8192,
    "characters of these two annotations",
    "64 tasks with the longest names that a task may have",
)
SUBGROUPS = _limit(64, "subgroup policies of a PodGroup", "each has a search of its own")
POLICIES = _limit(
    64, "lifecycle policies of a Job or task, and events of one", "there are 8 events"
)
PLUGINS = _limit(32, "plugins of a Job", "there are 11")
ARGUMENTS = _limit(128, "arguments of a Job plugin", "")
STEPS = _limit(
    500, "steps of a JobFlow, dependencies of a step, and probes of one kind",
    "each step is a Job",
)  # fmt: skip
RETRIES = _limit(2**31 - 1, "restarts that a Job may have", "as in Volcano")
MEMBERS = _limit(10_000, "members of a HyperNode", "a line for each node of a large cluster")
TIER = _limit(100, "tier of a HyperNode", "each tier is a level of the network tree")
QUEUE_DEPTH = _limit(16, "levels of queues", "an organization has about five")
# --- agents' reports ---------------------------------------------------------
GPUS = _limit(
    62,
    "GPUs of a node in its agent's report",
    "sets of GPUs are bits of a 64-bit number; 32 are known",
)
NICS = _limit(512, "RDMA NICs of a node, virtual functions included", "")
SLICES = _limit(
    64, "MIG slices of a GPU", "hardware has 7 GPU instances of up to 8 compute instances"
)
GPU_MEMORY = _limit(2**47, "bytes of a GPU's memory", "128 TiB")
NIC_AMOUNT = _limit(
    2**31 - 1,
    "handles, objects and shares of a NIC, and the sum over a node's NICs",
    "as in the kernel",
)
GRANTS = _limit(
    16_384, "grants, usage records and memory records in one report", "a node has some hundred pods"
)
GPU_USES = _limit(1024, "containers whose use of GPUs is in one report", "")
GRANT_DEVICES = _limit(4096, "devices of one grant", "")
