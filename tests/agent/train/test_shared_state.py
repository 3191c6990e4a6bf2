"""The values that share() sends and a turn keeps, in real PyTorch processes of any version."""

from pathlib import Path

import pytest

from tests.agent.train.test_replicas import ranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

NAMED_TUPLES = """
import collections
Moments = collections.namedtuple("Moments", "mean count")
counters = {"moments": Moments(torch.full((2,), 1.0 + world.rank), world.rank), "shape": torch.Size([2, 3])}
lt.torch.share(counters)
kept = lt.torch.KeptState([counters])
kept.keep()
counters["moments"] = None
kept.restore()
moments = counters["moments"]
print(json.dumps([moments.mean.tolist(), moments.count, type(counters["shape"]) is torch.Size]))
"""


def test_a_state_may_hold_named_tuples(tmp_path: Path) -> None:
    assert ranks(2, NAMED_TUPLES, tmp_path) == [[[1.0, 1.0], 0, True]] * 2
