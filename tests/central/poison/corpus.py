"""Hostile objects: each was found to stop the scheduler, or is of the kind that could. A row says the watched kind,
the object, and the beginning of what its owner is told ("" where it is valid and only must do no harm)."""

from typing import NamedTuple

from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import container

JOBS, GROUPS, FLOWS = (
    "jobs.batch.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "jobflows.flow.volcano.sh",
)
QUEUES, HYPERNODES = "queues.scheduling.volcano.sh", "hypernodes.topology.volcano.sh"
CLAIMS, CLASSES = "persistentvolumeclaims", "storageclasses.storage.k8s.io"
CAPACITIES = "csistoragecapacities.storage.k8s.io"
CRONS, TEMPLATES = "cronjobs.batch.volcano.sh", "jobtemplates.flow.volcano.sh"
DIGITS, STARS = "9" * 200_000, "*" * 30 + "x"
OURS = {"schedulerName": "lockstep"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Poison(NamedTuple):
    what: str
    kind: str
    raw: Json
    says: str = ""


def pod(annotations: Json | None = None, labels: Json | None = None, **spec: object) -> Json:
    meta = {"name": "bad-0", "namespace": "evil", "uid": "u-bad", "annotations": annotations or {}}
    given: Json = {"containers": [container(gpu=1)], **OURS, **spec}
    return {
        "metadata": {**meta, "labels": labels or {}},
        "spec": given,
        "status": {"phase": "Pending"},
    }


def bound(*needs: Json, node: str = "n0") -> Json:
    """A pod of another scheduler that runs on the healthy gang's node."""
    raw = pod(containers=[asking(**each) for each in needs], nodeName=node)
    raw["spec"]["schedulerName"] = "default-scheduler"
    raw["status"]["phase"] = "Running"
    return raw


def asking(**amounts: str) -> Json:
    return {"name": "c", "resources": {"requests": amounts}}


def objects(kind: str, **spec: object) -> Json:
    return {"metadata": {"name": "bad", "namespace": "evil", "uid": "u-bad"}, "spec": spec}


def group(annotations: Json | None = None, **spec: object) -> Json:
    raw = objects("PodGroup", **spec)
    raw["metadata"]["annotations"] = annotations or {}
    return raw


def marked(raw: Json, annotations: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "annotations": annotations}}


def job(*tasks: Json, **spec: object) -> Json:
    return objects("Job", tasks=list(tasks), **spec)


def task(name: str = "w", replicas: object = 1, **more: object) -> Json:
    template = {"spec": {"containers": [container()]}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def affinity(kind: str, when: str, terms: list[Json]) -> Json:
    return {kind: {when: terms}}


def near(number: int) -> Json:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"a{number}"}}}


def chain(length: int) -> list[Json]:
    steps: list[Json] = [{"name": "s0"}]
    steps += [{"name": f"s{i}", "dependsOn": {"targets": [f"s{i - 1}"]}} for i in range(1, length)]
    return steps


def nested(depth: int) -> Json:
    found: Json = {}
    for _ in range(depth):
        found = {"a": found}
    return found


PODS = [
    Poison("runs-for of digits", "pods", pod({names.RUNS_FOR: DIGITS}), f"annotation {names.RUNS_FOR}"),
    Poison("runs-for of hours", "pods", pod({names.RUNS_FOR: "1h" * 100_000}), f"annotation {names.RUNS_FOR}"),
    Poison("runs-for of a million years", "pods", pod({names.RUNS_FOR: "9999999999h"}), f"annotation {names.RUNS_FOR}"),
    Poison("gpu-memory of digits", "pods", pod({names.GPU_MEMORY: DIGITS}), f"annotation {names.GPU_MEMORY}"),
    Poison("gpu-memory-least of digits", "pods", pod({names.GPU_LEAST: DIGITS + "x"}), f"annotation {names.GPU_LEAST}"),
    Poison("gpu-model of stars", "pods", pod({names.GPU_MODEL: STARS})),
    Poison("gpu-model of many stars", "pods", pod({names.GPU_MODEL: "*a" * 511})),
    Poison("gpu-model too long", "pods", pod({names.GPU_MODEL: "*" * 200_000}), names.GPU_MODEL),
    Poison("gang-min of digits", "pods", pod({names.GANG_MIN: DIGITS}), f"annotation {names.GANG_MIN}"),
    Poison("a gang of two thousand million", "pods", pod({names.GANG_MIN: "2000000000"}), f"annotation {names.GANG_MIN}"),
    Poison("rdma handles of digits", "pods", pod({names.RDMA_HANDLES: DIGITS}), f"annotation {names.RDMA_HANDLES}"),
    Poison("checkpoint of digits", "pods", pod({names.CHECKPOINT: DIGITS})),
    Poison("checkpoint in the year 1", "pods", pod({names.CHECKPOINT: "0001-01-01T00:00:00"})),
    Poison("queue of 200,000 characters", "pods", pod({names.QUEUE_NAME: "q" * 200_000}), names.QUEUE_NAME),
    Poison("gang of 200,000 characters", "pods", pod({names.GROUP_NAMES[0]: "g" * 200_000}), names.GROUP_NAMES[0]),
    Poison("task of 200,000 characters", "pods", pod({names.TASK: "g" * 200_000}), names.TASK),
    Poison("index of digits", "pods", pod({"volcano.sh/task-index": DIGITS})),
    Poison("tier of digits", "pods", pod({names.TOPOLOGY_TIER: DIGITS}), f"annotation {names.TOPOLOGY_TIER}"),
    Poison(
        "5E of memory twice",
        "pods",
        pod(containers=[asking(memory="5E"), asking(memory="5E")]),
        "memory: 128Ti or more; no machine has that much",
    ),
    Poison("9E of everything", "pods", pod(containers=[asking(memory="9E", cpu="9E", **{names.GPU: "9E"})] * 9), "or more; no machine has that much"),
    Poison("9E of memory running", "pods", bound(*[{"memory": "9E"}] * 9)),
    Poison("9E of GPUs running", "pods", bound({names.GPU: "9000000000000000000"})),
    Poison("overhead of 9E", "pods", pod(overhead={"memory": "9E", "cpu": "9E"}), "or more"),
    Poison("a pod level of 9E", "pods", pod(resources={"requests": {"memory": "9E", "cpu": "9E"}}), "or more"),
    Poison("quantity of digits", "pods", pod(containers=[asking(memory=DIGITS)]), "spec.containers[0].resources.requests.memory"),
    Poison("quantity of digits and a letter", "pods", pod(containers=[asking(cpu="1" * 4000 + "q")]), "spec.containers[0]"),
    Poison("600 containers", "pods", pod(containers=[container()] * 600), "spec.containers: 600 entries; at most 512"),
    Poison("600 init containers", "pods", pod(initContainers=[container()] * 600), "spec.initContainers"),
    Poison("5,000 made-up resources", "pods", pod(containers=[asking(**{f"example.com/r{i}": "1" for i in range(5000)})]), "spec.containers"),
    Poison("5,000 made-up resources running", "pods", bound({f"example.com/r{i}": "1" for i in range(5000)})),
    Poison("70 terms of affinity", "pods", pod(affinity=affinity("podAffinity", REQUIRED, [near(i) for i in range(70)])), "spec.affinity.podAffinity"),
    Poison("5,000 terms of anti-affinity", "pods", pod(affinity=affinity("podAntiAffinity", REQUIRED, [near(i) for i in range(5000)])), "spec.affinity"),
    Poison("5,000 preferences", "pods", pod(affinity=affinity("podAffinity", PREFERRED, [{"weight": 1, "podAffinityTerm": near(i)} for i in range(5000)])), "spec.affinity"),
    Poison("5,000 node terms", "pods", pod(affinity=affinity("nodeAffinity", REQUIRED, {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 5000})), "spec.affinity"),  # type: ignore[arg-type]
    Poison("Gt of digits", "pods", pod(affinity=affinity("nodeAffinity", REQUIRED, {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": [DIGITS]}]}]})), "spec.affinity"),  # type: ignore[arg-type]
    Poison("5,000 spread constraints", "pods", pod(topologySpreadConstraints=[{"maxSkew": 1, **near(i)} for i in range(5000)]), "spec.topologySpreadConstraints"),
    Poison("a skew of 2^63", "pods", pod(topologySpreadConstraints=[{"maxSkew": 2**63, **near(0)}]), "spec.topologySpreadConstraints"),
    Poison("a weight of 2^63", "pods", pod(affinity=affinity("podAffinity", PREFERRED, [{"weight": 2**63, "podAffinityTerm": near(0)}])), "spec.affinity"),
    Poison("5,000 tolerations", "pods", pod(tolerations=[{"key": f"k{i}"} for i in range(5000)]), "spec.tolerations"),
    Poison("5,000 ports", "pods", pod(containers=[{**container(), "ports": [{"hostPort": i + 1} for i in range(5000)]}]), "spec.containers: 5000 ports"),
    Poison("a port of 2^63", "pods", pod(containers=[{**container(), "ports": [{"hostPort": 2**63}]}]), "spec.containers.ports"),
    Poison("5,000 claims", "pods", pod(volumes=[{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(5000)]), "spec.volumes"),
    Poison("5,000 labels", "pods", pod(labels={f"k{i}": "v" for i in range(5000)}), "metadata.labels"),
    Poison("5,000 labels in the selector", "pods", pod(nodeSelector={f"k{i}": "v" for i in range(5000)}), "spec.nodeSelector"),
    Poison("a priority of 2^62", "pods", pod(priority=2**62)),
    Poison("5,000 owners", "pods", {**pod(), "metadata": {**pod()["metadata"], "ownerReferences": [{"kind": "Job", "uid": "u"}] * 5000}}, "pod evil/bad-0: metadata.ownerReferences"),
    Poison("a name of 200,000 characters", "pods", {**pod(), "metadata": {"name": "n" * 200_000, "namespace": "evil", "uid": "u"}}, "pod evil/nnn"),
]  # fmt: skip

GANGS = [
    Poison("4,000 tasks in affinity", GROUPS, group({names.TASK_NEAR: ",".join(f"t{i}" for i in range(4000))}), f"annotation {names.TASK_NEAR}"),
    Poison("64 tasks in affinity", GROUPS, group({names.TASK_NEAR: ",".join(f"t{i}" for i in range(64))})),
    Poison("300,000,000 subgroups", GROUPS, group(subGroupPolicy=[{"name": "a", "minSubGroups": 300_000_000}]), "spec.subGroupPolicy[0].minSubGroups"),
    Poison("100,000 subgroups of 100,000", GROUPS, group(subGroupPolicy=[{"name": "a", "subGroupSize": 100_000, "minSubGroups": 100_000}]), "spec.subGroupPolicy[0].minSubGroups"),
    Poison("100,000 subgroups", GROUPS, group(subGroupPolicy=[{"name": "a", "minSubGroups": 100_000}])),
    Poison("5,000 subgroup policies", GROUPS, group(subGroupPolicy=[{"name": f"a{i}"} for i in range(5000)]), "spec.subGroupPolicy: 5000 entries"),
    Poison("2,000,000,000 members", GROUPS, group(minMember=2_000_000_000), "spec.minMember"),
    Poison("100,000 members", GROUPS, group(minMember=100_000)),
    Poison("5,000 tasks", GROUPS, group(minTaskMember={f"t{i}": 1 for i in range(5000)}), "spec.minTaskMember"),
    Poison("5,000 resources", GROUPS, group(minResources={f"example.com/r{i}": 1 for i in range(5000)}), "spec.minResources"),
    Poison("9E of minResources", GROUPS, group(minResources={"memory": "9E", "cpu": "9E", names.GPU: "9E"})),
    Poison("a level of 200,000 characters", GROUPS, group(networkTopology={"highestTierName": "x" * 200_000}), "highestTierName"),
    Poison("a tier of 2^62", GROUPS, group(networkTopology={"highestTierAllowed": 2**62}), "spec.networkTopology"),
]  # fmt: skip

BATCH = [
    Poison("50,000,000 replicas", JOBS, job(task(replicas=50_000_000)), "spec.tasks[0].replicas"),
    Poison("100,000 replicas", JOBS, job(task(replicas=100_000))),
    Poison("100,000 replicas in each of 8 tasks", JOBS, job(*[task(f"t{i}", 100_000) for i in range(8)]), "spec.tasks: 800000 pods"),
    Poison("50,000,000 replicas by kubectl scale", JOBS, job(task(), replicas=50_000_000), "spec.replicas"),
    Poison("5,000 tasks", JOBS, job(*[task(f"t{i}") for i in range(5000)]), "spec.tasks: 5000 entries"),
    Poison("500 tasks in a chain", JOBS, job(task("t0"), *[task(f"t{i}", dependsOn={"name": [f"t{i - 1}"]}) for i in range(1, 500)])),
    Poison("5,000 dependencies", JOBS, job(task(dependsOn={"name": [f"t{i}" for i in range(5000)]})), "spec.tasks[0].dependsOn.name"),
    Poison("5,000 policies", JOBS, job(task(), policies=[{"event": "PodFailed", "action": "AbortJob"}] * 5000), "spec.policies"),
    Poison("5,000 plugins", JOBS, job(task(), plugins={f"p{i}": [] for i in range(5000)}), "spec.plugins"),
    Poison("5,000 arguments", JOBS, job(task(), plugins={"svc": ["--x"] * 5000}), "spec.plugins.svc"),
    Poison("a port of digits", JOBS, job(task("worker"), task("master"), plugins={"mpi": ["--port=" + "9" * 1000]}), "spec.plugins.mpi"),
    Poison("5,000 volumes", JOBS, job(task(), volumes=[{"mountPath": f"/{i}"} for i in range(5000)]), "spec.volumes"),
    Poison("an estimate of digits", JOBS, job(task(), runningEstimate=DIGITS), "spec.runningEstimate"),
    Poison("a template 900 levels deep", JOBS, job(task(template={"spec": {"containers": [container()], "x": nested(900)}})), "the object is nested"),
    Poison("a partition of 2^31", JOBS, job(task(replicas=4, partitionPolicy={"totalPartitions": 2**31 - 1, "partitionSize": 2**31 - 1})), "spec.tasks[0].partitionPolicy"),
    Poison("5,000 steps", FLOWS, objects("JobFlow", flows=chain(5000)), "spec.flows: 5000 entries"),
    Poison("500 steps in a chain", FLOWS, objects("JobFlow", flows=chain(500))),
    Poison("5,000 dependencies of a step", FLOWS, objects("JobFlow", flows=[{"name": "a", "dependsOn": {"targets": ["a"] * 5000}}]), "spec.flows[0].dependsOn.targets"),
    Poison("a schedule of commas", CRONS, objects("CronJob", schedule="1," * 100_000 + "1 * * * *", jobTemplate={"spec": {}}), "schedule"),
    Poison("an interval of digits", CRONS, objects("CronJob", schedule="@every " + "9" * 240 + "h", jobTemplate={"spec": {}}), "spec.schedule"),
    Poison("a zone of 200,000 characters", CRONS, objects("CronJob", schedule="* * * * *", timeZone="z" * 200_000, jobTemplate={"spec": {}}), "timeZone"),
    Poison("a zone outside", CRONS, objects("CronJob", schedule="* * * * *", timeZone="../../../etc/passwd", jobTemplate={"spec": {}}), "spec.timeZone"),
    Poison("each minute of one month", CRONS, objects("CronJob", schedule="* * * 2 *", jobTemplate={"spec": {"tasks": []}})),
    Poison("a template 900 levels deep", TEMPLATES, objects("JobTemplate", x=nested(900)), "JobTemplate evil/bad: the object is nested"),
]  # fmt: skip

CLUSTER = [
    Poison("an exponential pattern", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": "Node", "selector": {"regexMatch": {"pattern": "(n*)*(n*)*(n*)*x"}}}])),
    Poison("a pattern of 200,000 characters", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": "Node", "selector": {"regexMatch": {"pattern": "n" * 200_000}}}]), "pattern"),
    Poison("a pattern that is huge when repeated", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": "Node", "selector": {"regexMatch": {"pattern": "((n{900}){900}){900}"}}}])),
    Poison("20,000 members", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}] * 20_000), "spec.members: 20000 entries"),
    Poison("a tier of 2^62", HYPERNODES, objects("HyperNode", tier=2**62), "spec.tier"),
    Poison("a queue of 9E", QUEUES, objects("Queue", capability={"memory": "9E", "cpu": "9E", names.GPU: "9E"}, deserved={"cpu": "9E"})),
    Poison("a queue of 5,000 resources", QUEUES, objects("Queue", capability={f"example.com/r{i}": "1" for i in range(5000)}), "spec.capability"),
    Poison("a queue of itself", QUEUES, objects("Queue", parent="bad")),
    Poison("a priority of 2^62", QUEUES, objects("Queue", priority=2**62), "spec.priority"),
    Poison("a priority class of 2^64", "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "p"}, "value": 2**64}, "PriorityClass"),
    Poison("a node of 9E", "nodes", {"metadata": {"name": "big"}, "status": {"allocatable": {"memory": "9E", "cpu": "9E", "pods": "9E", names.GPU: "9E"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
    Poison("a node of 5,000 resources", "nodes", {"metadata": {"name": "big"}, "status": {"allocatable": {f"example.com/r{i}": "1" for i in range(5000)}}}, "node big: status.allocatable"),
    Poison("a node of 5,000 labels", "nodes", {"metadata": {"name": "big", "labels": {f"k{i}": "v" for i in range(5000)}}}, "node big: metadata.labels"),
    Poison("a node of 5,000 taints", "nodes", {"metadata": {"name": "big"}, "spec": {"taints": [{"key": f"k{i}", "effect": "NoSchedule"} for i in range(5000)]}}, "node big: spec.taints"),
    Poison("5,000 labels of a namespace", "namespaces", {"metadata": {"name": "evil", "labels": {f"k{i}": "v" for i in range(5000)}}}, "namespace evil: metadata.labels"),
    Poison("a budget of 5,000 expressions", "poddisruptionbudgets.policy", {"metadata": {"name": "b", "namespace": "evil"}, "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 5000}}}, "PodDisruptionBudget evil/b: spec.selector"),
    Poison("a volume of 9E", "persistentvolumes", {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "9E"}}}),
    Poison("a volume of digits", "persistentvolumes", {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": DIGITS}}}, "PersistentVolume v"),
    Poison("a volume for 5,000 node terms", "persistentvolumes", {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{}] * 5000}}}}, "PersistentVolume v: spec.nodeAffinity"),
    Poison("a claim of digits", CLAIMS, objects("Claim", resources={"requests": {"storage": DIGITS}}), "PersistentVolumeClaim evil/bad: spec.resources.requests.storage"),
    Poison("a claim of 9E", CLAIMS, objects("Claim", resources={"requests": {"storage": "9E"}})),
    Poison("a claim with 5,000 expressions", CLAIMS, objects("Claim", selector={"matchExpressions": [{"key": "a", "operator": "Exists"}] * 5000}), "spec.selector"),
    Poison("a claim with 5,000 labels to match", CLAIMS, objects("Claim", selector={"matchLabels": {f"k{i}": "v" for i in range(5000)}}), "spec.selector"),
    Poison("a claim with 5,000 access modes", CLAIMS, objects("Claim", accessModes=["ReadWriteOnce"] * 5000), "spec.accessModes: 5000 entries"),
    Poison("a claim of a volume of 200,000 characters", CLAIMS, objects("Claim", volumeName="v" * 200_000), "volumeName: 200000 characters"),
    Poison("a claim of a class of 200,000 characters", CLAIMS, objects("Claim", storageClassName="c" * 200_000), "storageClassName: 200000 characters"),
    Poison("a claim whose node is a list", CLAIMS, marked(objects("Claim"), {"volume.kubernetes.io/selected-node": ["n0"]}), "selected-node"),
    Poison("a claim that pods of everybody name", CLAIMS, {"metadata": {"name": "bad", "namespace": "ns", "uid": "u-bad", "deletionTimestamp": "x"}, "spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}),
    Poison("a class of 5,000 topologies", CLASSES, {"metadata": {"name": "c"}, "provisioner": "p", "allowedTopologies": [{"matchLabelExpressions": []}] * 5000}, "StorageClass c: allowedTopologies"),
    Poison("a class of a provisioner that is a map", CLASSES, {"metadata": {"name": "c"}, "provisioner": nested(900)}, "StorageClass c: provisioner"),
    Poison("capacity of digits", CAPACITIES, {"metadata": {"name": "c", "namespace": "evil"}, "storageClassName": "c", "capacity": DIGITS}, "CSIStorageCapacity evil/c: capacity"),
    Poison("a HyperNode of 5,000 labels to match", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": "Node", "selector": {"labelMatch": {"matchLabels": {f"k{i}": "v" for i in range(5000)}}}}]), "matchLabels"),
    Poison("a HyperNode of 5,000 expressions", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": "Node", "selector": {"labelMatch": {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 5000}}}]), "spec.members[0].selector.labelMatch"),
    Poison("a HyperNode of itself", HYPERNODES, objects("HyperNode", tier=2, members=[{"type": "HyperNode", "selector": {"exactMatch": {"name": "bad"}}}])),
    Poison("a HyperNode of what is not there", HYPERNODES, objects("HyperNode", tier=2, members=[{"type": "HyperNode", "selector": {"exactMatch": {"name": f"h{i}"}}} for i in range(5000)])),
    Poison("a HyperNode with members that are texts", HYPERNODES, objects("HyperNode", tier=1, members=["n0", "n1"]), "spec.members"),
    Poison("a HyperNode of a kind of digits", HYPERNODES, objects("HyperNode", tier=1, members=[{"type": DIGITS, "selector": {"exactMatch": {"name": "n0"}}}]), "type"),
    Poison("2^63 volumes on a node", "csinodes.storage.k8s.io", {"metadata": {"name": "n0"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 2**63}}]}}, "CSINode n0"),
]  # fmt: skip


def elastic(annotations: Json, replicas: int = 8, *arguments: str, **status: object) -> Json:
    """An elastic Job."""
    raw = job(
        task(replicas=replicas, minAvailable=1),
        plugins={"elastic": list(arguments)},
        minAvailable=1,
    )
    raw["metadata"]["annotations"] = annotations
    return {**raw, "status": status}


def speeds(nodes: int, sizes: int) -> str:
    """So many numbers of nodes, so many sizes for each of them."""
    points = (
        (1 + at * 99_999 // sizes, node) for node in range(1, nodes + 1) for at in range(sizes)
    )
    return " ".join(f"{size}/{node}:{size}" for size, node in points)


def replicated(**job: object) -> Json:
    return objects(
        "JobSet", replicatedJobs=[{"name": "w", "template": {"spec": {"parallelism": 2}}, **job}]
    )


JOBSETS, TFJOBS = "jobsets.jobset.x-k8s.io", "tfjobs.kubeflow.org"
LWS, RAY, NATIVE = (
    "leaderworkersets.leaderworkerset.x-k8s.io",
    "rayclusters.ray.io",
    "podgroups.scheduling.k8s.io",
)
LONG = "x" * 200_000
GANG_POLICY = {"gang": {"minCount": 2}}

ELASTIC = [
    Poison("a size of 200,000 digits", JOBS, elastic({names.SPEED: f"1:1 {DIGITS}:2"}), f"annotation {names.SPEED}: 200006 characters"),
    Poison("a size of 400 digits", JOBS, elastic({names.SPEED: "1:1 " + "9" * 400 + ":2"}), f"annotation {names.SPEED}"),
    Poison("sizes of 400 digits", JOBS, elastic({names.SPEED: "1" + "0" * 400 + ":1 2" + "0" * 400 + ":2"}), f"annotation {names.SPEED}"),
    Poison("a speed of 10^308", JOBS, elastic({names.SPEED: "1:1e308 2:1e-308 3:1e308"}), f"annotation {names.SPEED}"),
    Poison("speeds on 1,000 numbers of nodes", JOBS, elastic({names.SPEED: speeds(1000, 1)}, 100_000), f"annotation {names.SPEED}"),
    Poison("speeds of 100,000 members", JOBS, elastic({names.SPEED: speeds(64, 31)}, 100_000)),
    Poison("a cost of digits", JOBS, elastic({names.RESIZE_COST: DIGITS}), f"annotation {names.RESIZE_COST}"),
    Poison("a step of digits", JOBS, elastic({}, 8, "--step=" + "9" * 4000), "spec.plugins.elastic"),
    Poison("a step of 0", JOBS, elastic({names.SPEED: "1:1 2:2"}, 8, "--step=0"), "spec.plugins.elastic"),
    Poison("members of digits", JOBS, elastic({}, 8, elastic={"w": {"members": DIGITS}})),
    Poison("100,000 ranges of members", JOBS, elastic({}, 8, elastic={"w": {"members": ",".join(f"{i}-{i + 1}" for i in range(0, 200_000, 2))}})),
    Poison("members up to 2^63", JOBS, elastic({}, 8, elastic={"w": {"members": f"0-{2**63}"}})),
]  # fmt: skip

CONTROLLERS = [
    Poison("10^9 replicas", JOBSETS, replicated(replicas=10**9), "spec.replicatedJobs[0].replicas"),
    Poison("100,000 Jobs of 100,000 pods", JOBSETS, replicated(replicas=100_000, template={"spec": {"parallelism": 100_000}}), "JobSet: 10000000000 pods"),
    Poison("5,000 replicatedJobs", JOBSETS, objects("JobSet", replicatedJobs=[{"name": f"w{i}"} for i in range(5000)]), "spec.replicatedJobs"),
    Poison("a replicatedJob with a long name", JOBSETS, replicated(name=LONG), "name: 200000 characters"),
    Poison("levels of digits", JOBSETS, marked(replicated(), {names.ROLE_TOPOLOGY: DIGITS}), names.ROLE_TOPOLOGY),
    Poison("levels of nobody", JOBSETS, marked(replicated(), {names.ROLE_TOPOLOGY: ";" * 8000 + "w=" + LONG[:100]}), f"annotation {names.ROLE_TOPOLOGY}"),
    Poison("what is no JobSet", JOBSETS, objects("JobSet", replicatedJobs=[{"name": "w", "template": {"spec": "x"}}]), "spec"),
    Poison("a role with a long name", TFJOBS, objects("TFJob", tfReplicaSpecs={LONG: {"replicas": 1}}), "TFJob: the name of a role: 200000 characters"),
    Poison("5,000 roles", TFJOBS, objects("TFJob", tfReplicaSpecs={f"r{i}": {} for i in range(5000)}), "spec.tfReplicaSpecs"),
    Poison("a minimum of 2^63", TFJOBS, objects("TFJob", tfReplicaSpecs={}, runPolicy={"schedulingPolicy": {"minAvailable": 2**63}}), "schedulingPolicy.minAvailable"),
    Poison("2^63 hosts", RAY, objects("RayCluster", workerGroupSpecs=[{"groupName": "g", "replicas": 1, "numOfHosts": 2**63}]), "spec.workerGroupSpecs[0].numOfHosts"),
    Poison("groups of -1", LWS, objects("LeaderWorkerSet", leaderWorkerTemplate={"size": -1}), "spec.leaderWorkerTemplate.size"),
    Poison("groups of 10^9", LWS, objects("LeaderWorkerSet", leaderWorkerTemplate={"size": 10**9}), "spec.leaderWorkerTemplate.size"),
    Poison("a minimum of 2^31", NATIVE, objects("PodGroup", schedulingPolicy={"gang": {"minCount": 2**31 - 1}}), "spec.schedulingPolicy.gang.minCount"),
    Poison("a level of 200,000 characters", NATIVE, objects("PodGroup", schedulingPolicy=GANG_POLICY, schedulingConstraints={"topology": [{"key": LONG}]}), "key: 200000 characters"),
    Poison("5,000 levels", NATIVE, objects("PodGroup", schedulingPolicy=GANG_POLICY, schedulingConstraints={"topology": [{"key": "k"}] * 5000}), "spec.schedulingConstraints.topology"),
    Poison("a class of 200,000 characters", NATIVE, objects("PodGroup", schedulingPolicy=GANG_POLICY, priorityClassName=LONG), "priorityClassName"),
    Poison("a mode of many keys", NATIVE, objects("PodGroup", schedulingPolicy=GANG_POLICY, disruptionMode={LONG: {}}), "spec.disruptionMode"),
    Poison("a group of itself", NATIVE, objects("PodGroup", schedulingPolicy=GANG_POLICY, parentCompositePodGroupName="bad"), ""),
]  # fmt: skip

CORPUS = [*PODS, *GANGS, *BATCH, *CLUSTER, *ELASTIC, *CONTROLLERS]
