"""Parsed JSON objects, such as a Kubernetes object or a part of one: their types, their depth, and merging them."""

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


def is_deeper(value: Any, most: int) -> bool:
    """Returns whether objects and lists are nested in more than so many levels below the value."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most + 1):
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
