"""OpenAPI version 3 documents, as `kubectl explain` reads them. Custom resources have the schemas of their definitions;
of Kubernetes' own kinds only the outline is known here. Pure."""

from typing import Any

from central.model.json_types import Json
from central.standalone.served_kinds import Registry, Resource

ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
OUTLINE = "The in-memory API does not know the fields of Kubernetes' own kinds."


def document(path: str, registry: Registry) -> Json | None:
    """The index for "", else the document of a group and version: api/v1, apis/apps/v1. None: there is none."""
    versions = {_root(resource): None for resource in registry}
    if not path:
        paths = {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in versions}
        return {"paths": paths}
    if path not in versions:
        return None
    resources = [each for each in registry if _root(each) == path]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Lockstep's in-memory API", "version": "unversioned"},
        "paths": {at: item for each in resources for at, item in _paths(each)},
        "components": {"schemas": {_name(each): _schema(each) for each in resources}},
    }


def _root(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else "api/v1"


def _name(resource: Resource) -> str:
    return f"{resource.group or 'core'}.{resource.version}.{resource.kind}"


def _gvk(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _paths(resource: Resource) -> list[tuple[str, Json]]:
    space = "namespaces/{namespace}/" if resource.namespaced else ""
    body = {"$ref": f"#/components/schemas/{_name(resource)}"}
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": body}}}}
    operation = {"responses": answer, "x-kubernetes-group-version-kind": _gvk(resource)}
    one = f"/{_root(resource)}/{space}{resource.plural}"
    return [(one, {"get": operation, "post": operation}), (f"{one}/{{name}}", {"get": operation})]


def _schema(resource: Resource) -> Json:
    given: Any = resource.schema or {}
    own = given.get("properties") or {"spec": ANYTHING, "status": ANYTHING}
    return {
        "type": "object",
        "description": given.get("description") or OUTLINE,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {**ANYTHING, "description": "Name, namespace, labels, annotations."},
            **own,
        },
        "x-kubernetes-group-version-kind": [_gvk(resource)],
    }
