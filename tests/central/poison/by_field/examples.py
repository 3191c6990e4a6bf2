"""A rich valid object of every kind that the scheduler watches. test_read_fields.py fails where a decoder reads a field
that none of its kind's objects has."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import NamedTuple

from central.kube.decode import api_kinds
from central.kube.decode.api_kinds import Kind
from central.kube.decode.decoder import Decoder
from central.kube.resource_paths import SIZED
from central.model.json_types import Json
from protos import names
from tests.central.kube import controller_fixtures
from tests.central.kube.raw_objects import container
from tests.central.poison import corpus, generator
from tests.central.poison.generator import WHEN, meta
from tests.central.poison.world import LEVELS

Example = Callable[[], Json]


class Watched(NamedTuple):
    """A kind, in one of the versions and ways that it is read."""

    name: str  # jobs.batch/v1, jobs.batch/v1 metadata
    kind: Kind
    examples: tuple[Example, ...]

    def gone(self, raw: Json) -> object:
        return self.kind.gone(raw)


def watched_kinds(decoder: Decoder) -> Iterator[tuple[str, Kind]]:
    for newest in api_kinds.kinds(decoder, elastic=True):
        kind: Kind | None = newest
        while kind is not None:
            yield _name(kind), kind
            kind = kind.fallback


def _name(kind: Kind) -> str:
    way = " metadata" if kind.metadata_only else " size" if kind.resource in SIZED.values() else ""
    rule = " gang" if way == " size" and kind.resource.group in _RULED else ""
    if rule and "gang" in getattr(kind.seen, "func", kind.seen).__name__:
        way = rule
    return f"{kind.resource.full_name}/{kind.resource.version}{way}"


_RULED = ("jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io")


@cache
def watched() -> tuple[Watched, ...]:
    """With a decoder of its own."""
    decoder = Decoder(("lockstep",), LEVELS)
    return tuple(
        Watched(name, kind, EXAMPLES.get(kind.resource.full_name, ()) + EXAMPLES.get(name, ()))
        for name, kind in watched_kinds(decoder)
    )


# --- pods --------------------------------------------------------------------------------------------------------


def _full_pod() -> Json:
    """The fields of a pod's rules and containers that rich_pod() leaves out."""
    raw = generator.rich_pod()
    expressions = [{"key": "k", "operator": "NotIn", "values": ["a"]}]
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": expressions}
    for rules in (raw["spec"]["affinity"][key] for key in ("podAffinity", "podAntiAffinity")):
        for term in (rules[corpus.REQUIRED][0], rules[corpus.PREFERRED][0]["podAffinityTerm"]):
            term |= {"matchLabelKeys": ["app"], "mismatchLabelKeys": ["b"]}
            term["namespaceSelector"] = selector
    preferred = raw["spec"]["affinity"]["nodeAffinity"][corpus.PREFERRED][0]["preference"]
    preferred["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
    raw["spec"]["topologySpreadConstraints"][0] |= {
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore",
        "whenUnsatisfiable": "DoNotSchedule",
    }
    raw["spec"]["tolerations"] = [{"key": "k", "operator": "Equal", "value": "v"}]
    raw["spec"]["containers"][0]["restartPolicy"] = "Never"
    status = raw["status"]["containerStatuses"][0]
    raw["status"] |= {"initContainerStatuses": [deepcopy(status)], "resize": "Infeasible"}
    return raw


def _numbered_pod() -> Json:
    """Its controllers say its number, and those of its gang."""
    keys = (
        "batch.kubernetes.io/job-completion-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "training.kubeflow.org/replica-index",
        "apps.kubernetes.io/pod-index",
        "volcano.sh/task-index",
    )
    raw = generator.running_pod()
    raw["metadata"]["labels"] |= dict.fromkeys(keys, "3") | {"b": "c"}
    raw["metadata"]["annotations"] |= {
        **dict.fromkeys(keys, "3"),
        names.MEMBER_GENERATION: "2",
        names.MEMBER_SIZE: "4",
        names.MEMBER_NUMBERS: "0-3",
        names.MEMBER_LEAVING: "1",
        names.MEMBER_LEAVE_BY: WHEN,
        "lockstep.dev/pod-restarts": "1",
    }
    return raw


def _plain_pod(annotations: Json | None = None, labels: Json | None = None, **spec: object) -> Json:
    given = {"schedulerName": "lockstep", "containers": [container(gpu=1)], **spec}
    found = meta(annotations=annotations or {}, labels={"app": "x", **(labels or {})})
    return {"metadata": found, "spec": given, "status": {"phase": "Pending"}}


def _native_pod() -> Json:
    return _plain_pod(schedulingGroup={"podGroupName": "g"}, resourceClaims=[])


def _grouped_pod() -> Json:
    return _plain_pod(
        dict.fromkeys(names.GROUP_NAMES, "bad-0"),
        {"batch.kubernetes.io/job-completion-index": "3", "apps.kubernetes.io/pod-index": "3"},
        serviceAccountName="a",
    ) | {"status": {"phase": "Pending", "startTime": WHEN}}


def _labelled_pod() -> Json:
    notes = {
        names.GANG_MIN: "2",
        names.OWNER_MIN: "2",
        names.ELASTIC_MIN: "2",
        names.PREEMPTABLE: "false",
        names.COOLDOWN: "5m",
        names.TOPOLOGY_MODE: "hard",
        names.TOPOLOGY_TIER: "1",
        names.TOPOLOGY_REQUIRED: names.RACK,
        names.USER: "ann",
    }
    labels = {names.GANG_LABEL: "bad-0", names.PREEMPTABLE: "false", names.TASK: "w"}
    raw = _plain_pod(notes, {**labels, names.GANG_MIN: "2"})
    raw["metadata"] |= {"deletionTimestamp": WHEN, "deletionGracePeriodSeconds": 30}
    return raw


def _share_pod() -> Json:
    notes = {
        names.GPU_MEMORY: "4Gi",
        names.GPU_MEMORY_LEVEL: "mps",
        names.RDMA_HANDLES: "10",
        names.RDMA_OBJECTS: "max",
    }
    asks = {names.GPU_SHARE: "50", names.RDMA: "1", f"{names.RAIL}1": "1"}
    main = {"name": "main", "image": "x", "resources": {"requests": asks, "limits": asks}}
    return _plain_pod(notes, containers=[main])


def _slice_pod() -> Json:
    asks = {f"{names.MIG}1g.10gb": "1"}
    main = {"name": "main", "image": "x", "resources": {"requests": asks, "limits": asks}}
    return _plain_pod({names.GPU_MEMORY_LEVEL: "mig"}, containers=[main])


def _volume_pod() -> Json:
    template = {"spec": generator.claim()["spec"]}
    return _plain_pod(volumes=[{"name": "w", "ephemeral": {"volumeClaimTemplate": template}}])


def _pod_of_others() -> Json:
    """It holds devices of a node."""
    raw = generator.running_pod()
    raw["spec"]["schedulerName"] = "default-scheduler"
    return raw


def _stuck_pod() -> Json:
    raw = generator.running_pod()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "m"}}
    one = {"name": "main", "restartCount": 2, "state": waiting}
    raw["status"] |= {
        "initContainerStatuses": [one],
        "containerStatuses": [one],
        "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}],
        "reason": "Evicted",
    }
    return raw


def _pods_of_controllers() -> tuple[Example, ...]:
    played = [
        controller_fixtures.jobset_pods()[1],
        controller_fixtures.leaderworkerset_pods(0)[1],
        *(_of_controller(*each) for each in _LABELLED),
    ]
    return tuple(lambda raw=raw: deepcopy(raw) for raw in played)


_LABELLED = (
    ("raycluster", {"ray.io/cluster": "c", "ray.io/group": "g"}),
    (
        "mpijob",
        {
            "training.kubeflow.org/job-name": "m",
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "1",
        },
    ),
)


def _of_controller(kind: str, labels: Json) -> Json:
    raw = _plain_pod(labels=labels)
    owner = {"apiVersion": "x/v1", "kind": kind, "name": "m", "uid": "u-m", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    return raw


# --- gangs and queues --------------------------------------------------------------------------------------------


def _group_by_annotations() -> Json:
    raw = generator.rich_group()
    raw["metadata"]["annotations"] = {
        names.SUBGROUP_TOPOLOGY: f"a={names.RACK}",
        names.PLACEMENT: "pack",
        names.TOPOLOGY_PREFERRED: names.RACK,
        names.PREEMPTABLE: "true",
        names.GANG_OF: "deployment/web",
    }
    raw["metadata"]["labels"] = {names.PREEMPTABLE: "true"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r"}
    raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    raw["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    raw["spec"]["subGroupPolicy"][0]["networkTopology"] = {"highestTierName": names.RACK}
    return raw


def _native_group() -> Json:
    notes = {
        names.QUEUE_NAME: "q",
        names.TOPOLOGY_REQUIRED: names.RACK,
        names.TOPOLOGY_PREFERRED: names.RACK,
        names.PLACEMENT: "pack",
        names.PREEMPTABLE: "true",
    }
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": names.RACK}]},
        "priorityClassName": "p",
        "priority": 5,
        "disruptionMode": "PodGroup",
        "resourceClaims": [],
        "parentCompositePodGroupName": "",
    }
    kinds = ("PodGroupScheduled", "PodGroupInitiallyScheduled")
    conditions = [{"type": each, "status": "True", "message": "m"} for each in kinds]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}
    return {
        "metadata": meta(
            annotations=notes, ownerReferences=[owner], labels={names.PREEMPTABLE: "true"}
        ),
        "spec": spec,
        "status": {"conditions": conditions},
    }


def _basic_native_group() -> Json:
    spec: Json = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    return {"metadata": meta(), "spec": spec}


def _queue_with_policy() -> Json:
    raw = generator.queue()
    amounts = {"cpu": "5", names.GPU: "0.5"}
    expressions = [{"key": "k", "operator": "In", "values": ["a"]}]
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": expressions}
    raw["spec"] |= {
        "access": {
            "namespaces": ["evil"],
            "namespaceSelector": selector,
            "users": ["u"],
            "groups": ["g"],
        },
        "borrowingLimit": amounts,
        "lendingLimit": amounts,
        "maxRunningGangs": 5,
        "perNamespace": {"maxRunningGangs": 2, "resources": amounts},
        "perUser": {"maxRunningGangs": 2, "resources": amounts},
        "minRuntime": "5m",
        "reservations": False,
        "state": "Open",
        "affinity": {},
        "extendClusters": [],
        "guarantee": {"resource": {"cpu": "1", names.GPU: "1"}},
    }
    return raw


def _queue_by_annotation() -> Json:
    raw = generator.queue()
    raw["metadata"]["annotations"] = {
        names.QUEUE_POLICY: '{"maxRunningGangs": 3, "perUser": {"resources": {"cpu": "4"}}}'
    }
    raw["status"] = {"state": "Closed", "closedBy": "x"}
    return raw


# --- Jobs --------------------------------------------------------------------------------------------------------

_ELASTIC_NOTES = {
    names.ELASTIC_MIN: "1",
    names.ELASTIC_MAX: "4",
    names.ELASTIC_STEP: "1",
    names.ELASTIC_OBJECTIVE: "goodput",
    names.ELASTIC_ASK: "pods",
    names.SPEED: "1:1 2:1.9 4:3.5",
    names.RESIZE_COST: "40s",
    names.WORK_LEFT: "18000 steps",
    names.YIELDS: "true",
}


def _elastic_job() -> Json:
    raw = generator.rich_job()
    raw["metadata"]["annotations"] = {
        **{key: value for key, value in _ELASTIC_NOTES.items() if "elastic" not in key},
        names.USER: "ann",
        names.QUEUE_NAME: "q",
    }
    del raw["spec"]["tasks"][1]["partitionPolicy"], raw["spec"]["tasks"][1]["minAvailable"]
    raw["spec"] |= {
        "plugins": {"elastic": ["--task=worker", "--step=1", "--max=8"], "svc": []},
        "replicas": 4,
    }
    elastic = {"members": "0-2", "generation": 3, "reason": "r", "leaveBy": WHEN}
    raw["status"] |= {"elastic": {"worker": elastic}, "lastCommand": "u-c", "minAvailable": 2}
    raw["status"]["state"] |= {"reason": "r", "message": "m"}
    return raw


def _job_with_corners() -> Json:
    """What rich_job() leaves out, because it excludes the rest."""
    raw = generator.rich_job()
    raw["metadata"] |= {
        "deletionTimestamp": WHEN,
        "ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "u-c", "controller": True}],
    }
    first, second = raw["spec"]["tasks"]
    first["policies"] = [{"exitCode": 3, "action": "RestartPod"}]
    second["policies"] = [{"events": ["PodFailed", "PodEvicted"], "action": "RestartTask"}]
    raw["spec"]["policies"] = [
        {"event": "PodEvicted", "action": "RestartJob", "timeout": "5s"},
        {"exitCode": 3, "action": "AbortJob"},
    ]
    main = {**container(gpu=1), "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    main["resources"]["limits"] = {names.GPU: "1"}
    second["template"] = {
        "metadata": {"labels": {"a": "b"}, "annotations": {names.RUNS_FOR: "1h"}},
        "spec": {
            "containers": [main],
            "initContainers": [{**main, "restartPolicy": "Always"}],
            "overhead": {"cpu": "100m"},
            "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}},
            "hostname": "h",
            "subdomain": "s",
        },
    }
    raw["spec"]["networkTopology"] = {"mode": "hard", "highestTierName": names.RACK}
    first |= {"replicas": 2, "partitionPolicy": {"totalPartitions": 2, "partitionSize": 1}}
    first["partitionPolicy"]["networkTopology"] = {"highestTierName": names.RACK}
    first["topologyPolicy"] = "best-effort"
    second["partitionPolicy"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    raw["spec"]["volumes"] = [{"mountPath": "/d", "volumeClaimName": "c"}]
    return raw


def _cron_with_history() -> Json:
    raw = generator.cron()
    raw["metadata"]["deletionTimestamp"] = WHEN
    raw["spec"] |= {"schedule": "@every 1h", "suspend": True, "failedJobsHistoryLimit": 2}
    raw["status"] |= {
        "lastSuccessfulTime": WHEN,
        "active": [{"name": "c-1", "uid": "u-1", "namespace": "evil", "kind": "Job"}],
    }
    return raw


def _command() -> Json:
    raw = generator.command()
    raw["metadata"]["deletionTimestamp"] = WHEN
    return raw


def _flow_that_ends() -> Json:
    raw = generator.rich_flow()
    raw["metadata"]["deletionTimestamp"] = WHEN
    raw["spec"]["flows"][1]["dependsOn"]["probe"]["tcpSocketList"] = [{"port": 1, "taskName": "w"}]
    return raw


def _template() -> Json:
    raw = generator.KINDS["jobtemplates.flow.volcano.sh"]()
    raw["metadata"]["annotations"] = {names.RUNS_FOR: "1h"}
    return raw


def _hypernode() -> Json:
    raw = generator.hypernode()
    raw["spec"]["tierName"] = "rack"
    raw["spec"]["members"][1]["selector"]["labelMatch"]["matchExpressions"] = []
    return raw


# --- objects of other controllers --------------------------------------------------------------------------------


_PLACED = {
    names.QUEUE_NAME: "q",
    names.TOPOLOGY_REQUIRED: names.BLOCK,
    names.TOPOLOGY_PREFERRED: names.RACK,
    names.PLACEMENT: "pack",
}


def _elastic(raw: Json, **more: str) -> Json:
    raw = deepcopy(raw)
    raw["metadata"]["annotations"] = {**_ELASTIC_NOTES, **more}
    raw["metadata"] |= {"creationTimestamp": WHEN, "ownerReferences": []}
    raw["metadata"]["labels"] = {names.PREEMPTABLE: "true"}
    raw["status"] = {"conditions": [{"type": "Other", "status": "True"}]}
    return raw


def _jobset() -> Json:
    raw = controller_fixtures.jobset(annotations={names.ROLE_TOPOLOGY: "workers/each=node"})
    job = raw["spec"]["replicatedJobs"][1]
    job["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    job["template"]["spec"]["completionMode"] = "Indexed"
    raw["metadata"]["annotations"] |= {**_PLACED, names.PREEMPTABLE: "true"}
    raw["metadata"]["ownerReferences"] = []
    raw["spec"] |= {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}, "suspend": False}
    return raw


_LWS_EXCLUSIVE = tuple(
    f"leaderworkerset.sigs.k8s.io/{word}exclusive-topology" for word in ("", "subgroup-")
)


def _leader_first() -> Json:
    raw = controller_fixtures.leaderworkerset(4, "LeaderReady")
    raw["metadata"]["annotations"] = dict.fromkeys(_LWS_EXCLUSIVE, names.RACK)
    return raw


def _elastic_jobset() -> Json:
    return _elastic(_jobset(), **{names.ELASTIC_MIN: "workers: 1"})


def _leaderworkerset() -> Json:
    raw = controller_fixtures.leaderworkerset(4)
    spread = [{"maxSkew": 1, "topologyKey": names.RACK, "whenUnsatisfiable": "DoNotSchedule"}]
    inside = {
        "containers": [container(gpu=1)],
        "initContainers": [container()],
        "nodeSelector": {"a": "b"},
        "affinity": {},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": spread,
        "resources": {"requests": {"cpu": "4"}},
    }
    pod = {"spec": inside}
    raw["spec"]["leaderWorkerTemplate"] |= {
        "subGroupPolicy": {"subGroupSize": 2},
        "leaderTemplate": deepcopy(pod),
        "workerTemplate": pod,
    }
    raw["metadata"]["annotations"] = {
        **_PLACED,
        names.ROLE_TOPOLOGY: "/each=node",
        **dict.fromkeys(_LWS_EXCLUSIVE, ""),
    }
    return raw


def _elastic_leaderworkerset() -> Json:
    return _elastic(controller_fixtures.leaderworkerset(2))


def _raycluster() -> Json:
    group = {
        "groupName": "g",
        "replicas": 2,
        "minReplicas": 1,
        "maxReplicas": 4,
        "numOfHosts": 1,
        "suspend": False,
    }
    spec = {"workerGroupSpecs": [group], "enableInTreeAutoscaling": True, "suspend": False}
    return {
        "metadata": meta(annotations={**_PLACED, names.ROLE_TOPOLOGY: f"g={names.RACK}"}),
        "spec": spec,
    }


def _elastic_raycluster() -> Json:
    return _elastic(_raycluster())


def _training(kind: str, key: str) -> tuple[Example, ...]:
    def whole() -> Json:
        roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 3}}
        spec = {
            key: roles,
            "runPolicy": {"suspend": False},
            "elasticPolicy": {"minReplicas": 2},
            "launcherCreationPolicy": "AtStartup",
        }
        notes = {**_PLACED, names.ROLE_TOPOLOGY: f"worker={names.RACK}"}
        return {"metadata": meta(annotations=notes), "spec": spec, "status": {}}

    def with_least() -> Json:
        raw = whole()
        del raw["metadata"]["annotations"][names.ROLE_TOPOLOGY]
        raw["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2, "queue": "q"}}
        return raw

    return whole, with_least


def _workload(**spec: object) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "X", "name": "x", "uid": "u-x", "controller": False}
    template = {"metadata": {"annotations": {names.ELASTIC_MAX: "4"}}}
    return {
        "metadata": meta(annotations=_ELASTIC_NOTES, ownerReferences=[owner]),
        "spec": {"replicas": 2, "template": template, **spec},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    }


def _leaving(example: Example) -> Example:
    def made() -> Json:
        raw = example()
        raw["metadata"]["deletionTimestamp"] = WHEN
        return raw

    return made


def _parallel() -> Json:
    return _workload(podManagementPolicy="Parallel")


def _batch_job() -> Json:
    return _workload(parallelism=2, completions=2, completionMode="Indexed", suspend=False)


def _stateful_set() -> Json:
    return {**_replica_set_of_deployment(), "spec": {"podManagementPolicy": "Parallel"}}


def _replica_set_of_deployment() -> Json:
    notes = {
        **dict.fromkeys(
            (names.GANG_MIN, names.OWNER_MIN, names.ELASTIC_MIN, names.ELASTIC_MAX), "2"
        ),
        names.TOPOLOGY_REQUIRED: names.RACK,
        names.QUEUE_NAME: "q",
        names.TOPOLOGY_MODE: "hard",
        names.TOPOLOGY_TIER: "1",
    }
    raw = {"metadata": meta(annotations=notes, labels={names.GANG_MIN: "2"})}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u-d"}
    raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return raw


# --- storage -----------------------------------------------------------------------------------------------------


def _bound_claim() -> Json:
    raw = generator.claim()
    raw["metadata"]["annotations"] = {
        "pv.kubernetes.io/bind-completed": "yes",
        "volume.kubernetes.io/selected-node": "n0",
        "volume.beta.kubernetes.io/storage-class": "s",
    }
    raw["metadata"]["deletionTimestamp"] = WHEN
    raw["spec"]["volumeMode"] = "Block"
    return raw


def _old_volume() -> Json:
    raw = generator.volume()
    raw["metadata"] |= {
        "annotations": {"volume.beta.kubernetes.io/storage-class": "s"},
        "deletionTimestamp": WHEN,
        "labels": {
            f"{prefix}/{key}": "a__b"
            for prefix in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
            for key in ("zone", "region")
        },
    }
    raw["spec"] |= {"volumeMode": "Block"}
    raw["spec"]["claimRef"] |= {"uid": "u-c"}
    return raw


def _csi_capacity() -> Json:
    raw = generator.KINDS["csistoragecapacities.storage.k8s.io"]()
    return raw | {"maximumVolumeSize": "1Gi"}


def _generated() -> dict[str, tuple[Example, ...]]:
    return {kind: (example,) for kind, example in generator.KINDS.items()}


EXAMPLES: dict[str, tuple[Example, ...]] = _generated() | {
    "pods": (
        generator.rich_pod,
        _full_pod,
        generator.running_pod,
        _numbered_pod,
        _native_pod,
        _grouped_pod,
        _labelled_pod,
        _share_pod,
        _slice_pod,
        _volume_pod,
        _pod_of_others,
        _stuck_pod,
        *_pods_of_controllers(),
    ),
    "podgroups.scheduling.volcano.sh": (generator.rich_group, _group_by_annotations),
    "podgroups.scheduling.k8s.io": (_native_group, _basic_native_group),
    "queues.scheduling.volcano.sh": (generator.queue, _queue_with_policy, _queue_by_annotation),
    "jobs.batch.volcano.sh": (generator.rich_job, _elastic_job, _job_with_corners),
    "cronjobs.batch.volcano.sh": (generator.cron, _cron_with_history),
    "jobsets.jobset.x-k8s.io": (_jobset, _elastic_jobset, _leaving(_elastic_jobset)),
    "leaderworkersets.leaderworkerset.x-k8s.io": (
        _leaderworkerset,
        _leader_first,
        _elastic_leaderworkerset,
        _leaving(_elastic_leaderworkerset),
        lambda: _elastic(_leaderworkerset(), **dict.fromkeys(_LWS_EXCLUSIVE, "")),
    ),
    "rayclusters.ray.io": (_raycluster, _elastic_raycluster, _leaving(_elastic_raycluster)),
    **{
        f"{kind.lower()}s.kubeflow.org": _training(kind, key)
        for kind, key in {
            "MPIJob": "mpiReplicaSpecs",
            "PyTorchJob": "pytorchReplicaSpecs",
            "TFJob": "tfReplicaSpecs",
            "XGBoostJob": "xgbReplicaSpecs",
            "PaddleJob": "paddleReplicaSpecs",
            "JAXJob": "jaxReplicaSpecs",
        }.items()
    },
    "commands.bus.volcano.sh": (_command,),
    "jobflows.flow.volcano.sh": (generator.rich_flow, _flow_that_ends),
    "jobtemplates.flow.volcano.sh": (_template,),
    "hypernodes.topology.volcano.sh": (_hypernode,),
    "deployments.apps": (_workload, _leaving(_workload)),
    "replicasets.apps": (_replica_set_of_deployment,),
    "statefulsets.apps": (_stateful_set,),
    "jobs.batch": (_replica_set_of_deployment,),
    "replicasets.apps/v1 size": (_workload, _leaving(_workload)),
    "statefulsets.apps/v1 size": (_parallel, _leaving(_parallel)),
    "jobs.batch/v1 size": (_batch_job, _leaving(_batch_job)),
    "persistentvolumeclaims": (generator.claim, _bound_claim),
    "persistentvolumes": (generator.volume, _old_volume),
    "csistoragecapacities.storage.k8s.io": (_csi_capacity,),
}
