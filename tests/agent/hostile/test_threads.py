"""A thread of the agent that raises begins again, and the log says so; one that returns has ended."""

import threading

import pytest

from agent import service


def test_a_thread_that_raises_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "FIRST_S", 0.001)
    passes = []

    def work() -> None:
        passes.append(1)
        if len(passes) < 4:
            raise ValueError("an odd value")

    service.keep_going("grants", work, threading.Event())
    assert len(passes) == 4
    told = [each.getMessage() for each in caplog.records]
    assert told == ["a bug in the thread grants, which begins again; please report it"] * 3


def test_a_stop_ends_it() -> None:
    stop = threading.Event()

    def work() -> None:
        stop.set()
        raise ValueError

    service.keep_going("grants", work, stop)
