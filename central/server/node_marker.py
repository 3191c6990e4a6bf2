"""Marks nodes for tools outside Lockstep, in rounds: what agents report is compared with what the nodes say, and the
differences are written. The leader alone does so, and never in the scheduling loop's thread.

marker = NodeMarker(client, loop, MarkerOptions(labels=True), may_act=election.may_act)
marker.start()
marker.stop()

Design: docs/design/gpu-health.md
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write.node_writer import NodeWriter
from central.kube.write.pod_requests import Refused
from central.kube.write.retrying import Retry
from central.model.facts import NodeReported, Taint
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import node_labels
from central.scheduler.status.node_marks import NodeMarks, marks_of
from central.server.rounds import Rounds
from central.server.stats.sliced_question import QuestionLoop, ask_in_slices
from central.server.throttled_log import ThrottledLog

log = logging.getLogger(__name__)

EVERY_S = 10.0
WRITES_MOST = 300  # in one round; the others follow in the next ones
AGAIN_S = 600.0  # after which a condition is written again: somebody may have removed it
NAMES_AT_ONCE = 50  # nodes between two places where the loop may go on
UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    labels: bool = False
    condition: tuple[str, str] | None = None  # its type, and the status that means a problem
    taint: Taint | None = None

    @property
    def wanted(self) -> bool:
        return self.labels or self.condition is not None or self.taint is not None


class SeenNode(NamedTuple):
    name: str
    marks: NodeMarks
    label_changes: dict[str, str | None]
    tainted: bool


class NodeMarker(Rounds):
    def __init__(
        self,
        client: Client,
        loop: QuestionLoop,
        options: MarkerOptions,
        *,
        may_act: Callable[[], bool],
        runtime: Runtime = RUNTIME,
    ) -> None:
        self._writer, self._loop, self._options = NodeWriter(client), loop, options
        self._may_act, self._runtime = may_act, runtime
        self._known: dict[str, tuple[tuple[NodeReported, bool], NodeMarks]] = {}  # of this report
        self._written: dict[str, tuple[float, tuple[str, str, str]]] = {}  # conditions, by node
        self._last = ""  # node of the last change
        self._quiet = ThrottledLog(log)
        super().__init__("node-marks", every_s=EVERY_S, runtime=runtime)

    def check(self) -> int:
        """One round; returns the number of changes. Raises TimeoutError."""
        nodes = ask_in_slices(self._loop, self._read_nodes, clock=self._runtime.monotonic)
        # Round about, so that changes that fail again and again leave their turn to the others.
        nodes = sorted(nodes, key=lambda node: (node.name <= self._last, node.name))
        names = {node.name for node in nodes}
        for memory in (self._known, self._written):
            for name in memory.keys() - names:
                del memory[name]
        done = 0
        for name, change in self._changes(nodes):
            if done >= WRITES_MOST or self.ending or not self._may_act():
                break
            done, self._last = done + 1, name
            try:
                change()
            except Retry as error:
                self._quiet.warning("retry", "could not mark a node: %s; trying again", error.why)
            except Refused as error:
                self._quiet.warning("refused", "the API server refuses to mark a node: %s", error)
        return done

    def _read_nodes(self, scheduler: Scheduler) -> Generator[None, None, list[SeenNode]]:
        """Reads the nodes in the loop's thread."""
        found: list[SeenNode] = []
        for number, name in enumerate(list(scheduler.state.nodes)):
            if number % NAMES_AT_ONCE == 0:
                yield
            node = scheduler.state.nodes.get(name)
            if node is None or node.seen is None or node.report is None:
                continue
            of = node.report, node.silent
            before = self._known.get(name)
            if before is not None and before[0][0] is of[0] and before[0][1] == of[1]:
                marks: NodeMarks | None = before[1]
            else:
                marks = marks_of(node)
            if marks is None:
                continue
            self._known[name] = of, marks
            taint = self._options.taint
            found.append(
                SeenNode(
                    name,
                    marks,
                    node_labels.changes(node.seen.labels, marks.labels),
                    taint is not None and taint in node.seen.taints,
                )
            )
        return found

    def _changes(self, nodes: Iterable[SeenNode]) -> Iterator[tuple[str, Callable[[], None]]]:
        """Each with the node's name."""
        taint = self._options.taint
        for node in nodes:
            if self._options.labels and node.label_changes:
                yield node.name, partial(self._writer.set_labels, node.name, node.label_changes)
            if self._options.condition and self._is_due(node):
                yield node.name, partial(self._set_condition, node)
            problem = node.marks.problem
            if taint is not None and problem is not None and problem != node.tainted:
                yield node.name, partial(self._writer.set_taint, node.name, taint, present=problem)

    def _is_due(self, node: SeenNode) -> bool:
        at, written = self._written.get(node.name, (0.0, ("", "", "")))
        return written != self._words(node.marks) or self._runtime.monotonic() - at >= AGAIN_S

    def _words(self, marks: NodeMarks) -> tuple[str, str, str]:
        """Status, reason and message."""
        assert self._options.condition is not None
        _, bad = self._options.condition
        status = UNKNOWN if marks.problem is None else bad
        if marks.problem is False:
            status = "False" if bad == "True" else "True"
        return status, marks.reason, marks.message

    def _set_condition(self, node: SeenNode) -> None:
        assert self._options.condition is not None
        words = status, reason, message = self._words(node.marks)
        now = datetime.fromtimestamp(self._runtime.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": self._options.condition[0],
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        self._writer.set_condition(node.name, condition)
        self._written[node.name] = self._runtime.monotonic(), words
