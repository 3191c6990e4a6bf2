"""The fields of a request, read one by one with their bounds."""

from typing import Any, TypeVar

import orjson

from central.model.json_types import Json, is_deeper

MOST_NUMBER = (1 << 53) - 1
MOST_NAME = 253
MOST_TEXT = 4096
MOST_DEPTH = 32
MOST_PLAN = 1 << 20  # bytes of a plan's file
_REQUIRED: Any = object()
ValueT = TypeVar("ValueT")


class FieldRefused(ValueError):
    """Raised with the field that is wrong and the reason."""


def parse(body: bytes) -> Json:
    """Raises FieldRefused."""
    if not body:
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FieldRefused(f"body: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FieldRefused("body: not a JSON object")
    if is_deeper(found, MOST_DEPTH):
        raise FieldRefused(f"body: nests deeper than {MOST_DEPTH}")
    return found


def number(
    data: Json, name: str, least: int = 0, most: int = MOST_NUMBER, default: Any = _REQUIRED
) -> int:
    value = _given(data, name, default)
    if value is default and default is not _REQUIRED:
        return int(default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FieldRefused(f"{name}: {_short(value)} is not a whole number from {least} to {most}")
    return value


def optional_number(data: Json, name: str) -> int | None:
    return None if data.get(name) is None else number(data, name)


def amount(data: Json, name: str) -> float:
    """Reads an amount that is not negative; 0 if it is not given."""
    value = data.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise FieldRefused(f"{name}: {_short(value)} is not a number from 0 to 10^15")
    return float(value)


def seconds_by_member(data: Json, name: str, members: int) -> dict[int, float]:
    """Reads an object with the numbers of members as names."""
    value = _given(data, name, _REQUIRED)
    if not isinstance(value, dict) or len(value) > members:
        raise FieldRefused(f"{name}: not an object with at most {members} names")
    if not all(key.isascii() and key.isdigit() and len(key) <= 5 for key in value):
        raise FieldRefused(f"{name}: a name is not the number of a member")
    return {int(key): amount(value, key) for key in value}


def finite(data: Json, name: str) -> None:
    """A number that is only checked; it may be left out."""
    value = data.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise FieldRefused(f"{name}: {_short(value)} is not a number")


def text(data: Json, name: str, most: int = MOST_NAME, default: str | None = None) -> str:
    """Printable characters."""
    value = _given(data, name, _REQUIRED if default is None else default)
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise FieldRefused(
            f"{name}: {_short(value)} is not a text of at most {most} printable characters"
        )
    if not value and default is None:
        raise FieldRefused(f"{name}: it is empty")
    return value


def message(data: Json, name: str) -> str:
    """Any text; what is longer than MOST_TEXT is cut off at the front, as the last lines say most."""
    value = data.get(name) or ""
    if not isinstance(value, str):
        raise FieldRefused(f"{name}: {_short(value)} is not a text")
    return value[-MOST_TEXT:]


def printable(data: Json, name: str) -> str:
    """Reads any text as message() does; characters that are not printable are left out, but for ends of lines."""
    found = message(data, name)
    return "".join(letter for letter in found if letter.isprintable() or letter == "\n")


def flag(data: Json, name: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise FieldRefused(f"{name}: {_short(value)} is neither true nor false")
    return value


def objects(data: Json, name: str, most: int) -> list[Json]:
    value = _given(data, name, _REQUIRED)
    if (
        not isinstance(value, list)
        or len(value) > most
        or not all(isinstance(one, dict) for one in value)
    ):
        raise FieldRefused(f"{name}: not a list of at most {most} objects")
    return value


def names(data: Json, name: str, most: int, length: int) -> list[str]:
    value = _given(data, name, _REQUIRED)
    if not isinstance(value, list) or len(value) > most:
        raise FieldRefused(f"{name}: not a list of at most {most} names")
    for one in value:
        if not isinstance(one, str) or not 0 < len(one) <= length or not one.isprintable():
            raise FieldRefused(
                f"{name}: {_short(one)} is not a name of 1 to {length} printable characters"
            )
    return value


def numbers(data: Json, name: str, below: int) -> list[int]:
    value = _given(data, name, _REQUIRED)
    if not isinstance(value, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < below for one in value
    ):
        raise FieldRefused(f"{name}: not a list of whole numbers below {below}")
    return value


def query_number(query: dict[str, str], name: str, most: int, default: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= 16 and int(value) <= most):
        raise FieldRefused(f"{name}: {_short(value)} is not a whole number from 0 to {most}")
    return int(value)


def _given(data: Json, name: str, default: ValueT) -> Any | ValueT:
    value = data.get(name, default)
    if value is _REQUIRED:
        raise FieldRefused(f"{name}: it is missing")
    return value


def _short(value: object) -> str:
    """Formats a value for a sentence."""
    shown = (
        repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    )
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
