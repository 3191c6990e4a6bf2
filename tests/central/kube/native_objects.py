"""PodGroups and pods of scheduling.k8s.io, as Kubernetes 1.36 and 1.37 write them, and a definition with which the
in-memory API serves them."""

from typing import Any

from central.model.json_types import Json
from tests.central.custom_resources import definition


def groups(version: str) -> str:
    return f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"


def podgroup_definition(version: str) -> Json:
    return definition("scheduling.k8s.io", version, "PodGroup", status={})


def podgroup(name: str, least: int, version: str = "v1alpha2", **spec: Any) -> Json:
    policy = {"gang": {"minCount": least}}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **spec},
    }
