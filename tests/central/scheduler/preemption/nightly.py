"""Ten thousand claims judged by an exact solver: `make nightly`. Fewer: LOCKSTEP_CLAIMS."""

import os
import random

import pytest

from tests.central.scheduler.preemption.drawn_claims import check, claim

CLAIMS = int(os.environ.get("LOCKSTEP_CLAIMS", "10000"))
SHARD = 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(-(-CLAIMS // SHARD)))
def test_no_claim_could_be_met_with_less_harm(shard: int) -> None:
    dice = random.Random(10_000 + shard)
    for number in range(SHARD):
        if (asked := claim(dice, covered=number % 2 == 1)) is not None:
            check(asked)
