"""Kubernetes quantities ("100m", "1Gi", "2", "1e3") as exact numbers."""

import re
from fractions import Fraction

# Linear: each character has one place in it.
_QUANTITY = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,2})|([KMGTPE]i)|([numkMGTPE]))?", re.ASCII
)
_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
}


class InvalidQuantity(ValueError):
    """A sentence that names the quantity or duration."""


def exact_quantity(quantity: str) -> Fraction:
    """Raises InvalidQuantity."""
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
    return value
