"""Some thousands of random hostile objects; a million in `make nightly`."""

import pytest

from tests.central.poison import fuzz

COUNT = 400


def test_random_objects() -> None:
    fuzz.run(0, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_more_random_objects(seed: int) -> None:
    fuzz.run(seed, COUNT)
