"""Objects of every watched kind, changed at random: a seed gives the same object everywhere."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import container
from tests.central.poison import corpus

WHEN = "2026-11-20T10:00:00Z"
PEERS = {"labelSelector": {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}}  # fmt: skip
NODE_TERM = {"matchExpressions": [{"key": "pool", "operator": "Gt", "values": ["3"]}]}
NODE_TERMS = {"nodeSelectorTerms": [{**NODE_TERM, "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]}  # fmt: skip


def meta(namespace: str = "evil", **more: object) -> Json:
    found = {
        "name": "bad-0",
        "uid": "u-bad",
        "creationTimestamp": WHEN,
        "labels": {"app": "x"},
        **more,
    }
    return found | ({"namespace": namespace} if namespace else {})


def rich_pod() -> Json:
    resources = {
        "requests": {"cpu": "1", "memory": "1Gi", names.GPU: "1"},
        "limits": {names.GPU: "1"},
    }
    port = {"containerPort": 80, "hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}
    main = {"name": "main", "image": "x", "resources": resources, "ports": [port]}
    terms = [{"topologyKey": names.RACK, "namespaces": ["evil"], "namespaceSelector": {}, **PEERS}]
    preferred = [{"weight": 5, "podAffinityTerm": terms[0]}]
    annotations = {
        names.RUNS_FOR: "1h", names.GPU_MODEL: "*H100*", names.GPU_LEAST: "40Gi", names.CHECKPOINT: WHEN,
        names.PLACEMENT: "pack", names.MOVABLE: "true", names.QUEUE_NAME: "default",
        names.TOPOLOGY_PREFERRED: names.RACK, names.TASK: "worker",
        "volcano.sh/job-version": "1", "volcano.sh/task-index": "3",
    }  # fmt: skip
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u-bad", "controller": True}  # fmt: skip
    spec = {
        "schedulerName": "lockstep", "priority": 5, "nodeName": "", "preemptionPolicy": "Never",
        "containers": [main], "initContainers": [{**main, "restartPolicy": "Always"}, main],
        "overhead": {"cpu": "100m"}, "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "1Gi"}},
        "nodeSelector": {"pool": "a"}, "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": names.RACK, "minDomains": 2, "matchLabelKeys": ["app"], **PEERS}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w", "ephemeral": {}}],
        "schedulingGates": [], "hostNetwork": False,
        "affinity": {
            "nodeAffinity": {corpus.REQUIRED: NODE_TERMS, corpus.PREFERRED: [{"weight": 3, "preference": NODE_TERM}]},
            "podAffinity": {corpus.REQUIRED: terms, corpus.PREFERRED: preferred},
            "podAntiAffinity": {corpus.REQUIRED: terms, corpus.PREFERRED: preferred},
        },
    }  # fmt: skip
    ended = {"terminated": {"exitCode": 1, "finishedAt": WHEN}}
    status = {
        "phase": "Running", "startTime": WHEN, "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "main", "restartCount": 1, "state": ended, "allocatedResources": {"cpu": "2"}, "resources": resources}],
        "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"},
    }  # fmt: skip
    return {
        "metadata": meta(annotations=annotations, ownerReferences=[owner]),
        "spec": spec,
        "status": status,
    }


def running_pod() -> Json:
    raw = rich_pod()
    raw["spec"] |= {"nodeName": "n0"}
    del raw["spec"]["affinity"], raw["spec"]["volumes"]
    return raw


def rich_group() -> Json:
    policy = {"name": "a", "subGroupSize": 2, "minSubGroups": 1, "labelSelector": PEERS["labelSelector"], "matchLabelKeys": ["app"], "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}  # fmt: skip
    spec = {"minMember": 2, "minTaskMember": {"w": 1}, "queue": "q", "priorityClassName": "p", "minResources": {"cpu": "1", names.GPU: 1}, "networkTopology": {"mode": "soft", "highestTierName": names.RACK}, "subGroupPolicy": [policy]}  # fmt: skip
    annotations = {
        names.TASK_NEAR: "ps,worker;ps",
        names.TASK_APART: "ps,x",
        names.TOPOLOGY_REQUIRED: names.RACK,
        names.MOVE_AFTER: "5m",
        names.START_WITHIN: "5m",
        names.TIME_LIMIT: "5m",
    }
    shared = {
        "type": "TimeShared",
        "message": "ran 90 s until 2026-11-28T12:00:00Z and runs since; contention 2.00",
    }
    status = {
        "phase": "Pending", "succeeded": 1,
        "conditions": [shared, {"type": "Unschedulable", "message": "m"}],
    }  # fmt: skip
    return {"metadata": meta(annotations=annotations), "spec": spec, "status": status}


def rich_job() -> Json:
    policy = {"event": "PodFailed", "action": "RestartTask", "timeout": "5s"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container(gpu=1)]}}
    tasks = [
        {"name": "master", "replicas": 1, "template": template, "policies": [policy]},
        {"name": "worker", "replicas": 4, "minAvailable": 2, "template": template, "maxRetry": 3, "dependsOn": {"name": ["master"], "iteration": "any"}, "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}},
    ]  # fmt: skip
    spec = {
        "minAvailable": 3, "schedulerName": "lockstep", "queue": "q", "maxRetry": 3, "minSuccess": 1, "tasks": tasks,
        "policies": [{"events": ["PodEvicted"], "action": "RestartJob"}], "plugins": {"svc": [], "mpi": ["--master=master"], "env": []},
        "volumes": [{"mountPath": "/d", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}], "ttlSecondsAfterFinished": 5,
        "runningEstimate": "1h", "priorityClassName": "p", "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }  # fmt: skip
    status = {
        "state": {"phase": "Running", "lastTransitionTime": WHEN}, "version": 2, "retryCount": 1, "retryAt": WHEN, "podRestarts": {"p": 1}, "podEvictions": {"p": 1}, "completedIndexes": {"worker": "1-2"},
        "taskStatusCount": {"worker": {"phase": {"Running": 2}}}, "terminating": 1, "controlledResources": {"a": "b"},
        "conditions": [{"status": "Running", "lastTransitionTime": WHEN}],
    }  # fmt: skip
    return {"metadata": meta(), "spec": spec, "status": status}


def rich_flow() -> Json:
    probe = {"httpGetList": [{"port": 80, "path": "/", "taskName": "w", "httpHeader": {"name": "a", "value": "b"}}], "tcpSocketList": [{"port": 1}], "taskStatusList": [{"taskName": "w", "phase": "Running"}]}  # fmt: skip
    flows = [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": probe}, "patch": {"jobSpec": {"queue": "q"}}}]  # fmt: skip
    return {"metadata": meta(), "spec": {"flows": flows, "jobRetainPolicy": "delete"}, "status": {"state": {"phase": "Running"}}}  # fmt: skip


def rich_node() -> Json:
    allocatable = {
        "cpu": "64",
        "memory": "1Ti",
        "pods": "110",
        names.GPU: "8",
        "example.com/x": "4",
    }
    spec = {
        "taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}],
        "unschedulable": False,
    }
    return {"metadata": meta("", name="odd", labels={"pool": "7", names.RACK: "r1"}), "spec": spec, "status": {"allocatable": allocatable, "declaredFeatures": ["A"], "conditions": [{"type": "Ready", "status": "True"}]}}  # fmt: skip


def hypernode() -> Json:
    members = [
        {"type": "Node", "selector": {"regexMatch": {"pattern": "n[0-9]+"}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {names.RACK: "r1"}}}},
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "bad-0"}}},
    ]
    return {"metadata": meta(""), "spec": {"tier": 1, "members": members}}


def queue() -> Json:
    amounts = {"cpu": "10", names.GPU: "8"}
    spec = {"weight": 2, "priority": 1, "parent": "root", "capability": amounts, "guarantee": {"resource": {"cpu": "1"}}, "deserved": amounts, "reclaimable": True, "dequeueStrategy": "fifo"}  # fmt: skip
    return {
        "metadata": meta("", annotations={names.COMMAND: "u"}),
        "spec": spec,
        "status": {"state": "Open"},
    }


def cron() -> Json:
    spec = {"schedule": "*/5 * * * *", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 9, "jobTemplate": {"spec": rich_job()["spec"]}, "successfulJobsHistoryLimit": 1}  # fmt: skip
    return {"metadata": meta(), "spec": spec, "status": {"lastScheduleTime": WHEN, "active": []}}


def command() -> Json:
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "bad-0",
        "uid": "u-bad",
    }
    return {
        "metadata": meta(),
        "target": target,
        "action": "AbortJob",
        "reason": "r",
        "message": "m",
    }


def claim() -> Json:
    spec = {"volumeName": "v", "storageClassName": "s", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "selector": PEERS["labelSelector"]}  # fmt: skip
    return {"metadata": meta(name="c"), "spec": spec, "status": {"phase": "Bound"}}


def volume() -> Json:
    spec = {"nodeAffinity": {"required": NODE_TERMS}, "capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "evil", "name": "c"}, "csi": {"driver": "d"}, "storageClassName": "s", "accessModes": ["ReadWriteOnce"]}  # fmt: skip
    return {"metadata": meta("", name="v", labels={"topology.kubernetes.io/zone": "a__b"}), "spec": spec, "status": {"phase": "Available"}}  # fmt: skip


def budget() -> Json:
    status = {"disruptionsAllowed": 1, "observedGeneration": 2, "disruptedPods": {"p": WHEN}}
    return {
        "metadata": meta(generation=1),
        "spec": {"selector": PEERS["labelSelector"]},
        "status": status,
    }


KINDS: dict[str, Callable[[], Json]] = {
    "pods": rich_pod,
    "nodes": rich_node,
    "namespaces": lambda: {"metadata": meta("", name="evil", annotations={names.QUEUE_NAME: "q"})},
    corpus.GROUPS: rich_group,
    corpus.JOBS: rich_job,
    corpus.FLOWS: rich_flow,
    corpus.TEMPLATES: lambda: {"metadata": meta(name="a"), "spec": rich_job()["spec"], "status": {}},
    corpus.CRONS: cron,
    "commands.bus.volcano.sh": command,
    corpus.QUEUES: queue,
    corpus.HYPERNODES: hypernode,
    "priorityclasses.scheduling.k8s.io": lambda: {"metadata": meta("", name="p"), "value": 10},
    "deviceclasses.resource.k8s.io": lambda: {"metadata": meta("", name="d"), "spec": {"extendedResourceName": "example.com/d"}},
    "resourceslices.resource.k8s.io": lambda: {"metadata": meta("", name="s"), "spec": {"driver": "d.example", "nodeName": "n0", "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "h100"}}}]}},
    "resourceclaims.resource.k8s.io": lambda: {"metadata": meta(), "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "d", "count": 1}}]}}, "status": {}},
    "poddisruptionbudgets.policy": budget,
    "persistentvolumeclaims": claim,
    "persistentvolumes": volume,
    "storageclasses.storage.k8s.io": lambda: {"metadata": meta("", name="s"), "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": ["a"]}]}]},
    "csinodes.storage.k8s.io": lambda: {"metadata": meta("", name="n0"), "spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}]}},
    "csidrivers.storage.k8s.io": lambda: {"metadata": meta("", name="d"), "spec": {"storageCapacity": True}},
    "csistoragecapacities.storage.k8s.io": lambda: {"metadata": meta(), "storageClassName": "s", "capacity": "1Gi", "nodeTopology": PEERS["labelSelector"]},
    **dict.fromkeys(("replicasets.apps", "statefulsets.apps", "jobs.batch"), lambda: {"metadata": meta(annotations={names.OWNER_MIN: "2", names.TOPOLOGY_TIER: "1"})}),
}  # fmt: skip


def hostile(dice: random.Random) -> Any:
    """A value that no field expects."""
    makers: list[Callable[[], Any]] = (
        [
            lambda: None,
            lambda: dice.choice([True, False, "", [], {}, 0, -1, 1.5, -0.0, 1e308]),
            lambda: dice.choice([2**31, 2**63 - 1, -(2**63), 2**64, 10**300]),
            lambda: dice.choice(["9", "1h", "*a", "a,", "(a+)+", "../", ";a", "1."]) * dice.choice([3, 300, 60_000]),
            lambda: dice.choice(["9E", "-1", "1e99", "9e-99", "0x10", "1_000", "٣", "NaN", "Infinity", "max"]),
            lambda: dice.choice(["\x00", "\n", "\u202e", "😀" * 500, "é", "ß" * 300, "%s{}"]),
            lambda: dice.choice(["root", "bad-0", "n0", "In", "Exists", "evil", "lockstep", "worker"]),
            lambda: [hostile(dice) for _ in range(dice.choice([1, 3]))],
            lambda: {str(hostile(dice))[:300]: hostile(dice)},
            lambda: corpus.nested(dice.choice([5, 200, 900])),
            lambda: [dice.choice(["a", 1, None])] * 3000,
            lambda: {f"k{i}": "v" for i in range(3000)},
        ]
    )  # fmt: skip
    return dice.choice(makers)()


MOST_PLACES = 4_000  # of an object
NESTED = {dict, list}
OF_CONTAINER = 40  # keys or indices of one list or object that a change may choose: not only those of the longest list


def places(raw: Any) -> list[tuple[Any, Any]]:
    """Containers of the object with the first and the last of their keys or indices."""
    found: list[tuple[Any, Any]] = []
    left = [raw]
    while left and len(found) < MOST_PLACES:
        part = left.pop()
        keys: Any = list(part) if isinstance(part, dict) else range(len(part))
        if len(keys) > OF_CONTAINER:
            keys = [*keys[: OF_CONTAINER // 2], *keys[-OF_CONTAINER // 2 :]]
        found += [(part, key) for key in keys]
        left += [part[key] for key in keys if isinstance(part[key], dict | list)]
    return found


def size(raw: Any) -> int:
    """How many keys and indices there are, up to a bound."""
    total, left = 0, [raw]
    while left and total < MOST_PLACES:
        part = left.pop()
        total += len(part)
        left += [
            each
            for each in (part.values() if isinstance(part, dict) else part)
            if type(each) in NESTED
        ]
    return total


def change(raw: Json, dice: random.Random) -> None:
    """One change somewhere in the object."""
    if size(raw) >= MOST_PLACES:
        return
    known = places(raw)
    where, key = dice.choice(known)
    match dice.randrange(6):
        case 0:
            del where[key]
        case 1:
            other, its = dice.choice(known)
            with suppress(RecursionError):
                where[key] = deepcopy(other[its])
        case 2 if isinstance(where, list) and len(where) < 10:
            where += [where[key]] * min(
                dice.choice([1, 70, 700]), MOST_PLACES // 4 // size([where[key]])
            )
        case _:
            where[key] = hostile(dice)


def objects(seed: int, count: int) -> Iterator[tuple[str, Json]]:
    """(kind, object) pairs."""
    dice = random.Random(seed)
    kinds = sorted(KINDS)
    for _ in range(count):
        kind = dice.choice(kinds)
        made = running_pod if kind == "pods" and dice.random() < 0.3 else KINDS[kind]
        raw = deepcopy(made())  # it shares parts with others, and is changed
        if dice.random() < 0.5:  # several of them in one scheduler
            raw["metadata"]["name"] = f"bad-{dice.randrange(20)}"
            raw["metadata"]["uid"] = f"u-{dice.randrange(20)}"
        for _ in range(dice.choice([1, 1, 2, 5])):
            if raw:
                change(raw, dice)
        _identify(raw)
        yield kind, raw


def _identify(raw: Json) -> None:
    """No two objects of an API server have the same uid."""
    meta = raw.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("uid"), str):
        known = (meta.get("namespace"), meta.get("name"))
        meta["uid"] = "-".join(["u", *(each[:60] for each in known if isinstance(each, str))])
