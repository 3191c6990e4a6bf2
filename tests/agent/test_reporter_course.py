"""What the reporter says to the scheduler and when, call by call, with a channel whose answers are set."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.backoff import Backoff
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.reporter import Reporter, SchedulerEndpoint, SchedulerUnavailable
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import Grant, NodeTopology
from tests.fakes import machines

CODE = grpc.StatusCode
FULL, FEW = survey(machines.machine()), survey(machines.machine(2))
HELD = (Grant("ns", "p", "main", "nvidia.com/gpu", ("GPU-1",)),)
MORE = (*HELD, Grant("ns", "q", "main", "nvidia.com/gpu", ("GPU-2",)))
WHERE = "the scheduler at central:1"


class Failed(grpc.RpcError, grpc.Call):
    def __init__(self, code: grpc.StatusCode, text: str = "no") -> None:
        self._code, self._text = code, text

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def _none(self, *_: Any) -> Any:
        raise NotImplementedError

    initial_metadata = trailing_metadata = is_active = time_remaining = cancel = _none
    add_callback: Any = _none


Answer = Any  # a message, an exception, or what happens before the plain answer


class Channel:
    def __init__(self, link: "Link") -> None:
        self.link, self.closed = link, False

    def unary_unary(self, path: str, *_: object, **__: object) -> Callable[..., Any]:
        method = path.rpartition("/")[2]

        def call(request: Any, timeout: float, metadata: Any) -> Any:
            if self.closed:
                raise ValueError("Cannot invoke RPC on closed channel!")
            return self.link.call(method, request, timeout, metadata)

        return call

    def close(self) -> None:
        self.closed = True


class Pauses(Backoff):
    """Without the time that they take."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []

    def pause_s(self) -> float:
        self.taken.append("pause")
        return 0.0

    def reset(self) -> None:
        self.taken.append("reset")


class Link:
    """The endpoint, and the answers to the reporter's calls; with the last one, it is stopped."""

    server = "central:1"

    def __init__(self, *answers: Answer, starting: Callable[[], bool] = lambda: False) -> None:
        self.node = AgentNode("n1")
        self.node.set_topology(FULL)
        self.node.set_grants(())
        self.first = self.node.state.generation
        self.answers = list(answers)
        self.stop = threading.Event()
        self.sent: list[Any] = []
        self.timeouts: list[float] = []
        self.metadata_of_calls: list[Any] = []
        self.channels: list[Channel] = []
        self.pauses = Pauses()
        self.plans: list[tuple[int, tuple[Grant, ...]]] = []
        self.reporter = Reporter(
            self.node, self, 0.001, "v1", backoff=lambda: self.pauses, on_plans=self._plans, starting=starting  # type: ignore[arg-type]
        )  # fmt: skip

    def channel(self) -> Channel:
        self.channels.append(Channel(self))
        return self.channels[-1]

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {len(self.sent)}"),)

    def _plans(self, plans: tuple[Grant, ...]) -> None:
        assert self.node.state.intents == plans, "they are set before they are acted on"
        self.plans.append((len(self.sent), plans))

    def call(self, method: str, request: Any, timeout: float, metadata: Any) -> Any:
        self.sent.append(request)
        self.timeouts.append(timeout)
        self.metadata_of_calls.append(metadata)
        plain = pb.ReportAck() if method == "Report" else pb.IntentList()
        answer = self.answers.pop(0) if self.answers else plain
        if not self.answers:
            self.stop.set()
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer()
            return plain
        return answer

    def report(self) -> "Link":
        self.reporter.run(self.stop)
        return self

    def ask(self) -> "Link":
        self.reporter.run_intents(self.stop)
        return self

    def grants(self, grants: tuple[Grant, ...]) -> Callable[[], None]:
        return lambda: self.node.set_grants(grants)

    def topology(self, topology: NodeTopology) -> Callable[[], None]:
        return lambda: self.node.set_topology(topology)


ACK, WANT = pb.ReportAck(), pb.ReportAck(want_full=True)


def says(report: pb.NodeReport) -> tuple[int, str]:
    """The generation, and how much it says."""
    assert (report.node, bool(report.boot_id)) == ("n1", True)
    if report.heartbeat:
        assert not report.grants
        assert not report.agent_version
        assert not report.HasField("topology")
        assert not report.topology_of
        return report.generation, "heartbeat"
    assert report.agent_version == "v1"
    if report.topology_of:
        assert not report.HasField("topology")
        return report.generation, f"as {report.topology_of}"
    assert report.HasField("topology")
    return report.generation, "all"


# --- reports -----------------------------------------------------------------


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
    rdma, memory = wire.from_rdma_use, wire.from_memory_over
    used, over = rdma([pb.RdmaUse()]), memory([pb.MemoryOver()])
    link.node.set_rdma_use(used)
    link.node.set_memory_over(over)
    link.report()
    for report in link.sent:
        assert (rdma(report.rdma_use), memory(report.memory_over)) == (used, over)


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


# --- what is wrong -----------------------------------------------------------

SAID = [
    (Failed(CODE.UNAVAILABLE, "refused; RPC Error 1"), True, f"{WHERE} is unreachable (refused); retrying"),
    (Failed(CODE.DEADLINE_EXCEEDED, "late; last error: x"), True, f"{WHERE} is unreachable (late); retrying"),
    (Failed(CODE.CANCELLED, "closed"), True, f"{WHERE} is unreachable (closed); retrying"),
    (ValueError("closed channel"), None, f"{WHERE} is unreachable (closed channel); retrying"),
    (grpc.RpcError("odd"), True, f"{WHERE} is unreachable (odd); retrying"),
    (Failed(CODE.UNAUTHENTICATED, "expired"), False, f"{WHERE} rejects this agent: expired; retrying"),
    (Failed(CODE.PERMISSION_DENIED, "no agent"), False, f"{WHERE} rejects this agent: no agent; retrying"),
    (Failed(CODE.INTERNAL, "bug"), False, f"{WHERE} answered INTERNAL: bug; retrying"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "drops", "sentence"), SAID, ids=lambda given: str(given)[:30])
def test_why_a_call_fails(error: Exception, drops: bool | None, sentence: str, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    """A channel that has lost its server is made anew. Each state is logged once."""
    caplog.set_level(logging.INFO)
    # A second ValueError says that the other loop has closed the channel.
    closed = {True: [True, True, False], False: [False], None: [True, False]}[drops]
    report_all = "all grants are reported"
    link = Link(ACK, error, error, ACK, ACK).report()
    assert [each.closed for each in link.channels] == closed
    connected = f"connected to {WHERE}"
    assert caplog.messages == [report_all, connected, sentence, connected]
    caplog.clear()
    link = Link(pb.IntentList(), error, error, pb.IntentList()).ask()
    assert [each.closed for each in link.channels] == closed
    assert caplog.messages == [connected, sentence, connected]


def test_both_loops_have_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reporter = Link().reporter
    for loop, trouble in (
        ("reports", ""),
        ("plans", "x"),
        ("reports", "y"),  # plans come first
        ("reports", "z"),
        ("plans", ""),
        ("reports", ""),
    ):
        reporter._log_state(loop, trouble)
    connected = f"connected to {WHERE}"
    assert caplog.messages == [connected, "x; retrying", "z; retrying", connected]
    reporter.stop()
    reporter._log_state("reports", "at the end")
    assert "at the end; retrying" not in caplog.messages


def test_the_other_loop_knows_why_the_channel_was_closed() -> None:
    link = Link()
    channel, _ = link.reporter._stub()
    lost = link.reporter._unavailable(Failed(CODE.UNAVAILABLE, "away"), channel)
    again = link.reporter._unavailable(ValueError("closed"), channel)
    assert str(lost) == str(again) == f"{WHERE} is unreachable (away)"
    _, other = link.reporter._stub()
    link.reporter._drop(channel)
    assert not link.channels[1].closed, "only the channel that has failed is dropped"
    assert other is not None
    link.reporter._stub()
    assert len(link.channels) == 2, "and the other one is kept"


# --- plans -------------------------------------------------------------------


def planned(version: int, *grants: Grant) -> pb.IntentList:
    return pb.IntentList(version=version, intents=wire.to_grants(grants))


def test_plans() -> None:
    link = Link(planned(0), planned(3, *HELD), planned(3, *HELD), planned(4), Failed(CODE.INTERNAL), planned(4), planned(5, *MORE), planned(5))  # fmt: skip
    link.ask()
    assert [each.version for each in link.sent] == [0, 0, 3, 3, 4, 0, 4, 5]
    assert {(each.node, each.boot_id, each.wait_s) for each in link.sent} == {("n1", link.node.boot_id, 20.0)}  # fmt: skip
    assert link.plans == [(2, HELD), (4, ()), (6, ()), (7, MORE)]
    assert (link.node.state.intents, link.node.state.intents_version) == (MORE, 5)
    assert set(link.timeouts) == {30.0}
    assert link.pauses.taken == [*["reset"] * 4, "pause", *["reset"] * 3]
    assert len(link.metadata_of_calls[0]) == 1


# --- the endpoint ------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"abc\n", ""),
        (None, "does not exist yet: the ServiceAccount token (--token-file)"),
        (b"", "contains no token"),
        (b" \n", "contains no token"),
        ("t\u00f6ken".encode(), "contains no token"),
        (b"a\nb", "contains no token"),
        (b"\xff", "it should contain the ServiceAccount token (--token-file)"),
    ],
)
def test_the_token(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    endpoint = SchedulerEndpoint("central:1", token_file=file)
    if why:
        with pytest.raises(SchedulerUnavailable) as error:
            endpoint.metadata()
        assert why in str(error.value)
    else:
        assert endpoint.metadata() == (("authorization", "Bearer abc"),)
    assert replace(endpoint, token_file=None).metadata() == ()


def test_the_certificate_authority(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    endpoint = SchedulerEndpoint("central:1", ca_file=file)
    for content, why in ((None, "the scheduler's CA certificate (--ca-file)"), ("x", "contains no PEM certificate")):  # fmt: skip
        if content is not None:
            file.write_text(content)
        with pytest.raises(SchedulerUnavailable) as error:
            endpoint.channel()
        assert why in str(error.value)
    file.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    endpoint.channel().close()
    replace(endpoint, ca_file=None).channel().close()
