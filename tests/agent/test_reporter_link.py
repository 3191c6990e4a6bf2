"""How the reporter takes failures, asks for plans, and reaches the scheduler."""

import logging
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from agent.reporter import SchedulerEndpoint, SchedulerUnavailable
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import Grant
from tests.agent.scripted_scheduler import ACK, CODE, HELD, MORE, WHERE, Failed, Link

# --- what is wrong -----------------------------------------------------------

SAID = [
    (Failed(CODE.UNAVAILABLE, "refused; RPC Error 1"), True, f"{WHERE} is unreachable (refused); retrying"),
    (Failed(CODE.DEADLINE_EXCEEDED, "late; last error: x"), True, f"{WHERE} is unreachable (late); retrying"),
    (Failed(CODE.CANCELLED, "closed"), True, f"{WHERE} is unreachable (closed); retrying"),
    (ValueError("closed channel"), True, f"{WHERE} is unreachable (closed channel); retrying"),
    (grpc.RpcError("odd"), True, f"{WHERE} is unreachable (odd); retrying"),
    (Failed(CODE.UNAUTHENTICATED, "expired"), False, f"{WHERE} rejects this agent: expired; retrying"),
    (Failed(CODE.PERMISSION_DENIED, "no agent"), False, f"{WHERE} rejects this agent: no agent; retrying"),
    (Failed(CODE.INTERNAL, "bug"), False, f"{WHERE} answered INTERNAL: bug; retrying"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "drops", "sentence"), SAID, ids=lambda given: str(given)[:30])
def test_why_a_call_fails(error: Exception, drops: bool, sentence: str, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    """A channel that has lost its server is made anew. Each state is logged once."""
    caplog.set_level(logging.INFO)
    closed = [True, True, False] if drops else [False]
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


def test_an_outage_has_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC words its reasons differently from call to call."""
    reasons = ["refused", "closed", "late", "refused"]
    Link(*(Failed(CODE.UNAVAILABLE, each) for each in reasons), ACK).report()
    assert caplog.messages == [f"{WHERE} is unreachable (refused); retrying"]
    Link(*(Failed(CODE.UNAUTHENTICATED, each) for each in reasons), ACK).report()
    assert len(caplog.messages) == 1 + len(reasons), "what an agent can do about it is no outage"


def test_the_other_loop_knows_why_the_channel_was_closed() -> None:
    link = Link()
    channel, _ = link.reporter._stub()
    lost = link.reporter._unavailable(Failed(CODE.UNAVAILABLE, "away"), channel)
    told = [
        link.reporter._unavailable(each, channel)
        for each in (ValueError("closed"), Failed(CODE.CANCELLED, "Channel closed!"))
    ]
    assert {str(lost), *map(str, told)} == {f"{WHERE} is unreachable (away)"}
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
