"""Label and field selectors of query parameters, as predicates on objects. Pure."""

import re
from collections.abc import Callable
from typing import Any

from central.model.json_types import Json
from central.standalone.api_errors import bad_request
from central.standalone.served_kinds import Resource

Test = Callable[[Json], bool]

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")
_COMMA = re.compile(r",(?![^(]*\))")  # outside parentheses


def everything(_: Json) -> bool:
    return True


def both(first: Test, second: Test) -> Test:
    if first is everything:
        return second
    if second is everything:
        return first
    return lambda obj: first(obj) and second(obj)


def labels(text: str) -> Test:
    """a=b, a!=b, a in (x,y), a notin (x), a, !a; comma-separated requirements must all hold."""
    if not text.strip():
        return everything
    tests = [_label(part) for part in _COMMA.split(text)]

    def test(obj: Json) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(one(found) for one in tests)

    return test


def _label(part: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(part):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda found: found.get(key) in values
        return lambda found: found.get(key) not in values
    if match := _EQUAL.match(part):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda found: found.get(key) != value
        return lambda found: found.get(key) == value
    if match := _EXISTS.match(part):
        negated, key = match.groups()
        if negated:
            return lambda found: key not in found
        return lambda found: key in found
    raise bad_request(f"unable to parse requirement: {part!r}")


def matches(selector: Json, found: dict[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions) on labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if found.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], expression.get("values") or []
        holds = {
            "In": found.get(key) in values,
            "NotIn": found.get(key) not in values,
            "Exists": key in found,
            "DoesNotExist": key not in found,
        }[expression["operator"]]
        if not holds:
            return False
    return True


def fields(resource: Resource, text: str) -> Test:
    """metadata.name=a,spec.nodeName!=b; like the real server, only fields that the kind allows."""
    if not text.strip():
        return everything
    tests: list[tuple[str, bool, str]] = []
    for part in text.split(","):
        match = _EQUAL.match(part)
        if not match:
            raise bad_request(f"invalid field selector: {part!r}")
        path, operator, value = match.groups()
        if path not in ("metadata.name", "metadata.namespace", *resource.fields):
            raise bad_request(f"field label not supported: {path}")
        tests.append((path, operator != "!=", value))
    return lambda obj: all((text_at(obj, path) == value) is wanted for path, wanted, value in tests)


def value_at(obj: Any, path: str) -> Any:
    """Returns the field at the path, such as .spec.replicas; None if the object or the path lacks it."""
    for step in filter(None, path.split(".")):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj if path else None


def text_at(obj: Any, path: str) -> str:
    obj = value_at(obj, path)
    if obj is None:
        return ""
    if isinstance(obj, bool):
        return str(obj).lower()
    return str(obj)
