"""Objects that contradict themselves, each with what `kubectl apply` must say about it."""

from typing import Any

Json = dict[str, Any]
Case = tuple[str, Json, str]  # name, object, part of the refusal

TOPOLOGY = "topology.volcano.sh/v1alpha1"
BATCH, SCHEDULING = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
TEMPLATE: Json = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def of(
    version: str, kind: str, name: str, spec: Json, annotations: dict[str, str] | None = None
) -> Json:
    meta: Json = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def task(name: str, **more: Any) -> Json:
    return {"name": name, "replicas": 1, "template": TEMPLATE, **more}


def job(name: str, *tasks: Json, **spec: Any) -> Json:
    return of(BATCH, "Job", name, {"tasks": list(tasks) or [task("w")], **spec})


def queue(name: str, **spec: Any) -> Json:
    return of(SCHEDULING, "Queue", name, spec)


def queue_at(path: str, weights: str = "1/1") -> Json:
    notes = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    return of(SCHEDULING, "Queue", "a", {}, notes)


def policy(action: str = "AbortJob", **more: Any) -> Json:
    return {"action": action, **more}


def hypernode(name: str, kind: str, **selector: Any) -> Json:
    spec = {"tier": 1, "members": [{"type": kind, "selector": selector}]}
    return of(TOPOLOGY, "HyperNode", name, spec)


def flow(name: str, *steps: Json) -> Json:
    return of("flow.volcano.sh/v1alpha1", "JobFlow", name, {"flows": list(steps)})


def asking(part: str = "requests", **resources: str | int) -> Json:
    container = {"name": "c", "image": "i", "resources": {part: resources}}
    return {"template": {"spec": {"containers": [container]}}}


def _negative(where: str) -> Json:
    """A task with an amount below zero elsewhere than in a container's requests."""
    amounts = {"resources": {"limits": {"nvidia.com/gpu": -1}}}
    spec = {**TEMPLATE["spec"], where: amounts["resources"]}
    if where == "initContainers":
        spec[where] = [{"name": "d", "image": "i", **amounts}]
    return task("w", template={"spec": spec})


MOUNT = {"mountPath": "/data", "volumeClaimName": "a"}
FAILED, ANY = {"event": "PodFailed"}, {"event": "*"}
OURS = {**TEMPLATE["spec"], "schedulerName": "lockstep"}
JDB = {"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "1"}

BY_THE_CRDS: list[Case] = [
    ("minimum", job("a", minAvailable=2), "spec.minAvailable is more than the pods of all tasks"),
    ("task minimum", job("a", task("w", minAvailable=2)), "spec.tasks[].minAvailable is more"),
    (
        "partitions",
        job("a", task("w", partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "totalPartitions times partitionSize is not the task's replicas",
    ),
    ("plugin", job("a", plugins={"nosuch": []}), "spec.plugins has an unknown plugin"),
    ("root", job("a", queue="root"), "spec.queue is the root queue"),
    ("events", job("a", policies=[policy(**FAILED)] * 2), "two policies for one event"),
    (
        "events in lists",
        job("a", policies=[policy(**FAILED), policy(events=["PodEvicted", "PodFailed"])]),
        "spec.policies has two policies for one event",
    ),
    ("codes", job("a", policies=[policy(exitCode=3)] * 2), "two policies for one exitCode"),
    ("every event", job("a", policies=[policy(**ANY), policy(**FAILED)]), "stands for every"),
    ("group", of(SCHEDULING, "PodGroup", "a", {"queue": "root"}), "spec.queue is the root queue"),
    (
        "the root's parent",
        queue("root", parent="a"),
        "spec.parent of the queue root must not be set",
    ),
    ("own parent", queue("a", parent="a"), "spec.parent is the queue itself"),
    (
        "guarantee",
        queue("a", guarantee={"resource": {"cpu": 1}}, deserved={"memory": 1}),
        "spec.guarantee.resource has a resource that spec.deserved lacks",
    ),
    (
        "of a CronJob",
        of(
            *(BATCH, "CronJob", "a"),
            {"schedule": "* * * * *", "jobTemplate": {"spec": job("b", queue="root")["spec"]}},
        ),
        "spec.queue is the root queue",
    ),
]

BY_POLICIES: list[Case] = [
    ("mounts", job("a", volumes=[MOUNT, MOUNT]), "spec.volumes[].mountPath is used twice"),
    ("two tasks", job("a", task("w"), task("w")), "spec.tasks[].name: w is used twice"),
    (
        "events of a task",
        job("a", task("w", policies=[policy(**FAILED)] * 2)),
        "spec.tasks[].policies has two policies for one event",
    ),
    (
        "codes of a task",
        job("a", task("w", policies=[policy(exitCode=3)] * 2)),
        "spec.tasks[].policies has two policies for one exitCode",
    ),
    (
        "every event of a task",
        job("a", task("w", policies=[policy(**ANY), policy(**FAILED)])),
        "spec.tasks[].policies has the event",
    ),
    (
        "depends on nothing",
        job("a", task("w", dependsOn={"name": ["x"]})),
        "spec.tasks[].dependsOn.name names a task that does not exist",
    ),
    (
        "depends on itself",
        job("a", task("w", dependsOn={"name": ["w"]})),
        "spec.tasks[].dependsOn.name names the task itself",
    ),
    ("quantity", job("a", {**task("w"), **asking(cpu="lots")}), "that is not a quantity"),
    ("below zero", job("a", {**task("w"), **asking(cpu="-1")}), "or is below zero"),
    (
        "limit below zero",
        job("a", task("v"), {**task("w"), **asking("limits", memory="-1Mi")}),
        "or is below zero",
    ),
    ("init container below zero", job("a", _negative("initContainers")), "or is below zero"),
    ("pod below zero", job("a", _negative("resources")), "or is below zero"),
    ("guarantee alone", queue("a", guarantee={"resource": {"cpu": 1}}), "that spec.deserved lacks"),
    (
        "deserved below",
        queue("a", guarantee={"resource": {"cpu": "1500m"}}, deserved={"cpu": 1}),
        "spec.deserved is below spec.guarantee.resource",
    ),
    (
        "capability below",
        queue("a", capability={"memory": "1Gi"}, deserved={"memory": "1025Mi"}),
        "spec.capability is below spec.deserved",
    ),
    (
        "capability below guarantee",
        queue("a", guarantee={"resource": {"cpu": 2}}, deserved={"cpu": 2}, capability={"cpu": 1}),
        "spec.capability is below spec.deserved",  # which is not below the guarantee
    ),
    ("no members", of(TOPOLOGY, "HyperNode", "a", {"tier": 1}), "spec.members is empty"),
    ("pattern", hypernode("a", "Node", regexMatch={"pattern": "a("}), "regexMatch.pattern"),
    ("name", hypernode("a", "Node", exactMatch={"name": "A_1"}), "exactMatch.name is not the name"),
    ("labels", hypernode("a", "HyperNode", labelMatch={"matchLabels": {"a": "b"}}), "nodes only"),
    ("itself", hypernode("a", "HyperNode", exactMatch={"name": "a"}), "names the HyperNode itself"),
    (
        "no such flow",
        flow("a", {"name": "x", "dependsOn": {"targets": ["y"]}}),
        "spec.flows[].dependsOn.targets names a flow that does not exist",
    ),
    (
        "own flow",
        flow("a", {"name": "x", "dependsOn": {"targets": ["x"]}}),
        "spec.flows[].dependsOn.targets names the flow itself",
    ),
    ("disruption", of("v1", "Pod", "a", OURS, JDB), "jdb-max-unavailable exclude each other"),
    ("disruption of a Job", of(BATCH, "Job", "a", {"tasks": [task("w")]}, JDB), "exclude each"),
    (
        "disruption of none",
        of("v1", "Pod", "a", OURS, {"volcano.sh/jdb-min-available": "0"}),
        "are whole numbers above 0, or 1% to 99%",
    ),
    ("hierarchy", queue_at("a//b"), "annotation volcano.sh/hierarchy is not a path from root"),
    ("weights", queue_at("root/a", "1/2/3"), "hierarchy-weights differ in length"),
    ("weight", queue_at("root/a", "1/x"), "is not a list of whole numbers above 0"),
]
