"""What may be asked of the history, and how its answer travels."""

from math import inf, nan

import pytest

from central.server.grpc import usage_query
from central.server.grpc.usage_query import SPAN_MOST_S
from protos.stubs import fleet_pb2 as pb

BY = "by: must be one or more of queue, namespace, user, job, model"
TIMES = "since, until: must be Unix times, since before until"
SPAN = "since: must be at most 90 days before until"


@pytest.mark.parametrize(
    ("by", "since", "until", "wrong"),
    [
        (["queue"], 0.0, 1.0, ""),
        (["model", "job", "user", "namespace", "queue"], 5.0, 5.0 + SPAN_MOST_S, ""),
        ([], 0.0, 1.0, BY),
        (["queue", "queue"], 0.0, 1.0, BY),
        (["queue", "colour"], 0.0, 1.0, BY),
        (["queue"], 1.0, 1.0, TIMES),
        (["queue"], 2.0, 1.0, TIMES),
        (["queue"], -0.5, 1.0, TIMES),
        (["queue"], nan, 1.0, TIMES),
        (["queue"], 0.0, inf, TIMES),
        (["queue"], 5.0, 5.1 + SPAN_MOST_S, SPAN),
    ],
)
def test_what_may_be_asked(by: list[str], since: float, until: float, wrong: str) -> None:
    assert usage_query.mistake(pb.UsageQuery(by=by, since=since, until=until)) == wrong
