"""Which pending pods of other schedulers surplus leaves for, with --yield-to-others."""

import copy
from typing import Any

import pytest

from central.kube.decode.decoder import Decoder
from central.model.facts import PodSeen

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
ON_SSD = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}


def raw(spec: Json | None = None, status: Json | None = None, **meta: Any) -> Json:
    container: Json = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    container["ports"] = [{"containerPort": 80}]
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", **meta},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": 7,
            "containers": [container],
            **(spec or {}),
        },
        "status": {"phase": "Pending", "conditions": [refused], **(status or {})},
    }


def seen(pod: Json, *, yields: bool = True) -> PodSeen:
    return Decoder(("lockstep",), (), yield_to_others=yields).pod(copy.deepcopy(pod))


def test_where_it_fits_is_read_as_of_our_own() -> None:
    spec = {
        "nodeSelector": {"zone": "z1"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {REQUIRED: ON_SSD, PREFERRED: [{"weight": 1, "preference": {}}]}
        },
    }
    found = seen(raw(spec))
    assert (found.yielded_to, found.ours, found.gang_key, found.priority) == (True, False, None, 7)
    assert found.spec.node_selector == (("zone", "z1"),)
    assert len(found.spec.node_terms or ()) == 1
    assert len(found.spec.tolerations) == 1
    assert dict(found.spec.requests)["cpu"] == 3000


def test_soft_rules_do_not_matter() -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    spec = {
        "affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}},
        "topologySpreadConstraints": [spread],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    found = seen(raw(spec))
    assert found.yielded_to
    assert found.spec == seen(raw({"volumes": []})).spec


def test_without_the_flag_nothing_is_different() -> None:
    spec = {"nodeSelector": {"zone": "z1"}}
    found = seen(raw(spec), yields=False)
    assert not found.yielded_to
    assert found.spec.node_selector == ()


BOUND: Json = {"nodeName": "n1"}
HARD_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
WAITS: Json = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
NOT: dict[str, Json] = {
    "bound": raw(BOUND),
    "ours": raw({"schedulerName": "lockstep"}),
    "gated": raw({"schedulingGates": [{"name": "g"}]}),
    "gated, as its condition says": raw(status={"conditions": [WAITS]}),
    "deleted": raw(deletionTimestamp="2026-01-01T00:00:00Z"),
    "not tried yet": raw(status={"conditions": []}),
    "scheduled": raw(
        status={"conditions": [{**WAITS, "status": "True", "reason": "Unschedulable"}]}
    ),
    "another condition": raw(
        status={"conditions": [{"type": "Ready", "status": "False", "reason": "Unschedulable"}]}
    ),
    "its scheduler evicts others": raw(status={"nominatedNodeName": "n1"}),
    "nobody is to be evicted for it": raw({"preemptionPolicy": "Never"}),
    "anti-affinity": raw({"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}),
    "affinity": raw({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}),
    "spread": raw({"topologySpreadConstraints": [HARD_SPREAD]}),
    "host network": raw({"hostNetwork": True}),
    "host port": raw(
        {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]}
    ),
    "a claim": raw({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
    "a claim of its own": raw({"volumes": [{"name": "v", "ephemeral": {}}]}),
    "devices by claim": raw({"resourceClaims": [{"name": "d"}]}),
    "conditions that are none": raw(status={"conditions": ["x"]}),
    "conditions that are no list": raw(status={"conditions": 7}),
    "affinity that is none": raw({"affinity": {"podAffinity": 7}}),
    "a selector that is wrong": raw({"nodeSelector": {"zone": 7}}),
}


@pytest.mark.parametrize("pod", NOT.values(), ids=NOT.keys())
def test_others_are_not(pod: Json) -> None:
    """And are read as they are without the flag."""
    assert not seen(pod).yielded_to
    assert seen(pod) == seen(pod, yields=False)
