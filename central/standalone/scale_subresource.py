"""The scale subresource, which kubectl scale and autoscalers read and write."""

import orjson

from central.model.json_types import Json
from central.standalone import admission_defaults
from central.standalone.api_errors import ApiError
from central.standalone.api_request import Call
from central.standalone.object_store import Store
from central.standalone.patches import changed
from central.standalone.query_selectors import value_at
from central.standalone.served_kinds import Resource

SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def answer(call: Call, store: Store) -> tuple[int, bytes]:
    resource = call.resource
    if call.method == "GET":
        obj = store.get(resource, call.namespace, call.name).obj
        path = resource.scale["specReplicasPath"]
        if value_at(obj, path) is None:
            why = f'the spec replicas field "{path}" does not exist'
            raise ApiError(500, "InternalError", f"Internal error occurred: {why}")
        return 200, orjson.dumps(scale(resource, obj))

    if resource.custom and "apply-patch" in call.content_type:
        raise _no_apply(call)

    def change(old: Json) -> Json:
        new = changed(call.method, call.content_type, resource, scale(resource, old), call.json())
        count = (new.get("spec") or {}).get("replicas", 0)
        _, field = resource.scale["specReplicasPath"].strip(".").split(".")
        scaled = {**old, "spec": {**old["spec"], field: count}}
        return admission_defaults.changed(resource, old, scaled)

    item = store.update(resource, call.namespace, call.name, change)
    return 200, orjson.dumps(scale(resource, item.obj))


def scale(resource: Resource, obj: Json) -> Json:
    paths = resource.scale
    status: Json = {"replicas": value_at(obj, paths["statusReplicasPath"]) or 0}
    if selector := value_at(obj, paths.get("labelSelectorPath", "")):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in SHOWN if key in obj["metadata"]},
        "spec": {"replicas": value_at(obj, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def _no_apply(call: Call) -> ApiError:
    """The API server converts what is applied to the resource's version, which a Scale does not have. Of Kubernetes'
    own kinds it can be applied."""
    place = f"{call.namespace}/{call.name}"
    return ApiError(
        500,
        "InternalError",
        f"failed to convert new object ({place}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR "
        "to an "
        "invalid group/version: autoscaling/v1",
    )
