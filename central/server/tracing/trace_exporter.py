"""Sends the stages of gangs to a collector, from a thread of its own and a queue that never grows above its bound.

exporter = TraceExporter(endpoint)
exporter.put(stage)        # from the loop's thread: never waits; drops the stage if the queue is full
exporter.start()
exporter.stop()            # sends what is queued, for STOP_S at most
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric

from central.kube.transport.runtime import RUNTIME, Runtime
from central.server.otlp_endpoint import CollectorAddress
from central.server.throttled_log import ThrottledLog
from central.server.tracing import otlp_client, otlp_spans
from central.server.tracing.gang_stages import Stage
from protos.common.metric_families import counter, gauge

log = logging.getLogger(__name__)

QUEUED_MOST = 10_000
AT_ONCE = 512
EVERY_S = 1.0
RETRY_S = (1.0, 30.0)  # first, longest
ATTEMPTS = 6  # of a request; then its stages are dropped
STOP_S = 3.0
FULL, REFUSED, UNSENT, REJECTED = "queue-full", "refused", "unanswered", "rejected"


class TraceExporter:
    def __init__(self, endpoint: CollectorAddress, runtime: Runtime = RUNTIME) -> None:
        self.sent = 0  # spans that the collector took
        self._dropped = Counter[str]({FULL: 0, REFUSED: 0, UNSENT: 0, REJECTED: 0})
        self._endpoint, self._runtime = endpoint, runtime
        self._resource = dict(endpoint.resource)
        self._queue: deque[Stage] = deque()
        self._lock = threading.Lock()
        self._ending, self._quiet = runtime.flag(), ThrottledLog(log)
        self._thread = runtime.thread(self._run, "traces")

    @property
    def queued(self) -> int:
        return len(self._queue)

    def dropped(self) -> Mapping[str, int]:
        """Spans by cause."""
        with self._lock:
            return dict(self._dropped)

    def families(self) -> Iterator[Metric]:
        yield counter("trace_spans_sent", "Spans of gangs that the collector took", self.sent)
        about = "Spans of gangs that were dropped: a full queue, no answer, refused or rejected by the collector"
        yield counter("trace_spans_dropped", about, sorted(self.dropped().items()), "cause")
        yield gauge("trace_spans_queued", "Spans of gangs that wait to be sent", self.queued)

    def put(self, stage: Stage) -> None:
        with self._lock:
            if len(self._queue) >= QUEUED_MOST:
                self._dropped[FULL] += 1
            else:
                self._queue.append(stage)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            self._send_queued(ATTEMPTS)
        self._send_queued(1)

    def _send_queued(self, attempts: int) -> None:
        while stages := self._taken():
            try:
                self._send(stages, attempts)
            except Exception as error:  # noqa: BLE001  a bug here must not end the thread
                self._drop(UNSENT, len(stages))
                self._quiet.error("bug", error, "could not send traces (bug)")

    def _taken(self) -> list[Stage]:
        with self._lock:
            return [self._queue.popleft() for _ in range(min(AT_ONCE, len(self._queue)))]

    def _send(self, stages: Sequence[Stage], attempts: int) -> None:
        body = otlp_spans.encode(stages, self._resource)
        delay, longest = RETRY_S
        for number in range(attempts):
            timeout_s = STOP_S if self._ending.is_set() else otlp_client.TIMEOUT_S
            answer = otlp_client.post(self._endpoint, otlp_spans.CONTENT_TYPE, body, timeout_s)
            if answer.ok:
                self._taken_by_collector(answer.body, len(stages))
                return
            if not answer.retry:
                self._drop(REFUSED, len(stages))
                self._quiet.warning("refused", "the collector refuses traces: %s", answer.why)
                return
            self._quiet.warning("away", "the collector of traces does not answer: %s", answer.why)
            if number + 1 == attempts or self._ending.wait(max(delay, answer.retry_after_s)):
                break
            delay = min(longest, 2 * delay)
        self._drop(UNSENT, len(stages))

    def _taken_by_collector(self, body: bytes, count: int) -> None:
        try:
            rejected, why = otlp_spans.rejected(body)
        except ValueError:
            rejected, why = 0, ""  # it took the request, whatever it says
        rejected = min(rejected, count)
        if rejected:
            self._drop(REJECTED, rejected)
            self._quiet.warning("rejected", "the collector left spans out: %s", why[:200])
        with self._lock:
            self.sent += count - rejected

    def _drop(self, cause: str, count: int) -> None:
        with self._lock:
            self._dropped[cause] += count
