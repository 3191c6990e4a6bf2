"""What may be asked of the history, and how its answer travels."""

from math import inf, nan

import pytest

from central.server.grpc import usage_query
from central.server.grpc.usage_query import SPAN_MOST_S, UsageReport, UsageRow
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


def test_the_whole_report_travels() -> None:
    rows = (UsageRow(("a", "b"), 3.5, 0.25, 0.125), UsageRow(("c", ""), 1.0, 0.0, 0.5))
    sent = usage_query.reply(UsageReport(rows, 10.0, 20.0, 12.0, hidden=True, left_out=7))
    found = tuple(UsageRow(tuple(r.keys), r.allocated, r.held, r.lost) for r in sent.rows)
    assert found == rows
    assert (sent.since, sent.until, sent.kept_since) == (10.0, 20.0, 12.0)
    assert (sent.hidden, sent.left_out) == (True, 7)
