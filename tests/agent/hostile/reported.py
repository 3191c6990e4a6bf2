"""Whether the scheduler would accept what an agent reports. A report that it refuses hides the whole node."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from agent.node import AgentNode
from agent.node_state import NodeState
from agent.reporter import Reporter, SchedulerEndpoint
from central.model import limits
from central.server.grpc import agent_service, report_bounds
from protos import matrix, topology_json
from protos.stubs import fleet_pb2 as pb
from protos.topology import NodeTopology


def report(node: AgentNode) -> pb.NodeReport:
    """The full report of the node as it is."""
    reporter = Reporter(node, SchedulerEndpoint("localhost:1", None, None, ""), 1.0, "test")
    return reporter._message(node.state, news=True, not_offered=False)


def accepted(node: AgentNode, where: str) -> None:
    """Raises AssertionError where the scheduler refuses the node's report, or people would read what a terminal
    obeys."""
    message = pb.NodeReport.FromString(report(node).SerializeToString())
    try:
        agent_service._check(message)
        fact = agent_service._fact(message, None)
    except ValueError as error:
        raise AssertionError(f"{where}: refused: {error}") from error
    assert fact is not None, where
    report_bounds.check(message)
    shown(node.state.topology, where)


def shown(topology: NodeTopology, where: str) -> None:
    """In tables and as JSON; no text of it is one that a terminal obeys."""
    for text in texts(topology):
        assert text.isprintable(), f"{where}: {text!r}"
        assert len(text) <= limits.TEXT, f"{where}: {text!r:.80}"
    odd = [line for line in matrix.table(topology).split("\n") if not line.isprintable()]
    assert not odd, f"{where}: {odd}"
    json.dumps(topology_json.to_json("n", topology), ensure_ascii=False).encode()


def texts(value: Any) -> Iterator[str]:
    """All that are in it."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from texts(each)


def node_of(state: NodeState) -> AgentNode:
    node = AgentNode("n")
    node._state = state
    return node
