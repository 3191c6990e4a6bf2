"""Volumes on the real API server, with its own volume controller and real kubelets: a gang whose claims
wait gets volumes of the nodes that it is placed on, all of them at once."""

from typing import Any

import pytest

from tests.e2e.world import World, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
Json = dict[str, Any]
HOST = "kubernetes.io/hostname"


def local(namespace: str) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": f"local-{namespace}"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(namespace: str, name: str, node: str, size: str = "5Gi") -> Json:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}", "labels": {"test": namespace}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"local-{namespace}",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/tmp/{namespace}-{name}", "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def claim(namespace: str, name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"local-{namespace}",
            "resources": {"requests": {"storage": "2Gi"}},
        },
    }


def using(made: Json, *claims: str) -> Json:
    made["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
    ]
    made["spec"]["containers"][0]["volumeMounts"] = [
        {"name": name, "mountPath": f"/{name}"} for name in claims
    ]
    return made


def bound(cluster: World, namespace: str) -> dict[str, str]:
    """The claims' volumes, of those that are bound for good."""
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    return {
        one["metadata"]["name"]: one["spec"]["volumeName"].removeprefix(f"{namespace}-")
        for one in cluster.api.get(path)["items"]
        if one["status"].get("phase") == "Bound"
    }


def test_a_gang_whose_claims_wait_for_volumes_that_exist(cluster: World, namespace: str) -> None:
    one, two = cluster.nodes[:2]
    try:
        cluster.apply(
            namespace,
            local(namespace),
            volume(namespace, "a0", one, "9Gi"),
            volume(namespace, "a1", one, "1Gi"),
            volume(namespace, "a2", one),
            *(claim(namespace, f"data-{i}") for i in range(3)),
            podgroup("g", 3),
            *(using(pod(f"g-{i}", 2, gang="g"), f"data-{i}") for i in range(3)),
        )

        def told() -> str:
            status = cluster.podgroup(namespace, "g")["status"]
            return str(status["conditions"][-1]["message"])

        why = "short of volumes: enough for 2"
        until("the sentence", lambda: why in told())
        assert not bound(cluster, namespace)
        cluster.apply(namespace, volume(namespace, "b0", two))
        pods = cluster.running(namespace, 3)
        given = bound(cluster, namespace)
        assert sorted(given.values()) == ["a0", "a2", "b0"]
        where = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods}
        for rank in range(3):
            on = one if given[f"data-{rank}"].startswith("a") else two
            assert where[f"g-{rank}"] == on

        # Its pods made again come back to their volumes, and a claim alone finds none that is free.
        cluster.kubectl("-n", namespace, "delete", "pod", "g-0", "--wait=true")
        again = using(pod("g-0", 2, gang="g"), "data-0")
        more = using(pod("more", 1), "more")
        cluster.apply(namespace, again, claim(namespace, "more"), more)

        def by_name() -> dict[str, Json]:
            return {p["metadata"]["name"]: p for p in cluster.pods(namespace)}

        until("the pod to be back", lambda: by_name()["g-0"]["status"]["phase"] == "Running")
        assert by_name()["g-0"]["spec"]["nodeName"] == where["g-0"]
        assert not by_name()["more"]["spec"].get("nodeName")
        assert "no free volumes" in cluster.lockstep("explain", f"{namespace}/more")
    finally:
        cluster.kubectl("delete", "pv", "-l", f"test={namespace}", "--wait=false")
        cluster.kubectl("delete", "storageclass", f"local-{namespace}", "--ignore-not-found")
