"""A reporter whose calls are answered by a script, without a network."""

import threading
from collections.abc import Callable
from typing import Any

import grpc

from agent.backoff import Backoff
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.reporter import Reporter
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
