"""Kubernetes quantities ("100m", "1Gi", "2", "1e3") as whole numbers, exactly; durations ("1h30m") and
timestamps ("2026-01-31T12:00:00Z") as seconds."""

import re
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,2})|([KMGTPE]i)|([numkMGTPE]))?", re.ASCII
)
_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
}
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_MOST = 2**63 - 1  # the API server caps there too


class InvalidQuantity(ValueError):
    """A sentence that names the quantity or duration."""


def parse_quantity(resource: str, quantity: Any) -> int:
    """In the resource's unit, rounded up: cpu in thousandths of a core, everything else in bytes or
    pieces. Extended resources such as nvidia.com/gpu must be whole. Raises InvalidQuantity."""
    if type(quantity) is not str:
        if isinstance(quantity, bool) or not isinstance(quantity, int | float):
            raise InvalidQuantity(f"{quantity!r} is not a quantity")
        quantity = str(quantity)  # in a manifest that no API server has normalized
    return _parse(resource == "cpu", "/" in resource, quantity)


@lru_cache(maxsize=65536)
def _parse(millis: bool, pieces: bool, quantity: str) -> int:
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise InvalidQuantity(f'"{quantity}" is not a quantity')
    sign, number, exponent, binary, decimal = match.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent)
    elif binary:
        value *= _BINARY[binary]
    elif decimal:
        value *= _DECIMAL[decimal]
    if sign == "-" and value:
        raise InvalidQuantity(f'"{quantity}" is below zero')
    if millis:
        value *= 1000
    if pieces and value.denominator != 1:
        raise InvalidQuantity(f'"{quantity}" is not a whole number')
    return min(_MOST, -(-value.numerator // value.denominator))


def parse_duration(text: str) -> float:
    """Seconds in 1h30m, 10s or 250ms. Raises InvalidQuantity."""
    parts = _PART.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        raise InvalidQuantity(f"{text!r} is not a duration like 90s or 1h30m")
    return sum(float(amount) * _UNITS_S[unit] for amount, unit in parts)


def parse_time(stamp: str | None) -> float:
    """Seconds since the epoch; 0.0 for an empty stamp. Raises ValueError, TypeError."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
