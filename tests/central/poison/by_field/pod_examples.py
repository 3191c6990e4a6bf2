"""Pods, rich and valid. See examples.py."""

from collections.abc import Callable
from copy import deepcopy

from central.model.json_types import Json
from protos import names
from tests.central.kube import controller_fixtures
from tests.central.kube.raw_objects import container
from tests.central.poison import corpus, generator
from tests.central.poison.generator import WHEN, meta

Example = Callable[[], Json]


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
    starts = {"command": ["run"], "args": ["-x"], "envFrom": [{"configMapRef": {"name": "c"}}]}
    for part in ("containers", "initContainers"):
        raw["spec"][part][0] |= starts
    raw["spec"]["volumes"] = [
        *(raw["spec"].get("volumes") or ()),
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "s", "secret": {"secretName": "s"}},
    ]
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
        "kubernetes.io/config.mirror": "0",
    }
    raw["spec"]["terminationGracePeriodSeconds"] = 30
    raw["spec"].setdefault("nodeSelector", {})["kubernetes.io/hostname"] = "n0"
    return raw


def _plain_pod(annotations: Json | None = None, labels: Json | None = None, **spec: object) -> Json:
    given = {"schedulerName": "lockstep", "containers": [container(gpu=1)], **spec}
    found = meta(annotations=annotations or {}, labels={"app": "x", **(labels or {})})
    status = {"phase": "Pending", "nominatedNodeName": "n0"}
    return {"metadata": found, "spec": given, "status": status}


def _native_pod() -> Json:
    raw = _plain_pod(schedulingGroup={"podGroupName": "g"}, resourceClaims=[], hostUsers=False)
    main = {
        **raw["spec"]["containers"][0],
        "restartPolicyRules": [{"action": "RestartAllContainers"}],
        "volumeMounts": [{"name": "v", "bindMountOptions": ["nosuid"]}],
    }
    raw["spec"] |= {"containers": [main], "initContainers": [{**main, "name": "init"}]}
    raw["status"] |= {
        "extendedResourceClaimStatus": {"resourceClaimName": "c"},
        "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "made"}],
    }
    return raw


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


EXAMPLES: dict[str, tuple[Example, ...]] = {
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
    )
}
