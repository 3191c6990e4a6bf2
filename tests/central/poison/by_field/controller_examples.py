"""Objects of other controllers, rich and valid. See examples.py."""

from collections.abc import Callable
from copy import deepcopy

from central.model.json_types import Json
from protos import names
from tests.central.kube import controller_fixtures
from tests.central.kube.raw_objects import container
from tests.central.poison.by_field.job_examples import ELASTIC_NOTES
from tests.central.poison.generator import WHEN, meta

Example = Callable[[], Json]


_PLACED = {
    names.QUEUE_NAME: "q",
    names.TOPOLOGY_REQUIRED: names.BLOCK,
    names.TOPOLOGY_PREFERRED: names.RACK,
    names.PLACEMENT: "pack",
}


def _elastic(raw: Json, **more: str) -> Json:
    raw = deepcopy(raw)
    raw["metadata"]["annotations"] = {**ELASTIC_NOTES, **more}
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
        "metadata": meta(annotations=ELASTIC_NOTES, ownerReferences=[owner]),
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


EXAMPLES: dict[str, tuple[Example, ...]] = {
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
    "deployments.apps": (_workload, _leaving(_workload)),
    "replicasets.apps": (_replica_set_of_deployment,),
    "statefulsets.apps": (_stateful_set,),
    "jobs.batch": (_replica_set_of_deployment,),
    "replicasets.apps/v1 size": (_workload, _leaving(_workload)),
    "statefulsets.apps/v1 size": (_parallel, _leaving(_parallel)),
    "jobs.batch/v1 size": (_batch_job, _leaving(_batch_job)),
}
