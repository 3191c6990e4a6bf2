"""Pods that differ in anything that decides share no spec: a decoder that has seen one of them reads
the other as a fresh decoder does."""

import copy
from typing import Any

import pytest

from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import container, pod, reader

BASE = pod(
    "p",
    container("main", gpu=2),
    container("side"),
    initContainers=[container("init", gpu=1), container("watch", restartPolicy="Always")],
    metadata={"labels": {"app": "a"}},
)
Path = tuple[str | int, ...]
RESIZED = [{"name": "main", "allocatedResources": {"cpu": "3"}, "resources": {}}]
ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "a"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
NODES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
        }
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
]
CHANGES: dict[str, tuple[Path, Any]] = {
    "a container's request": (("spec", "containers", 0, "resources"), {"requests": {"cpu": "2"}}),
    "a container's limit": (("spec", "containers", 1, "resources"), {"limits": {"cpu": "9"}}),
    "a container's name": (("spec", "containers", 0, "name"), "other"),
    "a container's ports": (("spec", "containers", 0, "ports"), [{"hostPort": 80}]),
    "an init container's request": (
        ("spec", "initContainers", 0, "resources"),
        {"requests": {names.GPU: "8"}},
    ),
    "an init container that stays": (("spec", "initContainers", 0, "restartPolicy"), "Always"),
    "a sidecar that ends": (("spec", "initContainers", 1, "restartPolicy"), None),
    "no init containers": (("spec", "initContainers"), None),
    "overhead": (("spec", "overhead"), {"cpu": "1"}),
    "the pod's resources": (("spec", "resources"), {"requests": {"cpu": "20"}}),
    "a resize": (("status", "containerStatuses"), RESIZED),
    "a resize of an init container": (
        ("status", "initContainerStatuses"),
        [{"name": "watch", "allocatedResources": {"cpu": "30"}}],
    ),
    "node selector": (("spec", "nodeSelector"), {"a": "b"}),
    "node affinity": (("spec", "affinity"), NODES),
    "anti-affinity": (("spec", "affinity"), ANTI),
    "tolerations": (("spec", "tolerations"), [{"operator": "Exists"}]),
    "spread": (("spec", "topologySpreadConstraints"), SPREAD),
    "claims of devices": (("spec", "resourceClaims"), [{"name": "c"}]),
}
# Rules depend on more than the rule's own field.
WITH_RULES: dict[str, tuple[Path, Any]] = {
    "namespace": (("metadata", "namespace"), "other"),
    "own labels": (("metadata", "labels"), {"app": "b"}),
    "host network": (("spec", "hostNetwork"), True),
}


def changed(raw: Json, path: Path, value: Any) -> Json:
    """A copy with another value; None: without the field."""
    made = copy.deepcopy(raw)
    part: Any = made
    for each in path[:-1]:
        part = part[each]
    if value is None:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return made


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_pod_is_read_anew(name: str) -> None:
    other = changed(BASE, *CHANGES[name])
    fresh, plain = reader().pod(other).spec, reader().pod(BASE).spec
    assert fresh != plain  # else the change decides nothing
    seen = reader()
    assert (seen.pod(BASE).spec, seen.pod(other).spec) == (plain, fresh)
    seen = reader()
    assert (seen.pod(other).spec, seen.pod(BASE).spec) == (fresh, plain)


@pytest.mark.parametrize("name", WITH_RULES)
@pytest.mark.parametrize("rule", ["anti-affinity", "spread", "a container's ports"])
def test_a_pod_with_rules_is_read_anew(name: str, rule: str) -> None:
    base = changed(BASE, *CHANGES[rule])
    other = changed(base, *WITH_RULES[name])
    fresh, plain = reader().pod(other).spec, reader().pod(base).spec
    seen = reader()
    assert (seen.pod(base).spec, seen.pod(other).spec) == (plain, fresh)


def test_host_network_alone_is_read_anew() -> None:
    base = changed(BASE, ("spec", "containers", 0, "resources"), {"requests": {names.RDMA: "1"}})
    seen = reader()
    assert not seen.pod(base).spec.on_host
    assert seen.pod(changed(base, ("spec", "hostNetwork"), True)).spec.on_host


def test_a_pod_of_another_scheduler_is_read_anew() -> None:
    base = changed(BASE, *CHANGES["node selector"])
    seen = reader()
    assert seen.pod(base).spec.node_selector
    other = changed(base, ("spec", "schedulerName"), "default-scheduler")
    assert not seen.pod(other).spec.node_selector


def test_equal_pods_share_one_spec() -> None:
    seen = reader()
    assert seen.pod(BASE).spec is seen.pod(copy.deepcopy(BASE)).spec
