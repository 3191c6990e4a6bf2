"""No claim could be met with less harm: hundreds of small clusters judged by an exact solver; nightly 10,000."""

import random

import pytest

from tests.central.scheduler.preemption.drawn_claims import check, claim
from tests.effort import examples


@pytest.mark.long
@pytest.mark.parametrize("covered", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_claim_could_be_met_with_less_harm(seed: int, covered: bool) -> None:
    dice, met, refused = random.Random(seed), 0, 0
    for _ in range(examples(120)):
        if (asked := claim(dice, covered=covered)) is not None:
            possible = check(asked)
            met += possible
            refused += not possible
    assert met > 2
    assert refused > 2
