"""A collector of traces: a real HTTP server that decodes OTLP, and may be slow, refuse, or be away."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.fakes.quiet_server import QuietServer


class Collector:
    def __init__(self, port: int = 0) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.requests: list[dict[str, str]] = []  # headers, and the path as :path
        self.statuses: list[int] = []  # of the next answers; then 200
        self.reply_headers: dict[str, str] = {}
        self.slow_s = 0.0
        self.drips = False  # answers byte by byte, without end
        self.rejects = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.take(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.requests.append({**dict(request.headers), ":path": request.path})
        time.sleep(self.slow_s)
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self._decode(request, body)
        answer = ExportTraceServiceResponse()
        if self.rejects:
            answer.partial_success.rejected_spans = self.rejects
            answer.partial_success.error_message = "too old"
        reply = answer.SerializeToString()
        request.send_response(status)
        for name, value in self.reply_headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(10**6 if self.drips else len(reply)))
        request.end_headers()
        while self.drips:
            request.wfile.write(b"x")
            time.sleep(0.05)
        request.wfile.write(reply)

    def _decode(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        for part in message.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in part.resource.attributes})
            for scope in part.scope_spans:
                self.spans.extend(scope.spans)

    def named(self, gang: str) -> dict[str, Any]:
        """The spans of the gang by name."""
        return {
            span.name: span for span in [*self.spans] if attributes(span)["lockstep.gang"] == gang
        }


def attributes(span: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = (
            [item.string_value for item in value.values] if kind == "array_value" else value
        )
    return found


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    made = Collector(port)
    try:
        yield made
    finally:
        made.drips = False
        made.stop()
