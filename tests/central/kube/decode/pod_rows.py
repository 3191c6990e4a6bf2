"""A pod, each field of it that is read with another value, and what that changes in the fact."""

import copy
from dataclasses import replace
from typing import Any

from central.kube.decode.node_features import MOUNT_OPTIONS, RESTART_ALL
from central.model.device_claims import EXTENDED, PodDeviceClaim
from central.model.facts import PodSeen, PodSpec, Toleration
from central.model.jobspec import JobMember
from central.model.json_types import Json
from central.model.pod_rules import (
    Apart,
    Expression,
    Near,
    Nearer,
    Peers,
    Port,
    Requirement,
    Rules,
    Selector,
    Spread,
)
from protos import names

Changes = dict[str, Any]
GIB = 2**30
MINUTE = "1970-01-01T00:01:00Z"
POD: Json = {
    "metadata": {"name": "w-3", "namespace": "ns", "uid": "u", "labels": {}, "annotations": {}},
    "spec": {
        "schedulerName": "lockstep",
        "containers": [
            {
                "name": "main",
                "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {names.GPU: "2"},
                },
            }
        ],
    },
    "status": {},
}
REQUESTS = (("cpu", 1000), ("memory", GIB), (names.GPU, 2), ("pods", 1))
SPEC = PodSpec(REQUESTS, gpu_containers=(("main", 2),))
SEEN = PodSeen("u", "ns", "w-3", SPEC, order=(3, "w-3"))


def spec(**changes: Any) -> Changes:
    return {"spec": replace(SPEC, **changes)}


def asks(container: str = "main", *, devices: Changes | None = None, **amounts: int) -> Changes:
    """With these amounts besides, and with other devices of the container."""
    found = dict(REQUESTS) | {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return spec(requests=tuple(sorted(found.items())), **(devices or {}))


def rules(**found: Any) -> Changes:
    return spec(rules=Rules(**found))


def refused(sentence: str, **more: Any) -> Changes:
    return spec(unsupported=sentence, **more)


def container(**fields: Any) -> list[Json]:
    return [{**POD["spec"]["containers"][0], **fields}]


def resources(**requests: str) -> Json:
    return {"requests": requests, "limits": {names.GPU: "2"}}


def controller(kind: str, name: str, version: str = "v1", **more: Any) -> list[Json]:
    return [
        {"apiVersion": version, "kind": kind, "name": name, "uid": "o", "controller": True, **more}
    ]


BATCH = "batch.volcano.sh/v1alpha1"
MEMBER = JobMember("train", "o", "", 3)
SELECTOR = {"matchLabels": {"app": "a"}}
ALIKE = Selector(("ns",), (Expression("app", "In", ("a",)),))
EVEN = Spread(Peers((ALIKE,), leaving=False), "zone", 2)
TERM = {"labelSelector": SELECTOR, "topologyKey": "zone"}
EXISTS = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
DISK = Requirement("disk", "Exists", ())
REQUIRED, PREFERRED = (
    f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
)


IN = {"key": "gen", "operator": "In", "values": ["h100", "h200"]}
NAMED = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
NODE_TERMS: list[tuple[Json, tuple[Requirement, ...]]] = [
    (EXISTS, (DISK,)),
    ({"matchExpressions": [IN]}, (Requirement("gen", "In", ("h100", "h200")),)),
    (
        {"matchExpressions": [IN], "matchFields": [NAMED]},
        (
            Requirement("gen", "In", ("h100", "h200")),
            Requirement("metadata.name", "NotIn", ("n1",), field=True),
        ),
    ),
]


def affinity(kind: str, when: str, value: Any) -> Json:
    return {kind: {when: value}}


def selector(
    *expressions: Expression, namespaces: tuple[str, ...] = ("ns",), **more: Any
) -> Selector:
    return Selector(namespaces, (*ALIKE.labels, *expressions), **more)  # type: ignore[misc]


# What a term may say besides, and which pods it selects then. The pod has the label run=7.
OWN = {"matchLabelKeys": ["run", "none"]}
SELECTED: list[tuple[Json, Selector]] = [
    ({"labelSelector": None}, Selector(("ns",), None)),
    ({"labelSelector": {}}, Selector(("ns",), ())),
    (
        {"labelSelector": {**SELECTOR, "matchExpressions": [{**IN, "operator": "NotIn"}]}},
        selector(Expression("gen", "NotIn", ("h100", "h200"))),
    ),
    (OWN, selector(Expression("run", "In", ("7",)))),
    ({"mismatchLabelKeys": ["run"]}, selector(Expression("run", "NotIn", ("7",)))),
]
ELSEWHERE: list[tuple[Json, Selector]] = [
    ({"namespaces": ["b", "a"]}, selector(namespaces=("a", "b"))),
    ({"namespaceSelector": {}}, selector(namespaces=(), namespace_labels=())),
    (
        {"namespaceSelector": {"matchExpressions": [IN]}},
        selector(namespaces=(), namespace_labels=(Expression("gen", "In", ("h100", "h200")),)),
    ),
    (
        {"namespaceSelector": SELECTOR, "namespaces": ["b"]},
        selector(namespaces=("b",), namespace_labels=ALIKE.labels),
    ),
]
SPREADS: list[tuple[Json, Spread]] = [
    *(
        (more, Spread(Peers((found,), leaving=False), "zone", 2))
        for more, found in SELECTED
        if more != {"labelSelector": {}}
    ),
    # An empty selector of a spread counts no pod in newer versions.
    ({"labelSelector": {}}, Spread(Peers((Selector(("ns",), None),), leaving=False), "zone", 2)),
    *(
        (more, replace(EVEN, **found))
        for more, found in (
            ({"maxSkew": 3}, {"skew": 3}),
            ({"minDomains": 3}, {"domains": 3}),
            ({"minDomains": None}, {}),
            ({"nodeAffinityPolicy": "Honor"}, {}),
            ({"nodeAffinityPolicy": "Ignore"}, {"affinity": False}),
            ({"nodeTaintsPolicy": "Honor"}, {"taints": True}),
            ({"nodeTaintsPolicy": "Ignore"}, {}),
            ({"topologyKey": "rack"}, {"key": "rack"}),
            ({"whenUnsatisfiable": "DoNotSchedule"}, {}),
        )
    ),
]
SPREAD = {"maxSkew": 2, "topologyKey": "zone", "labelSelector": SELECTOR}
Row = tuple[str, Any, Changes]  # path; value, or None: without the field; what changes

IDENTITY: list[Row] = [
    ("metadata/name", "w", {"name": "w", "order": (0, "w")}),
    ("metadata/name", "w-7-x", {"name": "w-7-x", "order": (0, "w-7-x")}),
    ("metadata/name", "12", {"name": "12", "order": (12, "12")}),
    ("metadata/name", "w-" + "1" * 20, {"name": "w-" + "1" * 20, "order": (10**17 * 10 // 9, "w-" + "1" * 20)}),
    ("metadata/namespace", "team", {"namespace": "team"}),
    ("metadata/uid", "v", {"uid": "v"}),
    ("metadata/labels", None, {}),
    ("metadata/annotations", None, {}),
    ("metadata/labels", {"b": "2", "a": "1"}, {"labels": (("a", "1"), ("b", "2"))}),
    ("metadata/creationTimestamp", MINUTE, {"created": 60.0}),
    ("metadata/deletionTimestamp", MINUTE, {"deleting": True, "ended": 60.0}),
    ("metadata/deletionGracePeriodSeconds", 30, {}),  # alone it says nothing
    ("metadata/ownerReferences", controller("ReplicaSet", "web", controller=False), {}),
    (
        "metadata/ownerReferences",
        controller("ReplicaSet", "web"),
        {"owner": "o", "owner_name": "replicaset/web"},
    ),
    (
        "metadata/ownerReferences",
        controller("DaemonSet", "web"),
        {"owner": "o", "owner_name": "daemonset/web", "tied": True},
    ),
    ("metadata/ownerReferences", controller("DaemonSet", "web", controller=False), {}),
    ("metadata/annotations", {"kubernetes.io/config.mirror": "1"}, {"tied": True}),
    (
        "spec/nodeSelector",
        {"kubernetes.io/hostname": "n"},
        {**spec(node_selector=(("kubernetes.io/hostname", "n"),)), "tied": True},
    ),
]  # fmt: skip
LIFE: list[Row] = [
    ("spec/nodeName", "n1", {"node": "n1"}),
    ("spec/schedulingGates", [{"name": "g"}], {"gated": True, "gates": ("g",)}),
    ("spec/schedulingGates", [], {}),
    ("spec/priority", 7, {"priority": 7}),
    ("spec/priority", -7, {"priority": -7}),
    ("spec/preemptionPolicy", "Never", {"preempts": False}),
    ("spec/preemptionPolicy", "PreemptLowerPriority", {}),
    ("spec/serviceAccountName", "trainer", {"service_account": "trainer"}),
    ("status", None, {}),
    ("status/phase", "Running", {"phase": "Running"}),
    ("status/startTime", MINUTE, {"started": 60.0}),
    (
        "status/containerStatuses",
        [{"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}],
        {"stuck": "ImagePullBackOff"},
    ),
    ("status/conditions", [{"type": "Ready", "status": "False"}], {}),  # without a node
    ("spec/volumes", [{"name": "v", "configMap": {"name": "c"}}], {}),
    ("spec/volumes", [{"name": "v", "secret": {"secretName": "s"}}], {}),
]
GANGS: list[Row] = [
    ("spec/schedulingGroup", {"podGroupName": "g"}, {"gang": "podgroup/g", "podgroup": "g"}),
    (
        "spec/schedulingGroup",
        {"other": "g"},
        refused("spec.schedulingGroup.podGroupName: the name of a PodGroup is missing"),
    ),
    *(
        (f"metadata/annotations/{key}", "g", {"gang": "g"})
        for key in ("scheduling.k8s.io~group-name", "scheduling.volcano.sh~group-name")
    ),
    (
        "metadata/labels",
        {names.GANG_LABEL: "g", names.GANG_MIN: "3"},
        {"gang": "g", "gang_min": 3, "labels": ((names.GANG_LABEL, "g"), (names.GANG_MIN, "3"))},
    ),
    (
        "metadata/annotations",
        {names.GANG_MIN: "3"},
        refused(
            f"annotation {names.GANG_MIN}: the pod has no controller, and no label {names.GANG_LABEL}"
        ),
    ),
]
INDEX_KEYS = (
    "batch.kubernetes.io~job-completion-index",
    "volcano.sh~task-index",
    "leaderworkerset.sigs.k8s.io~worker-index",
    "training.kubeflow.org~replica-index",
    "apps.kubernetes.io~pod-index",
)
ANNOTATIONS: list[Row] = [
    *((f"metadata/annotations/{key}", "12", {"order": (12, "w-3")}) for key in INDEX_KEYS),
    *((f"metadata/annotations/{key}", "0", {"order": (0, "w-3")}) for key in INDEX_KEYS[:1]),
    *((f"metadata/annotations/{key}", value, {}) for key in INDEX_KEYS[:1] for value in ("", "x", "-1", "²", "1x", "1" * 17 + "x", "1" * 17 + "²", "²" * 18)),
    (f"metadata/annotations/{INDEX_KEYS[0]}", "9" * 18 + "²", {"order": (10**18 - 1, "w-3")}),
    (f"metadata/annotations/{INDEX_KEYS[0]}", "9" * 18 + "x", {"order": (10**18 - 1, "w-3")}),
    (f"metadata/annotations/{INDEX_KEYS[0]}", "9" * 30, {"order": (10**18 - 1, "w-3")}),
    *(
        (f"metadata/labels/{key}", "12", {"order": (12, "w-3"), "labels": ((key.replace("~", "/"), "12"),)})
        for key in INDEX_KEYS
    ),
    ("metadata/annotations/volcano.sh~task-spec", "ps", {"task": "ps"}),
    (
        "metadata/labels/volcano.sh~task-spec",
        "ps",
        {"task": "ps", "labels": ((names.TASK, "ps"),)},
    ),
    ("metadata/annotations/scheduling.volcano.sh~queue-name", "q", {"queue": "q"}),
    ("metadata/annotations/lockstep.dev~user", "ann", {"user": "ann"}),
    ("metadata/annotations/lockstep.dev~checkpointed-at", MINUTE, {"checkpoint": 60.0}),
    ("metadata/annotations/lockstep.dev~runs-for", "90s", {"runs_for_s": 90.0}),
    ("metadata/annotations/lockstep.dev~movable", "true", {"movable": True}),
    ("metadata/annotations/lockstep.dev~suspendable", "1m30s", {"suspension_s": 90.0}),
    ("spec/terminationGracePeriodSeconds", 90, {"grace_s": 90}),
    ("metadata/annotations/volcano.sh~cooldown-time", "90s", {"cooldown_s": 90.0}),
    ("metadata/annotations/volcano.sh~preemptable", "false", {"preemptable": False}),
    (
        "metadata/labels/volcano.sh~preemptable",
        "true",
        {"preemptable": True, "labels": ((names.PREEMPTABLE, "true"),)},
    ),
    ("metadata/annotations/lockstep.dev~placement", "pack", {"placement": "pack"}),
    ("metadata/annotations/lockstep.dev~topology-required", "node", {"topology_required": "node"}),
    ("metadata/annotations/lockstep.dev~topology-preferred", "node", {"topology_preferred": "node"}),
    ("metadata/annotations/volcano.sh~network-topology-highest-tier", "2", {"required_tier": 2}),
    ("metadata/annotations/lockstep.dev~gpu-model", "H100", spec(gpu_models=("h100",))),
    ("metadata/annotations/lockstep.dev~gpu-memory-least", "1Gi", spec(gpu_memory=GIB)),
]  # fmt: skip
INFEASIBLE = {"type": "PodResizePending", "reason": "Infeasible"}
GRANTED = {"name": "main", "allocatedResources": {"cpu": "500m", "memory": "1Gi", names.GPU: "2"}}
HALF = spec(requests=(("cpu", 500), ("memory", GIB), (names.GPU, 2), ("pods", 1)))
AMOUNTS: list[Row] = [
    ("spec/containers", container(restartPolicy="Always"), {}),  # means something in init containers only
    ("spec/containers", [{**container()[0], "image": "i", "command": ["c"], "args": ["a"], "envFrom": []}], {"template": 54441866}),
    ("spec/containers", container(name="x"), spec(gpu_containers=(("x", 2),))),
    ("spec/containers", container(resources=resources(cpu="2")), spec(requests=(("cpu", 2000), (names.GPU, 2), ("pods", 1)))),
    ("spec/containers", [*container(), {"name": "side"}], {}),
    ("spec/containers", [*container(), *container(name="b")], spec(requests=(("cpu", 2000), ("memory", 2 * GIB), (names.GPU, 4), ("pods", 1)), gpu_containers=(("main", 2), ("b", 2)))),
    ("spec/initContainers", [{"name": "i", "image": "", "resources": {"requests": {"cpu": "3"}}}], asks(cpu=3000)),
    (
        "spec/initContainers",
        [{"name": "i", "resources": {"requests": {"cpu": "3"}}, "restartPolicy": "Always"}],
        asks(cpu=4000),
    ),
    ("spec/initContainers", [{"name": "i", "resources": resources(), "restartPolicy": "Always"}], spec(requests=(("cpu", 1000), ("memory", GIB), (names.GPU, 4), ("pods", 1)), gpu_containers=(("i", 2), ("main", 2)))),
    ("spec/overhead", {"cpu": "250m"}, asks(cpu=1250)),
    ("spec/resources", {"requests": {"cpu": "5"}}, asks(cpu=5000)),
    ("spec/resources", {"limits": {"cpu": "5"}}, {}),  # defaulted from the containers
    (
        "status/containerStatuses",
        [{"name": "main", "allocatedResources": {"cpu": "4", "memory": "1Gi"}}],
        asks(cpu=4000),
    ),
    (
        "status/containerStatuses",
        [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}],
        asks(cpu=4000),
    ),
    *(
        ("status", {"containerStatuses": [GRANTED], **why}, found)
        for why, found in (
            ({}, {}),
            ({"resize": "Deferred"}, {}),
            ({"resize": "Infeasible"}, HALF),
            ({"conditions": [INFEASIBLE]}, HALF),
            ({"conditions": [{**INFEASIBLE, "reason": "Deferred"}]}, {}),
            ({"conditions": [{**INFEASIBLE, "type": "Ready"}]}, {}),
        )
    ),
    ("spec/resourceClaims", [{"name": "c"}], refused("spec.resourceClaims[c]: needs either resourceClaimName or resourceClaimTemplateName")),
    ("spec/resourceClaims", [{"name": "c", "resourceClaimName": "mine"}], {"device_claims": (PodDeviceClaim("c", "mine"),)}),
    ("spec/resourceClaims", [{"name": "c", "resourceClaimTemplateName": "t"}], {"device_claims": (PodDeviceClaim("c", "", "t"),)}),
    ("status/resourceClaimStatuses", [{"name": "c", "resourceClaimName": "w-3-c"}], {}),  # the pod names no claim
    ("status/extendedResourceClaimStatus", {"resourceClaimName": "x"}, {"device_claims": (PodDeviceClaim(EXTENDED, "x"),)}),
    ("spec/hostNetwork", True, {}),
    ("status/nominatedNodeName", "n1", {}),  # told, which is not compared
    ("spec/volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], {"claims": ("c",)}),
    ("spec/volumes", [{"name": "v", "ephemeral": {}}], {}),
    ("spec/volumes", [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}], {"claims": ("w-3-v",)}),
    ("spec/volumes", [{"name": "v", "emptyDir": {}}], {}),
    ("spec/volumes", {"v": 1}, refused("spec.volumes: {1 fields} is not a list")),
]  # fmt: skip
PLACES: list[Row] = [
    ("spec/containers", container(volumeMounts=[{"name": "v", "bindMountOptions": []}]), {}),
    ("spec/initContainers", container(restartPolicyRules=[{"action": "Restart"}]), {}),
    ("spec/hostUsers", False, {}),  # hostNetwork as well needs a feature
    ("spec/containers", container(restartPolicyRules=[{"action": "Restart"}]), {}),
    ("spec/containers", container(restartPolicyRules=[{"action": "RestartAllContainers"}]), spec(features=(RESTART_ALL,))),
    ("spec/initContainers", container(volumeMounts=[{"name": "v", "bindMountOptions": ["nosuid"]}]), spec(features=(MOUNT_OPTIONS,))),
    ("spec/nodeSelector", {"b": "2", "a": "1"}, spec(node_selector=(("a", "1"), ("b", "2")))),
    ("spec/tolerations", [{"operator": "Exists"}], spec(tolerations=(Toleration("", "Exists", "", ""),))),
    (
        "spec/tolerations",
        [{"key": "k", "value": "v", "effect": "NoExecute"}, {"operator": "Gt"}],
        spec(tolerations=(Toleration("k", "Equal", "v", "NoExecute"),)),
    ),
    (
        "spec/affinity",
        affinity("nodeAffinity", REQUIRED, {"nodeSelectorTerms": [EXISTS]}),
        spec(node_terms=((DISK,),)),
    ),
    *(
        (
            "spec/affinity",
            affinity("nodeAffinity", REQUIRED, {"nodeSelectorTerms": [term, {}]}),
            spec(node_terms=(found,)),
        )
        for term, found in NODE_TERMS
    ),
    *(
        (
            "spec/affinity",
            affinity("nodeAffinity", PREFERRED, [{"weight": 9, "preference": term}]),
            rules(nodes=((9, found),)),
        )
        for term, found in NODE_TERMS
    ),
    ("spec/affinity", affinity("nodeAffinity", REQUIRED, {}), spec(node_terms=())),
    ("spec/affinity", {"nodeAffinity": {}}, {}),
    (
        "spec/affinity",
        affinity("nodeAffinity", PREFERRED, [{"weight": 5, "preference": EXISTS}]),
        rules(nodes=((5, (DISK,)),)),
    ),
    (
        "spec/affinity",
        affinity("podAffinity", REQUIRED, [TERM]),
        rules(near=Near(Peers((ALIKE,)), ("zone",))),
    ),
    (
        "spec/affinity",
        affinity("podAntiAffinity", REQUIRED, [TERM]),
        rules(apart=(Apart(Peers((ALIKE,)), "zone"),)),
    ),
    (
        "spec/affinity",
        affinity("podAffinity", PREFERRED, [{"weight": 5, "podAffinityTerm": TERM}]),
        rules(nearer=(Nearer(Peers((ALIKE,)), "zone", 5),)),
    ),
    (
        "spec/affinity",
        affinity("podAntiAffinity", PREFERRED, [{"weight": 5, "podAffinityTerm": TERM}]),
        rules(nearer=(Nearer(Peers((ALIKE,)), "zone", -5),)),
    ),
    (
        "spec/topologySpreadConstraints",
        [SPREAD],
        rules(spread=(EVEN,)),
    ),
    (
        "spec/topologySpreadConstraints",
        [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}],
        rules(even=(EVEN,)),
    ),
    *(
        (
            "spec/containers",
            container(ports=[{"containerPort": 80, "hostPort": 81, **more}]),
            rules(ports=(port,)),
        )
        for more, port in (
            ({}, Port("TCP", 81)),
            ({"protocol": "UDP"}, Port("UDP", 81)),
            ({"hostIP": "10.0.0.1"}, Port("TCP", 81, "10.0.0.1")),
            ({"hostIP": "0.0.0.0"}, Port("TCP", 81)),
        )
    ),
    (
        "spec/initContainers",
        [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 81, "protocol": "TCP", "hostIP": ""}]}],
        rules(ports=(Port("TCP", 81),)),
    ),
    ("spec/initContainers", [{"name": "i", "ports": [{"hostPort": 81}]}], {}),
    ("spec/containers", container(ports=[{"containerPort": 80}]), {}),
    (
        "spec/containers",
        container(ports=[{"containerPort": 80}, {"containerPort": 80, "hostPort": 81}]),
        rules(ports=(Port("TCP", 81),)),
    ),
]  # fmt: skip
TERMS: list[Row] = [
    *(
        ("spec/affinity", affinity(kind, when, [term]), rules(**expected))
        for more, found in (*SELECTED, *ELSEWHERE)
        for kind, when, term, expected in (
            ("podAffinity", REQUIRED, TERM | more, {"near": Near(Peers((found,)), ("zone",))}),
            (
                "podAntiAffinity",
                REQUIRED,
                TERM | more,
                {"apart": (Apart(Peers((found,)), "zone"),)},
            ),
            (
                "podAffinity",
                PREFERRED,
                {"weight": 5, "podAffinityTerm": TERM | more},
                {"nearer": (Nearer(Peers((found,)), "zone", 5),)},
            ),
            (
                "podAntiAffinity",
                PREFERRED,
                {"weight": 5, "podAffinityTerm": TERM | more},
                {"nearer": (Nearer(Peers((found,)), "zone", -5),)},
            ),
        )
    ),
    *(
        ("spec/topologySpreadConstraints", [{**SPREAD, **more}], rules(spread=(found,)))
        for more, found in SPREADS
    ),
]
CALLED = [*IDENTITY, *LIFE, *GANGS, *ANNOTATIONS, *AMOUNTS, *PLACES]


def changed(raw: Json, path: str, value: Any) -> Json:
    """A copy with another value; ~ stands for / inside a key."""
    made = copy.deepcopy(raw)
    *folders, name = (part.replace("~", "/") for part in path.split("/"))
    part = made
    for each in folders:
        part = part[each]
    if value is None:
        del part[name]
    else:
        part[name] = value
    return made
