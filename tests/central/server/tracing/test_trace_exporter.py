"""The exporter beside a real collector that is well, slow, refuses, or is away."""

import threading
import time
from collections.abc import Callable

import pytest

from central.server.otlp_endpoint import endpoint
from central.server.tracing import otlp_client, trace_exporter
from central.server.tracing.trace_exporter import TraceExporter
from central.standalone.local_cluster import free_port
from tests.central.server.tracing.otlp_collector import collector
from tests.central.server.tracing.test_otlp_spans import stage


def until(holds: Callable[[], object], patience_s: float = 30.0) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_exporter, "EVERY_S", 0.02)
    monkeypatch.setattr(trace_exporter, "RETRY_S", (0.02, 0.05))


def exporter(url: str, **environ: str) -> TraceExporter:
    to = endpoint(url, environ)
    assert to is not None
    return TraceExporter(to)


def test_what_arrives() -> None:
    with collector() as there:
        headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x"}
        made = exporter(there.url, OTEL_EXPORTER_OTLP_COMPRESSION="gzip", **headers)
        for at in range(trace_exporter.AT_ONCE + 5):
            made.put(stage(gang=f"g{at}", began=float(at)))
        made.start()
        until(lambda: made.sent == trace_exporter.AT_ONCE + 5)
        made.stop()
        assert len(there.requests) == 2
        assert len({span.span_id for span in there.spans}) == trace_exporter.AT_ONCE + 5
        (sent,) = {(each[":path"], each["authorization"]) for each in there.requests}
        assert sent == ("/v1/traces", "Bearer x")
        assert there.requests[0]["Content-Type"] == "application/x-protobuf"
        assert sum(made.dropped().values()) == 0


def test_an_end_sends_what_is_queued() -> None:
    with collector() as there:
        made = exporter(there.url)
        made.start()
        made.put(stage())
        made.stop()
        assert made.sent == len(there.spans) == 1


def test_answers_that_ask_to_try_again() -> None:
    with collector() as there:
        there.statuses = [503, 429, 502]
        made = exporter(there.url)
        made.put(stage())
        made.start()
        until(lambda: made.sent)
        made.stop()
        assert len(there.requests) == 4
        assert sum(made.dropped().values()) == 0


@pytest.mark.parametrize("status", [500, 400, 401, 404, 301])
def test_answers_that_refuse(status: int) -> None:
    with collector() as there:
        there.statuses = [status]
        made = exporter(there.url)
        made.put(stage())
        made.start()
        until(lambda: made.dropped()["refused"])
        made.put(stage(gang="next"))
        until(lambda: made.sent)
        made.stop()
        assert [*there.named("g")] == []
        assert [*there.named("next")] == ["placement"]
        assert len(there.requests) == 2, "nothing is tried again, and no redirect is followed"


def test_a_collector_that_leaves_spans_out() -> None:
    with collector() as there:
        there.rejects = 1
        made = exporter(there.url)
        made.put(stage())
        made.put(stage("binding"))
        made.start()
        until(lambda: made.sent)
        made.stop()
        assert (made.sent, made.dropped()["rejected"]) == (1, 1)


def test_a_collector_that_is_away_and_comes_back() -> None:
    port = free_port()
    made = exporter(f"http://127.0.0.1:{port}")
    made.put(stage())
    made.start()
    until(lambda: made.dropped()["unanswered"])
    with collector(port) as there:
        made.put(stage(gang="later"))
        until(lambda: made.sent)
        made.stop()
        assert [*there.named("later")] == ["placement"]


def test_the_queue_is_bounded_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_exporter, "QUEUED_MOST", 1000)
    with collector() as there:
        there.slow_s = 1.0
        made = exporter(there.url)
        made.start()
        made.put(stage())
        until(lambda: there.requests)
        before = time.thread_time()
        for at in range(5000):
            made.put(stage(gang=f"g{at}"))
        spent_s = time.thread_time() - before
        assert made.queued == 1000
        assert made.dropped()["queue-full"] == 4000
        assert spent_s / 5000 < 0.001, "put waits for no answer"
        made.stop()


def test_an_answer_without_end_ends() -> None:
    with collector() as there:
        there.drips = True
        to = endpoint(there.url, {})
        assert to is not None
        began = time.monotonic()
        sent = otlp_client.post(to, "x/y", b"", 0.5)
        assert time.monotonic() - began < 20
        assert not sent.ok or len(sent.body) < otlp_client.ANSWER_BYTES
        there.drips = False


def test_retry_after_is_heard_up_to_a_bound() -> None:
    with collector() as there:
        to = endpoint(there.url, {})
        assert to is not None
        for given, heard in (("7", 7.0), ("99999", 60.0), ("-1", 0.0), ("soon", 0.0)):
            there.statuses, there.reply_headers = [503], {"Retry-After": given}
            sent = otlp_client.post(to, "x/y", b"")
            assert (sent.status, sent.retry, sent.retry_after_s) == (503, True, heard)


def test_a_stop_does_not_wait_for_a_slow_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_exporter, "STOP_S", 0.3)
    with collector() as there:
        there.slow_s = 60.0
        made = exporter(there.url)
        made.put(stage())
        made.start()
        until(lambda: there.requests)
        stopping = threading.Thread(target=made.stop, daemon=True)
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()
