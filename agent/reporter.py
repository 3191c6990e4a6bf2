"""To the centre: the node on every change and a heartbeat in between; from it: the plans for pods
bound here. A centre that is away is tried again and again, and nothing else here notices."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from agent.backoff import Backoff, StateLogger
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.sockets import MESSAGE_BYTES, details
from protos import sharing, wire
from protos.stubs import fleet_pb2 as pb
from protos.stubs import fleet_pb2_grpc as rpc
from protos.topology import Grant

log = logging.getLogger(__name__)

REPORT_S = 10.0  # the most one report may take
POLL_S = 20.0  # how long the centre may hold an Intents call
PING_S = 10.0  # of silence, after which it is asked whether anybody is there; half of it to answer
PING_TIMEOUTS = ("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")  # the later one counts
TRUTH_S = 3.0  # how long the first report waits for pod-resources
LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


class SchedulerUnavailable(Exception):
    """The centre can't be reached, or does not want us; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class SchedulerEndpoint:
    """Where the centre is, and how both prove who they are."""

    server: str
    ca_file: Path | None = None  # None: the system's authorities
    token_file: Path | None = None
    server_name: str = ""  # the name in its certificate, where it is another than server's
    ping_s: float = PING_S

    def channel(self) -> grpc.Channel:
        """The CA is read anew each time: it may have been replaced."""
        options: list[tuple[str, str | int]] = [
            ("grpc.enable_http_proxy", 0),  # the centre is in the cluster
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # A centre that lost its power or its network closes nothing: a call would wait for its
            # deadline, and plans for that of a long poll.
            ("grpc.keepalive_time_ms", int(self.ping_s * 1000)),
            *((name, int(self.ping_s * 500)) for name in PING_TIMEOUTS),
            ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
        ]
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        roots = None
        if self.ca_file:
            roots = _read(self.ca_file, "the centre's CA certificate (--ca-file)").encode()
            if b"BEGIN CERTIFICATE" not in roots:
                raise SchedulerUnavailable(f"{self.ca_file} holds no certificate in PEM form")
        return grpc.secure_channel(
            self.server, grpc.ssl_channel_credentials(root_certificates=roots), options=options
        )

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """The token is read anew for every call: the kubelet replaces it before it expires."""
        if self.token_file is None:
            return ()
        token = _read(self.token_file, "the ServiceAccount token (--token-file)").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise SchedulerUnavailable(f"{self.token_file} holds no token")
        return (("authorization", f"Bearer {token}"),)


def _read(file: Path, what: str) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        raise SchedulerUnavailable(f"{file} is not there yet: {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SchedulerUnavailable(
            f"{file} can't be read: {error}; it should hold {what}"
        ) from None


class Reporter:
    def __init__(
        self,
        node: AgentNode,
        peer: SchedulerEndpoint,
        report_every_s: float,
        version: str,
        *,
        backoff: Callable[[], Backoff] = Backoff,
        on_plans: Callable[[tuple[Grant, ...]], None] = lambda plans: None,
    ) -> None:
        self._node, self._peer = node, peer
        self._backoff, self._on_plans = backoff, on_plans
        self._report_every_s = report_every_s
        self._version = version
        self._log = StateLogger(log)
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stopping = threading.Event()
        self._lost = ""  # why the last channel was dropped
        self._trouble: dict[str, str] = {}  # by loop; empty: none
        self.sent = self.failed = 0  # reports

    # The connection, shared by both loops

    def _stub(self) -> tuple[grpc.Channel, rpc.FleetStub]:
        with self._lock:
            if self._channel is None:
                if self._stopping.is_set():
                    raise SchedulerUnavailable("stopping")
                self._channel = self._peer.channel()
            return self._channel, rpc.FleetStub(self._channel)

    def _drop(self, channel: grpc.Channel) -> None:
        with self._lock:
            if self._channel is not channel:
                return
            self._channel = None
        channel.close()

    def _report(self, report: pb.NodeReport) -> pb.ReportAck:
        channel, stub = self._stub()
        try:
            return stub.Report(report, timeout=REPORT_S, metadata=self._peer.metadata())
        except (grpc.RpcError, ValueError) as error:
            raise self._away(error, channel) from None

    def _intents(self, request: pb.IntentsRequest) -> pb.IntentList:
        channel, stub = self._stub()
        try:
            return stub.Intents(
                request, timeout=request.wait_s + REPORT_S, metadata=self._peer.metadata()
            )
        except (grpc.RpcError, ValueError) as error:
            raise self._away(error, channel) from None

    def _away(self, error: Exception, channel: grpc.Channel) -> SchedulerUnavailable:
        where, said = f"the centre at {self._peer.server}", details(error)
        if isinstance(error, ValueError) and self._lost:
            return SchedulerUnavailable(
                self._lost
            )  # the other loop closed the channel, and has said why
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.CANCELLED
        if code in LOST:
            self._lost = f"{where} is away ({_brief(said)})"
            self._drop(channel)
            return SchedulerUnavailable(self._lost)
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return SchedulerUnavailable(f"{where} refuses us: {said}")
        return SchedulerUnavailable(f"{where} answered {code.name}: {said}")

    def _say(self, loop: str, trouble: str) -> None:
        """One voice for both loops: what ails one mostly ails the other."""
        if self._stopping.is_set():
            return
        with self._lock:
            self._trouble[loop] = trouble
            first = next((said for _, said in sorted(self._trouble.items()) if said), "")
        if first:
            self._log.failed(f"{first}; trying again")
        else:
            self._log.ok(f"the centre at {self._peer.server} answers")

    # Reports

    def run(self, stop: threading.Event) -> None:
        backoff = self._backoff()
        told = 0  # the generation that the centre has
        topology = NodeState()  # the state whose topology it has
        self._node.wait(lambda state: state.grants_known or stop.is_set(), TRUTH_S)
        while not stop.is_set():
            state = self._node.state
            try:
                same = told and state.topology is topology.topology
                news = told != state.generation
                ack = self._report(
                    self._message(state, news=news, topology_of=topology.generation if same else 0)
                )
                if ack.want_full:
                    self._report(self._message(state, news=True))
                if ack.want_full or not same:
                    topology = state
            except SchedulerUnavailable as away:
                self.failed += 1
                topology = (
                    NodeState()
                )  # a centre that is older may not know what it means to leave it out
                self._say("reports", str(away))
                stop.wait(backoff.pause_s())
                continue
            self.sent += 1
            told = state.generation
            backoff.reset()
            self._say("reports", "")
            self._node.wait(self._due(told, stop), self._report_every_s)

    def _due(self, told: int, stop: threading.Event) -> Callable[[NodeState], bool]:
        return lambda state: state.generation != told or stop.is_set()

    def _message(self, state: NodeState, *, news: bool, topology_of: int = 0) -> pb.NodeReport:
        """Without news a heartbeat; else what is new: not the topology of an earlier generation."""
        report = pb.NodeReport(
            node=self._node.name,
            boot_id=self._node.boot_id,
            generation=state.generation,
            heartbeat=not news,
            rdma_use=wire.to_rdma_use(state.rdma_use),
            memory_over=wire.to_memory_over(state.memory_over),
        )
        if news:
            if topology_of:
                report.topology_of = topology_of
            else:
                report.topology.CopyFrom(wire.to_topology(state.topology))
            report.grants.extend(wire.to_grants(sharing.folded(state.grants)))
            report.agent_version = self._version
        return report

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
            except SchedulerUnavailable as away:
                # What was planned stays planned. A centre that comes back may count its versions
                # from the start.
                version = 0
                self._say("plans", str(away))
                stop.wait(backoff.pause_s())
                continue
            backoff.reset()
            self._say("plans", "")
            if answer.version != version:
                version = answer.version
                plans = wire.from_grants(answer.intents)
                self._node.set_intents(plans, version)
                self._on_plans(plans)  # before the centre hears that they have arrived

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            channel, self._channel = self._channel, None
        if channel:
            channel.close()


def _brief(text: str) -> str:
    """Without the addresses and times that change from attempt to attempt: it is said once."""
    for sign in ("; RPC Error", "; last error"):
        text = text.split(sign, maxsplit=1)[0]
    return text
