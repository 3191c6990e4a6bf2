from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.kube.decode.quantities import InvalidQuantity, parse_quantity


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


@given(st.decimals(min_value=0, max_value=10**9, places=4), st.sampled_from(["", "m", "k", "Mi"]))
def test_rounds_up_and_never_down(number: Decimal, unit: str) -> None:
    exact = number * Decimal({"": "1", "m": "0.001", "k": "1000", "Mi": "1048576"}[unit])
    assert exact <= parse_quantity("memory", f"{number:f}{unit}") < exact + 1
