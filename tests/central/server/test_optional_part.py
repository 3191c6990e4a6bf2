"""A part that decides nothing keeps no scheduler from starting, and says why it is missing."""

import errno
import logging
import os
from pathlib import Path

import pytest

from central.server.history.history_store import HistoryLocked, HistoryStore, HistoryUnusable
from central.server.optional_part import PartUnusable, begin_optional
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from tests.central.local_clusters import started
from tests.central.server.test_scheduler_process import confirmed, reported, submit

FULL = Path("/dev/full")


def raising(error: Exception) -> object:
    raise error


@pytest.mark.parametrize(
    ("error", "why", "is_bug"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device", False),
        (OSError("no address"), "no address", False),
        (PartUnusable("the port is in use"), "the port is in use", False),
        (KeyError("bug"), "'bug'", True),
    ],
)
def test_what_cannot_begin_is_missing_and_said(
    error: Exception, why: str, is_bug: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert begin_optional("part", lambda: raising(error)) is None
    [record] = caplog.records
    assert record.message == f"part: {why}; the scheduler runs without it"
    assert record.levelno == logging.ERROR
    assert bool(record.exc_info) is is_bug


def test_what_begins_is_returned_and_what_the_caller_expects_is_raised() -> None:
    assert begin_optional("part", lambda: 7, HistoryLocked) == 7
    with pytest.raises(HistoryLocked):
        begin_optional("part", lambda: raising(HistoryLocked("x")), HistoryLocked)
    assert begin_optional("part", lambda: raising(HistoryUnusable("x")), HistoryLocked) is None


def test_a_device_is_no_history() -> None:
    with pytest.raises(HistoryUnusable, match=r"--history /dev/full: not a regular file"):
        HistoryStore(str(FULL), 1 << 20, lambda: 0.0)
    assert FULL.is_char_device()
    assert not FULL.with_name("full.lock").exists()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_scheduler_whose_optional_parts_all_fail_binds_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    flags = [f"--journal={FULL}", f"--history={FULL}", "--console-listen=0.0.0.0:0"]
    node = HollowNode("n0", {}, CAPTURES / "dgx-a100-8.json")
    with started([node], flags) as box:
        box.wait("the agent", lambda: reported(box))
        submit(box, "train", 2, 4)
        box.wait("its GPUs", lambda: confirmed(box, "train"))
        log = box.scheduler_log.read_text()
    for part in (
        f"--journal {FULL}: No space left on device",
        f"history: --history {FULL}: not a regular file",
        "traces: OTEL_EXPORTER_OTLP_PROTOCOL is",
        "web console: --console-listen 0.0.0.0:0",
    ):
        assert part in log
    assert (
        log.count("the scheduler runs without it") == 5
    )  # the history is tried again by the leader
    assert "Traceback" not in log
