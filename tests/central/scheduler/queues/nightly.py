"""Ten thousand claims between queues judged by an exact solver: `make nightly`. Fewer: LOCKSTEP_CLAIMS."""

import os

import pytest

from tests.central.scheduler.queues import test_gang_claims_oracle as of_gangs
from tests.central.scheduler.queues.test_claims_oracle import case, growing_case, problem

CLAIMS = int(os.environ.get("LOCKSTEP_CLAIMS", "10000"))
SHARD = 500


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(-(-CLAIMS // SHARD)))
def test_a_claim_takes_what_it_may_and_nothing_else(shard: int) -> None:
    seeds = range(shard * SHARD, (shard + 1) * SHARD)
    assert not {seed: wrong for seed in seeds if (wrong := problem(case(seed)))}


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
    assert all(wrong.startswith(of_gangs.BETTER) for wrong in found.values()), found
    assert found.keys() == of_gangs.KNOWN_SEEDS & {*seeds}, found
