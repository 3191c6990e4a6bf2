"""Reports the node to the scheduler, on every change and as a heartbeat in between, and receives
the planned devices of pods bound to this node. While the scheduler is unreachable it retries; the
rest of the agent is not affected.

Design: docs/design/kubelet.md
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from agent import report_size
from agent.backoff import Backoff, StateLogger
from agent.bounded_files import read_text
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.sockets import MESSAGE_BYTES, details
from protos import gpu_sharing, wire
from protos.stubs import fleet_pb2 as pb
from protos.stubs import fleet_pb2_grpc as rpc
from protos.topology import ClaimPlan, Grant

log = logging.getLogger(__name__)

FILE_BYTES = 1 << 20  # of the CA certificates and of the token
REPORT_S = 10.0  # timeout of a report
ANNOUNCE_S = 2.0  # ... of one that says no more than that the agent starts
POLL_S = 20.0  # how long the scheduler may hold an Intents call
PING_S = 10.0  # without traffic until a keepalive ping; half of it for the answer
PING_TIMEOUTS = (
    "grpc.keepalive_timeout_ms",
    "grpc.http2.ping_timeout_ms",
)  # gRPC uses the larger one
TRUTH_S = 3.0  # how long the first report waits for pod-resources
LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class SchedulerUnavailable(Exception):
    """The scheduler is unreachable or rejects the agent; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class SchedulerEndpoint:
    """The scheduler's address, and how both sides authenticate."""

    server: str
    ca_file: Path | None = None  # None: the system's CA certificates
    token_file: Path | None = None
    server_name: str = ""  # the name in its certificate, if it is not the host of server
    ping_s: float = PING_S

    def channel(self) -> grpc.Channel:
        """Reads the CA certificate each time, because it may have been replaced."""
        options: list[tuple[str, str | int]] = [
            ("grpc.enable_http_proxy", 0),  # the scheduler is in the cluster
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # Without pings, calls to a scheduler that lost its power or network would wait for their
            # deadlines, and plans for that of a long poll.
            ("grpc.keepalive_time_ms", int(self.ping_s * 1000)),
            *((name, int(self.ping_s * 500)) for name in PING_TIMEOUTS),
            ("grpc.http2.max_pings_without_data", 0),  # no limit
        ]
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        roots = None
        if self.ca_file:
            roots = _read(self.ca_file, "the scheduler's CA certificate (--ca-file)").encode()
            if b"BEGIN CERTIFICATE" not in roots:
                raise SchedulerUnavailable(f"{self.ca_file} contains no PEM certificate")
        return grpc.secure_channel(
            self.server, grpc.ssl_channel_credentials(root_certificates=roots), options=options
        )

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Reads the token for every call, because the kubelet replaces it before it expires."""
        if self.token_file is None:
            return ()
        token = _read(self.token_file, "the ServiceAccount token (--token-file)").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise SchedulerUnavailable(f"{self.token_file} contains no token")
        return (("authorization", f"Bearer {token}"),)


def _read(file: Path, what: str) -> str:
    try:
        return read_text(file, FILE_BYTES)
    except FileNotFoundError:
        raise SchedulerUnavailable(f"{file} does not exist yet: {what}") from None
    except OSError as error:
        raise SchedulerUnavailable(
            f"cannot read {file}: {error.strerror}; it should contain {what}"
        ) from None


class Reporter:
    def __init__(
        self,
        node: AgentNode,
        scheduler: SchedulerEndpoint,
        report_every_s: float,
        version: str,
        *,
        backoff: Callable[[], Backoff] = Backoff,
        on_plans: Callable[[tuple[Grant, ...]], None] = lambda plans: None,
        starting: Callable[[], bool] = lambda: False,
        claims: str = "",
    ) -> None:
        """starting: whether the kubelet does not have all of the node's devices yet. claims: how the agent serves
        resource claims, as in NodeReport."""
        self._node, self._scheduler = node, scheduler
        self._backoff, self._on_plans = backoff, on_plans
        self._starting, self._leaving, self._claims = starting, False, claims
        # one report at a time, so that the last one arrives last
        self._reporting = threading.Lock()
        self._is_connected = False  # the last report arrived
        self._report_every_s = report_every_s
        self._version = version
        self._log, self._oversize = StateLogger(log), StateLogger(log)
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stopping = threading.Event()
        self._lost = ""  # why the last channel was dropped
        self._trouble: dict[str, str] = {}  # by loop; empty: no trouble
        self.sent = self.failed = 0  # reports

    # The connection, shared by both loops

    def _stub(self) -> tuple[grpc.Channel, rpc.FleetStub]:
        with self._lock:
            if self._channel is None:
                if self._stopping.is_set():
                    raise SchedulerUnavailable("stopping")
                self._channel = self._scheduler.channel()
            return self._channel, rpc.FleetStub(self._channel)

    def _drop(self, channel: grpc.Channel) -> None:
        with self._lock:
            if self._channel is not channel:
                return
            self._channel = None
        channel.close()

    def _report(self, report: pb.NodeReport, timeout_s: float = REPORT_S) -> pb.ReportAck:
        channel, stub = self._stub()
        try:
            ack = stub.Report(report, timeout=timeout_s, metadata=self._scheduler.metadata())
        except (grpc.RpcError, ValueError) as error:
            self._is_connected = False
            raise self._unavailable(error, channel) from None
        self._is_connected = True
        return ack

    def _intents(self, request: pb.IntentsRequest) -> pb.IntentList:
        channel, stub = self._stub()
        try:
            return stub.Intents(
                request, timeout=request.wait_s + REPORT_S, metadata=self._scheduler.metadata()
            )
        except (grpc.RpcError, ValueError) as error:
            raise self._unavailable(error, channel) from None

    def _unavailable(self, error: Exception, channel: grpc.Channel) -> SchedulerUnavailable:
        where, why = f"the scheduler at {self._scheduler.server}", details(error)
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.CANCELLED
        if code in LOST:
            if (
                self._channel is channel or not self._lost
            ):  # else the other loop closed it and knows why
                self._lost = f"{where} is unreachable ({_brief(why)})"
            self._drop(channel)
            return SchedulerUnavailable(self._lost)
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return SchedulerUnavailable(f"{where} rejects this agent: {why}")
        return SchedulerUnavailable(f"{where} answered {code.name}: {why}")

    def _log_state(self, loop: str, trouble: str) -> None:
        """One log state for both loops, because they mostly fail for the same reason."""
        if self._stopping.is_set():
            return
        with self._lock:
            self._trouble[loop] = trouble
            first = next((why for _, why in sorted(self._trouble.items()) if why), "")
        if first:
            # Reasons of gRPC alternate in one outage.
            self._log.failed(f"{first}; retrying", state=first.partition(" (")[0])
        else:
            self._log.ok(f"connected to the scheduler at {self._scheduler.server}")

    # Reports

    def announce(self) -> None:
        """The agent starts: until it has looked at its node, the kubelet has none of the devices."""
        with suppress(SchedulerUnavailable):
            message = self._message(self._node.state, news=False, not_offered=True)
            self._report(message, ANNOUNCE_S)

    def leave(self, timeout_s: float) -> bool:
        """Reports that the kubelet is about to lose the devices. Returns whether the scheduler knows."""
        if self._leaving or not self._is_connected:
            return False
        self._leaving, deadline = True, time.monotonic() + timeout_s
        # A report that is under way was made before.
        waited = self._reporting.acquire(timeout=timeout_s)
        try:
            left_s = max(0.0, deadline - time.monotonic())
            self._report(self._message(self._node.state, news=False, not_offered=True), left_s)
            return True
        except SchedulerUnavailable:
            return False
        finally:
            if waited:
                self._reporting.release()

    def _not_offered(self) -> bool:
        return self._leaving or self._starting()

    def run(self, stop: threading.Event) -> None:
        backoff = self._backoff()
        reported = 0  # the generation that the scheduler has
        topology = NodeState()  # the state whose topology it has
        self._node.wait(lambda state: state.grants_known or stop.is_set(), TRUTH_S)
        while not stop.is_set():
            state = self._node.state
            try:
                same = reported and state.topology is topology.topology
                news = reported != state.generation
                known = topology.generation if same else 0
                with self._reporting:
                    not_offered = self._not_offered()
                    message = partial(self._message, state, not_offered=not_offered)
                    ack = self._report(message(news=news, topology_of=known))
                    if ack.want_full:
                        self._report(message(news=True))
                if ack.want_full or not same:
                    topology = state
            except SchedulerUnavailable as error:
                self.failed += 1
                # Send the topology again: the next scheduler may not have it, or be an older version.
                topology = NodeState()
                self._log_state("reports", str(error))
                stop.wait(backoff.pause_s())
                continue
            self.sent += 1
            reported = state.generation
            backoff.reset()
            self._log_state("reports", "")
            self._node.wait(self._due(reported, not_offered, stop), self._report_every_s)

    def _due(
        self, reported: int, not_offered: bool, stop: threading.Event
    ) -> Callable[[NodeState], bool]:
        return lambda state: (
            state.generation != reported or self._not_offered() != not_offered or stop.is_set()
        )

    def _message(
        self, state: NodeState, *, news: bool, not_offered: bool, topology_of: int = 0
    ) -> pb.NodeReport:
        """A heartbeat, or a report if something has changed; without the topology if the scheduler has it from the
        generation topology_of."""
        report = pb.NodeReport(
            node=self._node.name,
            boot_id=self._node.boot_id,
            generation=state.generation,
            heartbeat=not news,
            not_offered=not_offered,
            rdma_use=wire.messages(pb.RdmaUse, state.rdma_use),
            memory_over=wire.messages(pb.MemoryOver, state.memory_over),
            gpu_use=wire.messages(pb.GpuUse, state.gpu_use),
        )
        if news:
            if topology_of:
                report.topology_of = topology_of
            else:
                report.topology.CopyFrom(wire.to_topology(state.topology))
            report.grants.extend(wire.to_grants(self._grants(state)))
            report.agent_version = self._version
            report.prepared.extend(wire.messages(pb.ClaimPlan, state.prepared))
            report.claims = self._claims
        return report

    def _grants(self, state: NodeState) -> tuple[Grant, ...]:
        kept, left_out = report_size.fitting(gpu_sharing.fold_shares(state.reported_grants()))
        if left_out:
            self._oversize.failed(
                f"{len(left_out)} grants of the kubelet's list are not reported: {left_out[0]}"
            )
        else:
            self._oversize.ok("all grants are reported")
        return kept

    # Plans

    def run_intents(self, stop: threading.Event) -> None:
        backoff = self._backoff()
        version = 0
        while not stop.is_set():
            request = pb.IntentsRequest(
                node=self._node.name, boot_id=self._node.boot_id, version=version, wait_s=POLL_S
            )
            try:
                answer = self._intents(request)
            except SchedulerUnavailable as error:
                # The plans stay. A restarted scheduler may count versions from the start.
                version = 0
                self._log_state("plans", str(error))
                stop.wait(backoff.pause_s())
                continue
            backoff.reset()
            self._log_state("plans", "")
            if answer.version != version:
                version = answer.version
                plans = wire.from_grants(answer.intents)
                claims = wire.values(ClaimPlan, answer.claims)
                self._node.set_intents(plans, version, claims)
                # before the next call tells the scheduler that they have arrived
                self._on_plans(plans)

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            channel, self._channel = self._channel, None
        if channel:
            channel.close()


def _brief(text: str) -> str:
    """Removes the parts that differ between attempts, so that the message is logged once."""
    for sign in ("; RPC Error", "; last error"):
        text = text.split(sign, maxsplit=1)[0]
    return text
