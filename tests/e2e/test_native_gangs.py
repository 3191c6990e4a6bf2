"""Kubernetes' own PodGroups on a real API server with the feature gates set: gangs of ours beside kube-scheduler's,
and a batch Job that its controller makes a gang."""

from typing import Any

import pytest

from central.model.native_podgroup import condition_type
from protos import names
from tests.e2e.cluster.plane import NATIVE_GANGS
from tests.e2e.cluster.settings import KUBE
from tests.e2e.world import World, disjoint, native_podgroup, pod, podgroup, until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        KUBE not in NATIVE_GANGS, reason="PodGroups of scheduling.k8s.io came with 1.36"
    ),
]
VERSION = NATIVE_GANGS.get(KUBE, [""])[0]
GROUPS = f"/apis/scheduling.k8s.io/{VERSION}/namespaces"


def member(name: str, group: str, gpus: int, scheduler: str = names.SCHEDULER) -> dict[str, Any]:
    made = pod(name, gpus, scheduler=scheduler)
    made["spec"]["schedulingGroup"] = {"podGroupName": group}
    return made


def condition(cluster: World, namespace: str, name: str) -> tuple[str, str, str]:
    found = cluster.api.get(f"{GROUPS}/{namespace}/podgroups/{name}")
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == condition_type(VERSION):
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def test_a_gang_in_one_rack_and_one_that_waits(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, native_podgroup("train", 2, names.RACK))
    cluster.apply(namespace, *(member(f"train-{i}", "train", 2) for i in range(2)))
    pods = cluster.running(namespace, 2)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    held = cluster.agreed()
    assert sorted(len(one.gpus) for one in held.values()) == [2, 2]
    assert disjoint(held.values())
    until("Scheduled", lambda: condition(cluster, namespace, "train")[:2] == ("True", "Scheduled"))

    cluster.apply(namespace, native_podgroup("big", 2, names.RACK))
    cluster.apply(namespace, *(member(f"big-{i}", "big", 8) for i in range(2)))
    until(
        "its reason", lambda: condition(cluster, namespace, "big")[:2] == ("False", "Unschedulable")
    )

    def one_reason() -> bool:
        """A node that an earlier test has changed may come back between the two answers."""
        message = condition(cluster, namespace, "big")[2]
        assert "rack" in message
        return message in cluster.lockstep("explain", f"{namespace}/podgroup/big")

    until("one reason in both", one_reason)
    assert {p["spec"].get("nodeName") for p in cluster.pods(namespace)} == {
        pods[0]["spec"]["nodeName"],
        None,
    }


def test_a_pod_in_two_gangs_is_refused(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, native_podgroup("native", 1), podgroup("volcano", 1))
    both = member("both", "native", 1)
    both["metadata"]["annotations"] = {names.GROUP_NAMES[0]: "volcano"}
    cluster.apply(namespace, both)

    def refused() -> bool:
        [found] = cluster.pods(namespace)
        conditions = found["status"].get("conditions", ())
        return any("a pod belongs to one gang" in c.get("message", "") for c in conditions)

    until("the refusal", refused)


def test_beside_the_gangs_of_kube_scheduler(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, native_podgroup("ours", 2), native_podgroup("theirs", 2))
    theirs = [member(f"theirs-{i}", "theirs", 0, "default-scheduler") for i in range(2)]
    for each in theirs:
        each["spec"]["containers"][0]["resources"] = {}
    cluster.apply(namespace, *theirs, *(member(f"ours-{i}", "ours", 1) for i in range(2)))
    cluster.running(namespace, 4)
    until("ours", lambda: condition(cluster, namespace, "ours")[0] == "True")
    until("theirs", lambda: condition(cluster, namespace, "theirs")[0] == "True")
    assert "placed" in condition(cluster, namespace, "ours")[2]
    assert "placed" not in condition(cluster, namespace, "theirs")[2]


def test_a_job_that_its_controller_makes_a_gang(cluster: World, namespace: str) -> None:
    template = pod("x", 4, script="sleep 3600")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sweep"},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": 2,
            "completions": 2,
            **(
                {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
                if KUBE != "1.36"
                else {}
            ),
            "template": {"spec": template["spec"]},
        },
    }
    cluster.apply(namespace, job)
    pods = cluster.running(namespace, 2)
    [group] = {found["spec"]["schedulingGroup"]["podGroupName"] for found in pods}
    until("Scheduled", lambda: condition(cluster, namespace, group)[0] == "True")
    assert "2 of 2 pods placed" in cluster.lockstep("explain", f"{namespace}/job/sweep")


@pytest.mark.skipif(KUBE != "1.37", reason="CompositePodGroups came with 1.37")
def test_prefill_and_decode_start_together(cluster: World, namespace: str) -> None:
    alpha = "scheduling.k8s.io/v1alpha3"
    reference = {"workloadName": "serve", "templateName": "serve"}
    composite: dict[str, Any] = {
        "apiVersion": alpha,
        "kind": "CompositePodGroup",
        "metadata": {"name": "serve"},
        "spec": {"workloadRef": reference, "schedulingPolicy": {"gang": {"minGroupCount": 2}}},
    }
    groups = [native_podgroup(name, 1) for name in ("prefill", "decode")]
    for each in groups:
        each["spec"] |= {"parentCompositePodGroupName": "serve", "workloadRef": reference}
    cluster.apply(namespace, composite, *groups, member("prefill-0", "prefill", 4))
    path = f"/apis/{alpha}/namespaces/{namespace}/compositepodgroups/serve"

    def scheduled(status: str, text: str) -> bool:
        found = cluster.api.get(path).get("status", {}).get("conditions", ())
        kind = "CompositePodGroupInitiallyScheduled"
        return any(
            (c["type"], c["status"]) == (kind, status) and text in c["message"] for c in found
        )

    until("its reason", lambda: scheduled("False", "needs 2 pods to start, 1 exist"))
    cluster.apply(namespace, member("decode-0", "decode", 4))
    cluster.running(namespace, 2)
    until("Scheduled", lambda: scheduled("True", "placed"))
    both = [("True", "Scheduled")] * 2
    until(
        "the PodGroups",
        lambda: [condition(cluster, namespace, g)[:2] for g in ("prefill", "decode")] == both,
    )
