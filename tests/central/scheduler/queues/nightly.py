"""Ten thousand claims between queues judged by an exact solver: `make nightly`. Fewer: LOCKSTEP_CLAIMS."""

import os

import pytest

from tests.central.scheduler.queues import test_gang_claims_oracle as of_gangs
from tests.central.scheduler.queues.test_claims_oracle import (
    BELOW_SHARE,
    MORE_URGENT,
    case,
    growing_case,
    problem,
)

CLAIMS = int(os.environ.get("LOCKSTEP_CLAIMS", "10000"))
SHARD = 500
MOST_WORSE = 6  # of a shard of gangs: claims that have a better choice
# Of a shard: the search for victims that keep all shares is bounded, and where it finds none, less urgent ones are not
# looked for.
MOST_BOUNDED = 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(-(-CLAIMS // SHARD)))
def test_a_claim_takes_what_it_may_and_nothing_else(shard: int) -> None:
    found = [
        f"seed {seed}: {wrong}"
        for seed in range(shard * SHARD, (shard + 1) * SHARD)
        if (wrong := problem(case(seed)))
    ]
    bounded = [each for each in found if BELOW_SHARE in each or MORE_URGENT in each]
    assert found == bounded
    assert len(bounded) <= MOST_BOUNDED, bounded


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(-(-CLAIMS // SHARD)))
def test_growth_takes_what_is_deserved_and_nothing_else(shard: int) -> None:
    seeds = range(shard * SHARD, (shard + 1) * SHARD)
    assert not [f"seed {n}: {wrong}" for n in seeds if (wrong := problem(growing_case(n)))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(-(-CLAIMS // SHARD)))
def test_a_claim_of_gangs_takes_what_it_may_and_nothing_else(shard: int) -> None:
    seeds = range(shard * SHARD, (shard + 1) * SHARD)
    found = {seed: wrong for seed in seeds if (wrong := of_gangs.problem(of_gangs.drawn(seed)))}
    worse = {seed: wrong for seed, wrong in found.items() if wrong.startswith(of_gangs.BETTER)}
    assert found == worse
    assert len(worse) <= MOST_WORSE, worse
