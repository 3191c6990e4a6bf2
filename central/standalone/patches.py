"""Strategic merge and JSON patches of the Kubernetes API on plain JSON. Arguments are not
modified; the result shares what is unchanged. Pure."""

from typing import Any

from central.model.json_types import Json, json_merge
from central.standalone import api_errors
from central.standalone.api_errors import ApiError, bad_request
from central.standalone.served_kinds import Resource

# Lists that a strategic merge patch merges by a key of their elements; other lists are replaced. Keyed by field
# name, which is enough for the kinds that are served.
MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "containerStatuses": None,
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "secrets": "name",
    "podIPs": "ip",
    "replicatedJobs": "name",  # of JobSets
}
UNION = ("finalizers",)  # lists of plain values that are merged


def strategic(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key == "$retainKeys":
            result = {name: kept for name, kept in result.items() if name in value}
        elif key.startswith("$setElementOrder/"):
            continue
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, []) if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _lists(key, result.get(key) or [], value)
        else:
            result[key] = strategic(result.get(key), value)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.partition("/")[2]
            if isinstance(result.get(name), list):
                result[name] = _ordered(name, result[name], order)
    return result


def _lists(name: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if name in UNION:
        return target + [item for item in patch if item not in target]
    key = MERGE_KEYS.get(name)
    if key is None or not all(isinstance(item, dict) and key in item for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    by_key = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            by_key.pop(item[key], None)
        else:
            by_key[item[key]] = strategic(by_key.get(item[key]), item)
    return list(by_key.values())


def _ordered(name: str, items: list[Any], order: list[Any]) -> list[Any]:
    key = MERGE_KEYS.get(name)
    places = {
        (item.get(key) if key and isinstance(item, dict) else str(item)): at
        for at, item in enumerate(order)
    }

    def place(item: Any) -> int:
        return places.get(item.get(key) if key and isinstance(item, dict) else str(item), -1)

    return sorted(items, key=place)


def json_patch(target: Json, operations: Any) -> Json:
    """RFC 6902."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    document: Any = target
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"JSON patch operation {operation} does not apply: {error}"
            raise ApiError(422, "Invalid", message) from error
    if not isinstance(document, dict):
        raise bad_request("the patch leaves no object")
    return document


def _operate(document: Any, operation: Json) -> Any:
    path = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation["value"], insert=True)
        case "replace":
            _at(document, path)
            return _put(document, path, operation["value"], insert=False)
        case "remove":
            return _remove(document, path)
        case "test":
            if _at(document, path) != operation["value"]:
                raise ValueError("the test failed")
            return document
        case "move":
            source = _steps(operation["from"])
            return _put(_remove(document, source), path, _at(document, source), insert=True)
        case "copy":
            value = _at(document, _steps(operation["from"]))
            return _put(document, path, value, insert=True)
        case other:
            raise ValueError(f"unknown op {other!r}")


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError("a path starts with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _at(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, list):
        at = len(document) if step == "-" else int(step)
        if rest:
            return [
                *document[:at],
                _put(document[at], rest, value, insert=insert),
                *document[at + 1 :],
            ]
        if not 0 <= at <= len(document):
            raise IndexError(f"no place {step} in a list of {len(document)}")
        return [*document[:at], value, *document[at if insert else at + 1 :]]
    if rest:
        return {**document, step: _put(document[step], rest, value, insert=insert)}
    return {**document, step: value}


def _remove(document: Any, path: list[str]) -> Any:
    step, rest = path[0], path[1:]
    if isinstance(document, list):
        at = int(step)
        middle = [_remove(document[at], rest)] if rest else []
        _ = document[at]
        return [*document[:at], *middle, *document[at + 1 :]]
    if rest:
        return {**document, step: _remove(document[step], rest)}
    _ = document[step]
    return {key: kept for key, kept in document.items() if key != step}


def changed(method: str, kind: str, resource: Resource, old: Json, body: Any) -> Json:
    if method == "PUT":
        if not isinstance(body, dict):
            raise api_errors.bad_request("the body is not an object")
        return body
    if "json-patch+json" in kind:
        return json_patch(old, body)
    if not isinstance(body, dict):
        raise api_errors.bad_request("the patch is not an object")
    if "strategic-merge-patch" in kind or "apply-patch" in kind:
        if resource.custom and "apply-patch" not in kind:
            message = "strategic merge patches are not understood by custom resources"
            raise api_errors.ApiError(415, "UnsupportedMediaType", message)
        return dict(strategic(old, body))
    if "merge-patch+json" in kind:
        return json_merge(old, body)
    raise api_errors.ApiError(
        415, "UnsupportedMediaType", f"{kind or 'no content type'} is not a patch"
    )
