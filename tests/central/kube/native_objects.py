"""PodGroups and pods of scheduling.k8s.io, as Kubernetes 1.36 and 1.37 write them, and a definition with which the
in-memory API serves them."""

from typing import Any

from central.model.json_types import Json

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def groups(version: str) -> str:
    return f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"


def definition(version: str, group: str = "scheduling.k8s.io", kind: str = "PodGroup") -> Json:
    singular = kind.lower()
    names = {"kind": kind, "plural": f"{singular}s", "singular": singular}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def podgroup(name: str, least: int, version: str = "v1alpha2", **spec: Any) -> Json:
    policy = {"gang": {"minCount": least}}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **spec},
    }
