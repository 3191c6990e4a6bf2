"""Volumes that exist, in a simulation: given once, and kept by their claims when pods are made again."""

import json
from typing import Any

from tests.central.simulator.manifests import Simulate, gang, node, pod, where

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
LOCAL: Json = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def machines(*names: str) -> list[Json]:
    made = [node(name) for name in names]
    for one in made:
        one["metadata"]["labels"][HOST] = one["metadata"]["name"]
    return made


def volume(name: str, on: str, size: str = "1Ti") -> Json:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": f"/disks/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def claim(name: str, size: str = "500Gi", **notes: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "annotations": {f"lockstep.dev/{k}": v for k, v in notes.items()},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": size}},
        },
    }


def using(made: Json, *claims: str) -> Json:
    made["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
    ]
    return made


def test_a_gang_goes_where_there_are_volumes_for_all(simulate: Simulate) -> None:
    group, *members = gang("g", 3, 1)
    for rank, member in enumerate(members):
        using(member, f"data-{rank}")
    found = simulate(
        LOCAL,
        *machines("a", "b", "c"),
        volume("a-0", "a", "100Gi"),
        volume("b-0", "b"),
        *(volume(f"c-{i}", "c") for i in range(2)),
        *(claim(f"data-{i}") for i in range(3)),
        group,
        *members,
    )
    assert sorted(where(found).values()) == ["b", "c", "c"]


def test_a_pod_without_a_volume_is_pending_until_a_claim_is_deleted(simulate: Simulate) -> None:
    first = using(pod("first", 1, runs="10s"), "one")
    second = using(pod("second", 1, at="1s"), "two")
    objects = (LOCAL, *machines("a", "b"), volume("a-0", "a"), claim("two"), first, second)
    found = simulate(*objects, claim("one"))
    assert where(found) == {"first": "a"}
    (waits,) = found["waiting"]
    assert "2 nodes: no free volumes (1 of class local with 500Gi)" in waits["reason"]
    found = simulate(*objects, claim("one", **{"leaves-at": "20s"}))
    assert {p["pod"]: (p["node"], p["at_s"]) for p in found["placements"]} == {
        "first": ("a", 0.0),
        "second": ("a", 20.0),
    }


def test_scratch_space_comes_and_goes_with_its_pod(simulate: Simulate) -> None:
    """An ephemeral volume on a local disk: whoever comes next gets the disk."""

    def scratching(made: Json) -> Json:
        template = {"spec": claim("-")["spec"]}
        scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
        made["spec"]["volumes"] = [scratch]
        return made

    first = scratching(pod("first", 1, runs="10s", leaves_at="20s"))
    second = scratching(pod("second", 1, at="1s"))
    found = simulate(LOCAL, *machines("a", "b"), volume("a-0", "a"), first, second)
    assert {p["pod"]: (p["node"], p["at_s"]) for p in found["placements"]} == {
        "first": ("a", 0.0),
        "second": ("a", 20.0),
    }
    second["spec"]["volumes"][0]["ephemeral"] = {"volumeClaimTemplate": {}}
    objects: list[Json] = [LOCAL, *machines("a"), second]
    simulate.text("\n---\n".join(map(json.dumps, objects)), code=2)
    assert "spec.volumes: the field spec is missing" in simulate.errors


def test_a_pod_that_is_made_again_comes_back_to_its_volume(simulate: Simulate) -> None:
    data = using(pod("data", 8, recreate="true"), "one")
    urgent = pod("urgent", 8, at="5s", runs="10s", priority_class="high")
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    other = pod("other", 8, on="b")
    found = simulate(
        LOCAL, high, *machines("a", "b"), volume("a-0", "a"), claim("one"), data, other, urgent
    )
    places = [(p["pod"], p["node"], p["at_s"]) for p in found["placements"] if p["pod"] == "data"]
    assert places == [("data", "a", 0.0), ("data", "a", 15.0)]
