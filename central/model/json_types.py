"""Parsed JSON objects, such as a Kubernetes object or a part of one: their types, and merging them."""

from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
ReadOnlyJson = Mapping[str, Any]  # inside facts, which are shared and must not change


def json_merge(whole: ReadOnlyJson, patch: ReadOnlyJson) -> Json:
    """A JSON merge patch (RFC 7386): null deletes, objects are merged, everything else is replaced."""
    result = dict(whole)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inside = result.get(key)
            result[key] = json_merge(inside if isinstance(inside, dict) else {}, value)
        else:
            result[key] = value
    return result


def replacing_patch(names: Iterable[str], wanted: ReadOnlyJson) -> Json:
    """The part of a merge patch that replaces a map which has these names: null for those that are not wanted."""
    return {**wanted, **dict.fromkeys(sorted(set(names) - wanted.keys()))}
