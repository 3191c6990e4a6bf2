"""A million hostile objects, with a clock on each: `make nightly`. LOCKSTEP_OBJECTS is their number."""

import os

import pytest

from tests.central.poison import fuzz

OBJECTS = int(os.environ.get("LOCKSTEP_OBJECTS", "1000000"))
EACH = 1000


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 100 + OBJECTS // EACH))
def test_objects(seed: int) -> None:
    """Repeat one: python -m tests.central.poison.fuzz SEED 1000"""
    fuzz.run(seed, EACH)
