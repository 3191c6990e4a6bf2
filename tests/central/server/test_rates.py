"""Rates of peers, and of log lines that others cause."""

import logging
import random
import time

import pytest

from central.server import throttled_log
from central.server.grpc import rates
from central.server.grpc.rates import PeerRates, Rate
from central.server.throttled_log import ThrottledLog
from tests.fakes.still_clock import StillClock


def within(times: list[float], rate: Rate) -> bool:
    """Plainly: in no window were there more than the burst and what the rate allows in its time."""
    return all(
        number + 1 <= rate.burst + (end - begin) * rate.per_s + 1e-6
        for at, begin in enumerate(times)
        for number, end in enumerate(times[at:])
    )


def test_uses_are_within_both_rates_and_no_more_is_refused_than_they_ask() -> None:
    dice = random.Random(4)
    for per_peer, in_all in ((Rate(1.0, 3), Rate(2.0, 5)), (Rate(0.5, 1), Rate(100.0, 100))):
        found, now = PeerRates(per_peer, in_all), 100.0
        used: dict[str, list[float]] = {peer: [] for peer in "abc"}
        asked: dict[str, list[float]] = {peer: [] for peer in "abc"}
        for _ in range(400):
            now += dice.choice((0.0, 0.1234567, 2.0 * dice.random()))
            peer = dice.choice("aaaabc")
            own = [*asked[peer], now]
            every = sorted(at for times in used.values() for at in times)
            if found.take(peer, now):
                used[peer].append(now)
                asked[peer].append(now)
            elif within(own, per_peer):  # its own rate allows it, and was spent
                asked[peer].append(now)
                assert not within([*every, now], in_all), now
        for times in used.values():
            assert within(times, per_peer)
        assert within(sorted(at for times in used.values() for at in times), in_all)


def test_a_rate_after_a_burst() -> None:
    found = PeerRates(Rate(2.0, 3), Rate(1000.0, 1000))
    assert [found.take("a", 10.0) for _ in range(5)] == [True, True, True, False, False]
    assert [found.take("a", at) for at in (10.4, 10.5, 10.6)] == [False, True, False]
    assert found.take("b", 10.6)
    assert [found.take("a", 1000.0) for _ in range(4)] == [True, True, True, False]
    assert not found.take("a", 999.0), "a clock that goes back gives nothing"


def test_a_peer_above_its_rate_takes_nothing_from_the_others() -> None:
    found = PeerRates(Rate(1.0, 2), Rate(1.0, 4))
    assert sum(found.take("a", 0.0) for _ in range(100)) == 2
    assert [found.take("b", 0.0) for _ in range(3)] == [True, True, False]
    assert not found.take("c", 0.0), "all have used what all may use"


def test_the_peers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PEERS_MOST", 3)
    found = PeerRates(Rate(0.0, 1), Rate(1000.0, 1000))
    for peer in ("a", "b", "c", "a", "d"):
        found.take(peer, 0.0)
    assert not found.take("a", 0.0), "it was seen after b"
    assert not found.take("d", 0.0)
    assert found.take("b", 0.0), "it was forgotten, so that d has a place"


def throttled(again_s: float, causes: int = 3) -> ThrottledLog:
    return ThrottledLog(logging.getLogger("throttled"), again_s, causes)


def test_a_cause_is_said_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet, clock = throttled(0.2), StillClock(time)
    monkeypatch.setattr(throttled_log, "time", clock)
    for _ in range(4):
        quiet.warning("x", "%s again", "x")
        quiet.warning("y", "y again")
    assert caplog.messages == ["x again", "y again"]
    clock.sleep(0.21)
    quiet.warning("y", "y again")
    quiet.warning("y", "y again")
    assert caplog.messages[2:] == ["y again (6 similar messages were left out)"]
    clock.sleep(0.21)
    quiet.warning("y", "y again")
    clock.sleep(0.21)
    quiet.warning("y", "y again")
    assert caplog.messages[3:] == ["y again (1 similar messages were left out)", "y again"]


def test_causes_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    quiet = throttled(3600.0, 3)
    for number in range(50):
        quiet.warning(str(number), "cause %d", number)
    assert caplog.messages == ["cause 0", "cause 1", "cause 2"]
    quiet = throttled(0.0)
    for number in range(5):
        quiet.warning("x", "line %d", number)
    assert len(caplog.messages) == 8


def test_levels_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    quiet = throttled(3600.0)
    quiet.warning("a", "a")
    try:
        raise ValueError("now")
    except ValueError as error:
        quiet.exception("b", "b")
        before = error
    quiet.error("c", before, "c")
    levels = [(each.levelname, bool(each.exc_info)) for each in caplog.records]
    assert levels == [("WARNING", False), ("ERROR", True), ("ERROR", True)]
    assert all(each.exc_info[1] is before for each in caplog.records if each.exc_info)
