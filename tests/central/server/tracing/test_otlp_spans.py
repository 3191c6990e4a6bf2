"""Stages as OTLP."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from central.server.tracing import otlp_spans
from central.server.tracing.gang_stages import Stage, StageEvent
from tests.central.server.tracing.otlp_collector import attributes

UID = "0b1e7a52-6d0b-4c6e-9a43-0f5a3a8f6f10"


def stage(name: str = "placement", **other: object) -> Stage:
    fields: dict[str, object] = {
        **{"name": name, "uid": UID, "namespace": "ns", "gang": "g", "queue": "q", "number": 0},
        **{"began": 100.0, "ended": 101.5, "pods": 2, **other},
    }
    return Stage(**fields)  # type: ignore[arg-type]  # a test's shorthand


def test_the_trace_is_the_uid() -> None:
    assert otlp_spans.trace_id(UID).hex() == UID.replace("-", "")
    other = otlp_spans.trace_id("ns/label-gang@100")
    assert len(other) == 16
    assert other == otlp_spans.trace_id("ns/label-gang@100") != otlp_spans.trace_id("ns/x@100")
    assert any(otlp_spans.trace_id("00000000-0000-0000-0000-000000000000")), "all zero is invalid"


def test_spans() -> None:
    placed = stage(events=(StageEvent("waiting", 100.5, "needs 16 GPUs"),), events_dropped=3)
    bound = stage("binding", nodes=("n1", "n2"), node_count=2, error="lost")
    root = stage("gang", nodes=("n1",), node_count=1)
    later = stage("restart", number=1)
    body = otlp_spans.encode([placed, bound, root, later], {"service.name": "me"})
    (part,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert part.resource.attributes[0].value.string_value == "me"
    one, two, top, again = part.scope_spans[0].spans
    assert {span.trace_id for span in (one, two, top, again)} == {otlp_spans.trace_id(UID)}
    assert len({span.span_id for span in (one, two, top, again)}) == 4
    assert one.parent_span_id == two.parent_span_id == top.span_id == again.parent_span_id
    assert top.parent_span_id == b""
    assert (one.start_time_unix_nano, one.end_time_unix_nano) == (100 * 10**9, 1015 * 10**8)
    assert (one.events[0].name, one.dropped_events_count) == ("waiting", 3)
    assert one.events[0].attributes[0].value.string_value == "needs 16 GPUs"
    assert attributes(one) == {
        **{"k8s.namespace.name": "ns", "lockstep.gang": "g", "lockstep.queue": "q"},
        **{"lockstep.pods": 2, "lockstep.start": 0},
    }
    assert attributes(two)["lockstep.nodes"] == ["n1", "n2"]
    assert "k8s.node.name" not in attributes(two)
    assert attributes(top)["k8s.node.name"] == "n1"
    assert (two.status.code, two.status.message) == (2, "lost")
    assert one.status.code == 0


def test_what_two_schedulers_send_is_the_same_span() -> None:
    assert otlp_spans.encode([stage()], {}) == otlp_spans.encode([stage()], {})


def test_answers() -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans, answer.partial_success.error_message = 3, "why"
    assert otlp_spans.rejected(answer.SerializeToString()) == (3, "why")
    assert otlp_spans.rejected(b"") == (0, "")
    with pytest.raises(ValueError, match="not an ExportTraceServiceResponse"):
        otlp_spans.rejected(b"<html>")
