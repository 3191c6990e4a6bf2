"""What the reporter says to the scheduler and when, call by call."""

import logging
import threading
import time

import grpc
import pytest

from agent.node import AgentNode
from agent.reporter import SchedulerUnavailable
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import Grant, MemoryOver, RdmaUse
from tests.agent.scripted_scheduler import (
    ACK,
    CODE,
    FEW,
    FULL,
    HELD,
    MORE,
    WANT,
    Failed,
    Link,
    says,
)


def test_a_change_is_said_once_and_then_heartbeats_follow() -> None:
    link = Link(ACK, ACK)
    link.answers += [link.grants(HELD), ACK, ACK, link.topology(FEW), ACK, link.grants(MORE), ACK, ACK]  # fmt: skip
    link.report()
    one = link.first
    assert [says(each) for each in link.sent] == [
        (one, "all"),
        (one, "heartbeat"),
        (one, "heartbeat"),
        (one + 1, f"as {one}"),
        (one + 1, "heartbeat"),
        (one + 1, "heartbeat"),
        (one + 2, "all"),
        (one + 2, "heartbeat"),
        (one + 3, f"as {one + 2}"),
        (one + 3, "heartbeat"),
    ]
    assert wire.from_topology(link.sent[0].topology) == FULL
    assert wire.from_topology(link.sent[6].topology) == FEW
    assert wire.from_grants(link.sent[3].grants) == HELD
    assert wire.from_grants(link.sent[8].grants) == MORE
    assert set(link.timeouts) == {10.0}
    assert link.metadata_of_calls == [(("authorization", f"Bearer {n}"),) for n in range(10)]
    assert (link.reporter.sent, link.reporter.failed, len(link.channels)) == (10, 0, 1)
    assert link.pauses.taken == ["reset"] * 10


def test_what_is_unchanged_is_named_by_the_generation_that_had_it() -> None:
    link = Link(ACK)
    link.answers += [link.grants(HELD), ACK, link.grants(MORE), ACK, link.grants(()), ACK]
    link.report()
    one = link.first
    changes = [each for each in map(says, link.sent) if each[1] != "heartbeat"]
    assert changes == [(one, "all"), *((one + more, f"as {one}") for more in (1, 2, 3))]


def test_grants_that_do_not_fit_are_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    long = Grant("ns", "p" * 300, "main", "nvidia.com/gpu", ("GPU-3",))
    link = Link(ACK)
    link.answers += [link.grants((*HELD, long)), ACK, link.grants(HELD), ACK]
    caplog.set_level(logging.INFO)
    link.report()
    assert [wire.from_grants(each.grants) for each in link.sent if not each.heartbeat][1:] == [HELD, HELD]  # fmt: skip
    said = [each for each in caplog.messages if "grants" in each]
    left_out = (
        f"1 grants of the kubelet's list are not reported: pod ns/{'p' * 64}: its pod has a name of 300 characters; "
        "at most 253"
    )
    assert said == ["all grants are reported", left_out, "all grants are reported"]


def test_a_scheduler_that_wants_all_gets_all_at_once() -> None:
    link = Link(ACK, WANT, ACK)
    link.answers += [link.grants(HELD), WANT, ACK, link.topology(FEW), ACK, ACK]
    link.report()
    one = link.first
    assert [says(each) for each in link.sent] == [
        (one, "all"),
        (one, "heartbeat"),
        (one, "all"),
        (one, "heartbeat"),
        (one + 1, f"as {one}"),
        (one + 1, "all"),
        (one + 1, "heartbeat"),
        (one + 2, "all"),
        (one + 2, "heartbeat"),
    ]


@pytest.mark.parametrize("code", [CODE.UNAVAILABLE, CODE.INTERNAL, CODE.UNAUTHENTICATED])
def test_after_a_failure_the_next_change_has_the_topology(code: grpc.StatusCode) -> None:
    """The next scheduler may not know it. One that takes a heartbeat for news knows it."""
    link = Link(ACK)

    def change_and_fail() -> None:
        link.node.set_grants(HELD)
        raise Failed(code)

    link.answers += [change_and_fail, ACK, Failed(code), ACK, link.grants(MORE), ACK]
    link.report()
    one = link.first
    assert [says(each) for each in link.sent] == [
        (one, "all"),
        (one, "heartbeat"),
        (one + 1, "all"),
        (one + 1, "heartbeat"),
        (one + 1, "heartbeat"),
        (one + 1, "heartbeat"),
        (one + 2, f"as {one + 1}"),
    ]
    assert (link.reporter.sent, link.reporter.failed) == (5, 2)
    assert link.pauses.taken[:5] == ["reset", "pause", "reset", "pause", "reset"]


def test_a_first_report_that_fails_is_said_again() -> None:
    link = Link(Failed(CODE.UNAVAILABLE), Failed(CODE.INTERNAL), ACK, ACK).report()
    assert [what for _, what in map(says, link.sent)] == ["all", "all", "all", "heartbeat"]
    assert (link.reporter.sent, link.reporter.failed) == (2, 2)


def test_that_the_kubelet_has_no_devices_yet_is_part_of_each_report() -> None:
    starting = [True]
    link = Link(ACK, ACK, starting=lambda: starting[0])
    link.answers += [lambda: starting.__setitem__(0, False), ACK, WANT, ACK]
    link.report()
    assert [each.not_offered for each in link.sent] == [True, True, True, False, False, False]


def test_a_change_is_reported_at_once() -> None:
    """Neither it, nor the end of the start, waits for the next heartbeat."""
    for change in ("grants", "starting"):
        starting = [change == "starting"]
        link = Link(ACK, ACK, starting=lambda starting=starting: starting[0])  # type: ignore[misc]
        link.reporter._report_every_s = 30.0

        def later(link: Link = link, starting: list[bool] = starting, change: str = change) -> None:
            time.sleep(0.05)
            starting[0] = False
            link.node.wake()
            if change == "grants":
                link.node.set_grants(HELD)

        threading.Thread(target=later).start()
        began = time.monotonic()
        link.answers.append(ACK)
        link.stop = _After(2, link)  # type: ignore[assignment]
        link.report()
        first, second = link.sent
        if change == "grants":
            assert says(second) == (link.first + 1, f"as {link.first}")
        else:
            assert (first.not_offered, second.not_offered) == (True, False)
        assert time.monotonic() - began < 15.0


class _After:
    """Set after so many calls."""

    def __init__(self, calls: int, link: Link) -> None:
        self._calls, self._link = calls, link

    def is_set(self) -> bool:
        return len(self._link.sent) >= self._calls

    def set(self) -> None:
        pass


def test_the_first_report_waits_for_what_the_kubelet_lists() -> None:
    link = Link(ACK)
    link.node = AgentNode("n1")
    link.reporter._node = link.node

    def later() -> None:
        time.sleep(0.05)
        link.node.set_grants(HELD)

    threading.Thread(target=later).start()
    link.report()
    assert wire.from_grants(link.sent[0].grants) == HELD


def test_what_devices_use_is_in_every_report() -> None:
    link = Link(ACK, ACK)
    state = link.node.state
    message = link.reporter._message(state, news=False, not_offered=False)
    assert (list(message.rdma_use), list(message.memory_over)) == ([], [])
    used, over = wire.values(RdmaUse, [pb.RdmaUse()]), wire.values(MemoryOver, [pb.MemoryOver()])
    link.node.set_rdma_use(used)
    link.node.set_memory_over(over)
    link.report()
    for report in link.sent:
        assert wire.values(RdmaUse, report.rdma_use) == used
        assert wire.values(MemoryOver, report.memory_over) == over


# --- the start and the end ---------------------------------------------------


def test_announce() -> None:
    link = Link(ACK)
    link.reporter.announce()
    [report] = link.sent
    assert (says(report), report.not_offered, link.timeouts) == ((link.first, "heartbeat"), True, [2.0])  # fmt: skip
    Link(Failed(CODE.UNAVAILABLE)).reporter.announce()


def test_leave() -> None:
    link = Link(ACK, ACK)
    assert not link.reporter.leave(5.0), "the scheduler knows nothing of it yet"
    assert link.sent == []
    link.reporter.announce()
    assert link.reporter.leave(5.0)
    assert (says(link.sent[-1])[1], link.sent[-1].not_offered) == ("heartbeat", True)
    assert 4.0 < link.timeouts[-1] <= 5.0
    assert not link.reporter.leave(5.0), "it was said"
    assert len(link.sent) == 2
    link.answers, link.stop = [ACK], threading.Event()
    link.report()
    assert link.sent[-1].not_offered
    lost = Link(ACK, Failed(CODE.UNAVAILABLE))
    lost.reporter.announce()
    assert not lost.reporter.leave(5.0)
    gone = Link(ACK, Failed(CODE.UNAVAILABLE), ACK).report()
    gone.reporter._is_connected = False
    assert not gone.reporter.leave(5.0)


def test_leave_waits_for_a_report_that_is_under_way() -> None:
    """It was made before, and must not arrive after."""
    link = Link(ACK, ACK, ACK)
    link.reporter.announce()
    with link.reporter._reporting:
        began = time.monotonic()
        assert link.reporter.leave(0.1), "after its time it says so all the same"
        assert time.monotonic() - began >= 0.1
    assert link.timeouts[-1] == pytest.approx(0.0, abs=0.05)
    assert link.reporter._reporting.acquire(blocking=False)


def test_a_report_that_fails_is_no_connection() -> None:
    link = Link(ACK, Failed(CODE.INTERNAL))
    link.reporter.announce()
    link.reporter.announce()
    assert not link.reporter.leave(1.0)


def test_stop_closes_the_channel() -> None:
    link = Link(ACK)
    link.reporter.announce()
    link.reporter.stop()
    link.reporter.stop()
    assert link.channels[0].closed
    with pytest.raises(SchedulerUnavailable, match="stopping"):
        link.reporter._stub()
    assert len(link.channels) == 1
