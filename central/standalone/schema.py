"""Validates custom resources by their openAPIV3Schema as the API server does: drops unknown fields, fills in
defaults, checks the rest. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
Cause = tuple[str, str]  # field, what is wrong

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_META = ("apiVersion", "kind", "metadata")


def prune(schema: Schema, value: Any, *, root: bool = True) -> Any:
    """The value without fields that the schema does not know, and with its defaults."""
    if isinstance(value, list):
        items = schema.get("items")
        return [prune(items, item, root=False) for item in value] if items else value
    if not isinstance(value, dict):
        return value
    known: Schema = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or more is True
    result: dict[str, Any] = {}
    for key, item in value.items():
        if root and key in _META:
            result[key] = item
        elif key in known:
            result[key] = prune(known[key], item, root=False)
        elif isinstance(more, dict):
            result[key] = prune(more, item, root=False)
        elif free or not (known or root):
            result[key] = item
    for key, one in known.items():
        if key not in result and "default" in one:
            result[key] = prune(one, one["default"], root=False)
    return result


def faults(schema: Schema, value: Any, path: str = "") -> Iterator[Cause]:
    """Yields every violation of the schema."""
    field = path or "<root>"
    if value is None:
        if not schema.get("nullable"):
            yield field, "Invalid value: null"
        return
    if not _is_type(schema, value):
        wanted = schema.get("type", "integer or string")
        yield field, f"Invalid value: {_shown(value)}: must be of type {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        values = ", ".join(f'"{one}"' for one in schema["enum"])
        yield field, f"Unsupported value: {_shown(value)}: supported values: {values}"
    yield from ((field, why) for why in _combined(schema, value, path))
    if isinstance(value, dict):
        yield from _object(schema, value, path)
    elif isinstance(value, list):
        yield from ((field, why) for why in _counted(schema, value))
        for at, item in enumerate(value):
            yield from faults(schema.get("items") or {}, item, f"{path}[{at}]")
    else:
        yield from ((field, why) for why in _plain(schema, value))


def _combined(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """oneOf, anyOf, allOf and not, on a value whose type is checked elsewhere."""

    def fits(one: Schema) -> bool:
        return next(faults(one, value, path), None) is None

    shown = f"Invalid value: {_shown(value)}: " if isinstance(value, (str, int)) else ""
    if (either := schema.get("oneOf")) and sum(map(fits, either)) != 1:
        yield f"{shown}must validate one and only one schema (oneOf)"
    if (some := schema.get("anyOf")) and not any(map(fits, some)):
        yield f"{shown}must validate at least one schema (anyOf)"
    if not all(map(fits, schema.get("allOf") or ())):
        yield f"{shown}must validate all the schemas (allOf)"
    if "not" in schema and fits(schema["not"]):
        yield f"{shown}must not validate the schema (not)"


def _counted(schema: Schema, value: list[Any]) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"Invalid value: {len(value)}: should have at least {schema['minItems']} items"
    if len(value) > schema.get("maxItems", len(value)):
        yield f"Too many: {len(value)}: must have at most {schema['maxItems']} items"


def _plain(schema: Schema, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if (pattern := schema.get("pattern")) and not re.search(pattern, value):
            yield f"Invalid value: {_shown(value)}: should match '{pattern}'"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"Too long: may not be longer than {schema['maxLength']}"
        if len(value) < schema.get("minLength", 0):
            yield f"Invalid value: {_shown(value)}: should be at least {schema['minLength']} chars long"
    elif not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"Invalid value: {value}: should be >= {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"Invalid value: {value}: should be <= {schema['maximum']}"


def _object(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Cause]:
    for name in schema.get("required") or []:
        if name not in value:
            yield f"{path}.{name}".lstrip("."), "Required value"
    known: Schema = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    for key, item in value.items():
        if not path and key in _META:
            continue
        if key in known:
            yield from faults(known[key], item, f"{path}.{key}".lstrip("."))
        elif isinstance(more, dict):
            yield from faults(more, item, f"{path}[{key}]")


def _is_type(schema: Schema, value: object) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    wanted = str(schema.get("type"))
    if wanted not in _TYPES:
        return True
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES[wanted])


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
