"""Stages of gangs as spans of OTLP, the wire format of OpenTelemetry. Only this module knows its messages.

The trace is the gang's uid, and a span's number follows from the uid, the stage and the number of the start. So
schedulers that follow each other continue the same trace, and what two of them send counts once.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from central.server.tracing.gang_stages import GANG, RESTART, Stage
from central.server.version import version

SCOPE = "lockstep.gangs"
CONTENT_TYPE = "application/x-protobuf"


def trace_id(uid: str) -> bytes:
    """16 bytes: the uid itself, which `kubectl get -o jsonpath={.metadata.uid} | tr -d -` prints; else its hash."""
    try:
        found = UUID(uid).bytes
    except ValueError:
        found = b""
    return found if any(found) else sha256(uid.encode()).digest()[:16]


def span_id(uid: str, name: str, number: int, began: float = 0.0) -> bytes:
    """8 bytes. began: of a stage that may come several times in a start; 0 for a root."""
    of = f"{uid}\n{name}\n{number}\n{began:.3f}"
    return sha256(of.encode()).digest()[:8]


def encode(stages: Iterable[Stage], resource: Mapping[str, str]) -> bytes:
    """The body of a request. resource: attributes of the sender."""
    request: Any = ExportTraceServiceRequest()
    part: Any = ResourceSpans()
    for name, value in sorted(resource.items()):
        part.resource.attributes.add(key=name).value.string_value = value
    scope = part.scope_spans.add()
    scope.scope.name, scope.scope.version = SCOPE, version()
    for stage in stages:
        scope.spans.append(_span(stage))
    request.resource_spans.append(part)
    body: bytes = request.SerializeToString()
    return body


def rejected(body: bytes) -> tuple[int, str]:
    """Returns how many spans of a request the collector rejected, and why. Raises ValueError."""
    answer: Any = ExportTraceServiceResponse()
    try:
        answer.ParseFromString(body)
    except Exception as error:  # google.protobuf.message.DecodeError
        raise ValueError("the answer is not an ExportTraceServiceResponse") from error
    part = answer.partial_success
    return max(0, int(part.rejected_spans)), str(part.error_message)


def _span(stage: Stage) -> Any:
    root = stage.name in (GANG, RESTART)
    began = 0.0 if root else stage.began
    span: Any = Span(
        trace_id=trace_id(stage.uid),
        span_id=span_id(stage.uid, stage.name, stage.number, began),
        name=stage.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=_ns(stage.began),
        end_time_unix_nano=_ns(stage.ended),
        dropped_events_count=stage.events_dropped,
    )
    if not root:
        above = RESTART if stage.number else GANG
        span.parent_span_id = span_id(stage.uid, above, stage.number)
    elif stage.name == RESTART:
        span.parent_span_id = span_id(stage.uid, GANG, 0)
    _describe(span, stage)
    for event in stage.events:
        made = span.events.add(name=event.name, time_unix_nano=_ns(event.at))
        made.attributes.add(key="lockstep.reason").value.string_value = event.text
    if stage.error:
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, stage.error
    return span


def _describe(span: Any, stage: Stage) -> None:
    texts = {
        "k8s.namespace.name": stage.namespace,
        "lockstep.gang": stage.gang,
        "lockstep.queue": stage.queue,
    }
    numbers = {"lockstep.pods": stage.pods, "lockstep.start": stage.number}
    if stage.nodes:
        numbers["lockstep.node_count"] = stage.node_count
    for name, text in texts.items():
        span.attributes.add(key=name).value.string_value = text
    for name, number in numbers.items():
        span.attributes.add(key=name).value.int_value = number
    if len(stage.nodes) == 1:
        span.attributes.add(key="k8s.node.name").value.string_value = stage.nodes[0]
    if stage.nodes:
        nodes = span.attributes.add(key="lockstep.nodes").value.array_value
        for node in stage.nodes:
            nodes.values.add(string_value=node)


def _ns(at: float) -> int:
    return max(0, round(at * 1e6)) * 1000
