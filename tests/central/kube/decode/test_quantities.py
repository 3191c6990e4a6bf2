from decimal import Decimal
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.kube.decode.quantities import InvalidQuantity, parse_duration, parse_quantity


@pytest.mark.parametrize(
    ("resource", "quantity", "amount"),
    [
        ("cpu", "100m", 100),
        ("cpu", "2", 2000),
        ("cpu", "0.5", 500),
        ("cpu", ".5", 500),
        ("cpu", "1500u", 2),  # a part of a thousandth counts whole
        ("cpu", 2, 2000),
        ("cpu", 0.1, 100),
        ("memory", "1Gi", 2**30),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "1G", 10**9),
        ("memory", "1e3", 1000),
        ("memory", "1E3", 1000),
        ("memory", "1E", 10**18),
        ("memory", "128974848", 128974848),
        ("memory", "100m", 1),
        ("memory", "+5k", 5000),
        ("nvidia.com/gpu", "8", 8),
        ("pods", "110", 110),
        ("memory", "16Ei", 2**63 - 1),
        ("memory", "-0", 0),
        ("memory", "5.", 5),
    ],
)
def test_amounts(resource: str, quantity: object, amount: int) -> None:
    assert parse_quantity(resource, quantity) == amount


@pytest.mark.parametrize(
    "quantity",
    ["", "abc", "1 Gi", "1gi", "1e999999", "--1", "-1", "1Kim", "٣", None, True, [], "."],
)
def test_not_a_quantity(quantity: object) -> None:
    with pytest.raises(InvalidQuantity):
        parse_quantity("memory", quantity)


def test_not_a_duration() -> None:
    texts = ("", "0", "-5m", "1e300", "1e9h", "nan", "\u0661s", "1\uff10s", "1s\n", "999999999h")
    wrong: tuple[object, ...] = (*texts, "9" * 10**6 + "s", 0, -1, 1e300, nan, True, [])
    for duration in wrong:
        with pytest.raises(InvalidQuantity):
            parse_duration(duration)


def test_integers_too_long_to_be_written() -> None:
    """YAML reads hexadecimal digits without a limit; Python writes no more than 4,300 decimal ones."""
    huge = int("f" * 20_000, 16)
    with pytest.raises(InvalidQuantity, match="thousands of digits"):
        parse_quantity("memory", huge)
    with pytest.raises(InvalidQuantity, match="thousands of digits"):
        parse_duration(huge)


@given(st.decimals(min_value=0, max_value=10**9, places=4), st.sampled_from(["", "m", "k", "Mi"]))
def test_rounds_up_and_never_down(number: Decimal, unit: str) -> None:
    exact = number * Decimal({"": "1", "m": "0.001", "k": "1000", "Mi": "1048576"}[unit])
    assert exact <= parse_quantity("memory", f"{number:f}{unit}") < exact + 1
