"""Reading the fields of raw objects, and the errors that this raises.

Two things can be wrong with an object. If it has no usable name, nothing can refer to it:
MalformedObject, and the watch skips it. If only a field is wrong, the object becomes a fact that carries
the FieldError's sentence, which begins with the field and is shown to the user.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.model.json_types import Json

Value = TypeVar("Value")
Default = TypeVar("Default")

# What reading an object of unexpected shape may raise.
DECODE_ERRORS = (AttributeError, TypeError, KeyError, ValueError, IndexError)
INT32_MAX = 2**31 - 1


class MalformedObject(ValueError):
    """The object has no usable name or uid."""


class FieldError(ValueError):
    """A sentence that begins with the field."""


class FirstError:
    """Reads several fields of one object; keeps what can be read, and the first error."""

    def __init__(self) -> None:
        self.message = ""

    def add(self, error: FieldError) -> None:
        self.message = self.message or str(error)

    def read(
        self, default: Default, reader: Callable[..., Value], *arguments: Any
    ) -> Value | Default:
        """reader(*arguments), or the default where that raises FieldError."""
        try:
            return reader(*arguments)
        except FieldError as error:
            self.add(error)
            return default


@contextmanager
def identifying(kind: str, raw: Any) -> Iterator[None]:
    """Turns whatever the block raises into a MalformedObject that names the object."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise MalformedObject(f"{kind} {object_name(raw)}: {error_text(error)}") from error


def or_error(seen: Value, read: Callable[..., Value], *arguments: Any) -> Value:
    """read(*arguments), or the fact `seen` with the error."""
    try:
        return read(*arguments)
    except DECODE_ERRORS as error:
        return replace(seen, error=error_text(error))  # type: ignore[type-var]


def text_field(part: Json, key: str) -> str:
    """Empty if the field is missing. Raises FieldError."""
    value = part.get(key) or ""
    if type(value) is not str:
        raise FieldError(f"{key}: {value!r} is not a string")
    return value


def int_field(part: Json, key: str, prefix: str, least: int, most: int | None = None) -> int:
    """A whole number from least to most (2^31 - 1); if the field is missing, the smallest one that is
    not negative. Raises FieldError."""
    value = part.get(key)
    if value is None:
        return max(least, 0)
    if type(value) is not int or not least <= value <= (most or INT32_MAX):
        upper = f" to {most}" if most else ""
        raise FieldError(f"{prefix}.{key}: {value!r} is not a whole number from {least}{upper}")
    return value


def duration_field(part: Json, key: str, prefix: str) -> float | None:
    """Seconds; None if the field is missing. Raises FieldError."""
    value = part.get(key)
    if value is None:
        return None
    try:
        return parse_duration(str(value))
    except InvalidQuantity as error:
        raise FieldError(f"{prefix}.{key}: {error}") from None


def check_acyclic(field: str, depends: Mapping[str, Collection[str]]) -> None:
    """Each name with the names it depends on, all of which are keys. Raises FieldError."""
    left, done = set(depends), set[str]()
    while ready := {name for name in left if done.issuperset(depends[name])}:
        done |= ready
        left -= ready
    if left:
        cycle = ", ".join(name for name in depends if name in left)
        raise FieldError(f"{field}: dependsOn has a cycle: {cycle}")


def object_name(raw: Any) -> str:
    """NAMESPACE/NAME, as far as the object has them."""
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict):
        return "without metadata"
    parts = (meta.get("namespace"), meta.get("name"))
    return "/".join(str(part) for part in parts if part) or "without a name"


def error_text(error: Exception) -> str:
    """A sentence for one of DECODE_ERRORS."""
    if isinstance(error, KeyError):
        return f"the field {error.args[0]} is missing"
    if isinstance(error, FieldError):
        return str(error)
    return f"a field has the wrong type: {error}"
