"""Kubernetes quantities ("100m", "1Gi", "2", "1e3") as whole numbers, exactly; durations ("1h30m") and
timestamps ("2026-01-31T12:00:00Z") as seconds."""

import re
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

from central.model import limits
from central.model.exact_quantity import InvalidQuantity as InvalidQuantity
from central.model.exact_quantity import exact_quantity

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Linear: each character has one place in it.
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_MOST = 2**63 - 1  # the API server caps there too


def parse_quantity(resource: str, quantity: Any) -> int:
    """Parses a quantity into the resource's unit, rounded up: cpu in thousandths of a core, everything else in bytes
    or pieces. Extended resources such as nvidia.com/gpu must be whole. Raises InvalidQuantity."""
    return _parse(resource == "cpu", "/" in resource, _text(quantity))


def parse_exact(quantity: Any) -> Fraction:
    """Parses a quantity of any resource, with fractions. Raises InvalidQuantity."""
    return min(Fraction(_MOST), exact_quantity(_text(quantity)))


def _text(quantity: Any) -> str:
    if type(quantity) is not str:
        if isinstance(quantity, bool) or not isinstance(quantity, int | float):
            raise InvalidQuantity(f"{repr(quantity)[:80]} is not a quantity")
        quantity = _written(quantity)  # in a manifest that no API server has normalized
    if len(quantity) > limits.AMOUNT_TEXT:
        raise InvalidQuantity(_too_long(quantity, "quantity"))
    return str(quantity)


def _written(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python's limit, of an integer in hexadecimal digits in YAML
        raise InvalidQuantity(
            "an integer of thousands of digits is neither a quantity nor a duration"
        ) from None


@lru_cache(maxsize=65536)
def _parse(millis: bool, pieces: bool, quantity: str) -> int:
    value = exact_quantity(quantity) * (1000 if millis else 1)
    if pieces and value.denominator != 1:
        raise InvalidQuantity(f'"{quantity}" is not a whole number')
    return min(_MOST, -(-value.numerator // value.denominator))


def parse_duration(text: Any) -> float:
    """Seconds in 1h30m, 10s or 250ms. Raises InvalidQuantity."""
    text = _written(text)
    if len(text) > limits.AMOUNT_TEXT:
        raise InvalidQuantity(_too_long(text, "duration"))
    if _DURATION.fullmatch(text) is None:
        raise InvalidQuantity(f'"{text}" is not a duration like 90s or 1h30m')
    seconds = sum(float(amount) * _UNITS_S[unit] for amount, unit in _PART.findall(text))
    if seconds > limits.DURATION_S:
        raise InvalidQuantity(f'"{text}" is more than 100 years')
    return seconds


def parse_time(stamp: Any) -> float:
    """Seconds since the epoch; 0.0 for an empty stamp. Raises InvalidQuantity."""
    if not stamp:
        return 0.0
    if type(stamp) is not str:
        raise InvalidQuantity(f"a {type(stamp).__name__} is not a time")
    if len(stamp) > limits.AMOUNT_TEXT:
        raise InvalidQuantity(_too_long(stamp, "time"))
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (
        ValueError,
        OverflowError,
    ):  # the latter of a time without a zone, in the years 1 and 9999
        raise InvalidQuantity(f'"{stamp}" is not a time like 2026-11-20T10:00:00Z') from None


def lenient_time(value: Any) -> float | None:
    """A time that people write; None if there is none, or if it can't be read."""
    try:
        return parse_time(value) or None
    except InvalidQuantity:
        return None


def _too_long(text: str, what: str) -> str:
    return f'"{text[:32]}..." is not a {what}: {len(text)} characters; at most {limits.AMOUNT_TEXT} are accepted'
