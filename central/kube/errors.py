"""What reading an object may raise, and a sentence from whatever went wrong."""

from collections.abc import Iterable
from typing import Any

DECODE_ERRORS = (AttributeError, TypeError, KeyError, ValueError, IndexError)


class MalformedObject(ValueError):
    """Not even a name or uid: nothing to tell about it."""


class FieldError(ValueError):
    """A sentence that begins with the field."""


def text_field(part: dict[str, Any], field: str) -> str:
    value = part.get(field) or ""
    if type(value) is not str:
        raise FieldError(f"{field}: {value!r} is not a text")
    return value


def object_name(raw: Any) -> str:
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict):
        return "without metadata"
    parts: Iterable[Any] = (meta.get("namespace"), meta.get("name"))
    return "/".join(str(part) for part in parts if part) or "without a name"


def error_text(error: Exception) -> str:
    """A sentence from whatever reading a strange object raised."""
    if isinstance(error, KeyError):
        return f"the field {error.args[0]} is missing"
    if isinstance(error, FieldError):
        return str(error)
    return f"a field is not of the kind it should be: {error}"
