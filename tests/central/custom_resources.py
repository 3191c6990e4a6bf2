"""Definitions with which an API server serves kinds of other projects."""

from typing import Any

from central.model.json_types import Json

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(
    group: str, version: str, kind: str, scope: str = "Namespaced", **subresources: Any
) -> Json:
    """Without a schema: every field is kept."""
    singular = kind.lower()
    plural = f"{singular}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": kind, "plural": plural, "singular": singular, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }
