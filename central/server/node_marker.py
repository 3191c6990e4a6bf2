"""Marks nodes for others, in rounds: what agents report is compared with what the nodes and their ResourceSlices say,
and the differences are written. The leader alone does so, and never in the scheduling loop's thread.

marker = NodeMarker(client, loop, MarkerOptions(labels=True), may_act=election.may_act)
marker.start()
marker.stop()

Design: docs/design/gpu-health.md
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write.node_writer import NodeWriter
from central.kube.write.pod_requests import Refused
from central.kube.write.retrying import Retry
from central.kube.write.slice_writer import SliceWriter
from central.model.device_claims import SliceSeen
from central.model.facts import NodeReported, Taint
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.scheduler import Scheduler
from central.server.published_nodes import node_labels, published_devices
from central.server.published_nodes.node_marks import NodeMarks, marks_of
from central.server.rounds import Rounds
from central.server.stats.sliced_question import QuestionLoop, ask_in_slices
from central.server.throttled_log import ThrottledLog
from protos.names import DRA_DRIVER

log = logging.getLogger(__name__)

EVERY_S = 10.0
WRITES_MOST = 300  # in one round; the others follow in the next ones
AGAIN_S = 600.0  # after which a condition is written again: somebody may have removed it
NAMES_AT_ONCE = 50  # nodes between two places where the loop may go on
# After the start, agents that live have reported. Then the devices of the others are withdrawn.
REPORTED_WITHIN_S = 120.0
UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    labels: bool = False
    condition: tuple[str, str] | None = None  # its type, and the status that means a problem
    taint: Taint | None = None

    @property
    def wanted(self) -> bool:
        return self.labels or self.condition is not None or self.taint is not None


Slices = list[SliceSeen]


class SeenNode(NamedTuple):
    name: str
    slices: tuple[Slices, Slices] | None  # that are known, and that are wanted instead
    marks: NodeMarks | None
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
        self._slice_writer = SliceWriter(client)
        self._may_act, self._runtime = may_act, runtime
        self._known: dict[str, tuple[tuple[NodeReported, bool], NodeMarks]] = {}  # of this report
        self._written: dict[str, tuple[float, tuple[str, str, str]]] = {}  # conditions, by node
        self._right: dict[str, tuple[object, ...]] = {}  # nodes whose slices were right for this
        self._published: dict[str, tuple[float, Slices]] = {}  # that were written last, by node
        self._began = runtime.monotonic()
        self._last = ""  # node of the last change
        self._quiet = ThrottledLog(log)
        super().__init__("node-marks", every_s=EVERY_S, runtime=runtime)

    def check(self) -> int:
        """One round; returns the number of changes. Raises TimeoutError."""
        nodes = ask_in_slices(self._loop, self._read_nodes, clock=self._runtime.monotonic)
        # Round about, so that changes that fail again and again leave their turn to the others.
        nodes = sorted(nodes, key=lambda node: (node.name <= self._last, node.name))
        names = {node.name for node in nodes}
        for memory in (self._known, self._written, self._right, self._published):
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
            if node is None or node.seen is None:
                continue
            pools = scheduler.state.podclasses.device_claims.allocation.pools
            slices = self._slices(node, [*pools.slices((DRA_DRIVER, name))])
            marks = self._marks(node) if self._options.wanted else None
            labels = node_labels.changes(node.seen.labels, marks.labels) if marks else {}
            tainted = self._options.taint in node.seen.taints
            found.append(SeenNode(name, slices, marks, labels, tainted))
        return found

    def _marks(self, node: ClusterNode) -> NodeMarks | None:
        if node.report is None:
            return None
        of = node.report, node.silent
        before = self._known.get(node.name)
        if before is not None and before[0][0] is of[0] and before[0][1] == of[1]:
            return before[1]
        if (marks := marks_of(node)) is not None:
            self._known[node.name] = of, marks
        return marks

    def _slices(self, node: ClusterNode, known: Slices) -> tuple[Slices, Slices] | None:
        """Returns the node's ResourceSlices and what they should be; None if they are right, or were written so lately:
        the API server keeps no taints where a feature gate forbids them."""
        serves = node.report is not None and bool(node.report.claims)
        early = self._runtime.monotonic() - self._began < REPORTED_WITHIN_S
        if not (serves or known) or (node.report is None and early):
            return None
        of = node.report, node.silent, node.held_by_plugin(), known
        if self._right.get(node.name) == of:
            return None
        wanted = published_devices.slices_of(node, known)
        if wanted == known:
            self._right[node.name] = of
            return None
        at, written = self._published.get(node.name, (0.0, []))
        if known and written and self._runtime.monotonic() - at < AGAIN_S:
            newest = written[0].generation + 1
            if wanted == [replace(each, generation=newest) for each in written]:
                return None
        return known, wanted

    def _publish(self, name: str, known: Slices, wanted: Slices) -> None:
        self._slice_writer.replace(known, wanted)
        self._published[name] = self._runtime.monotonic(), wanted

    def _changes(self, nodes: Iterable[SeenNode]) -> Iterator[tuple[str, Callable[[], None]]]:
        """Each with the node's name."""
        taint = self._options.taint
        for node in nodes:
            if node.slices is not None:
                yield node.name, partial(self._publish, node.name, *node.slices)
            if node.marks is None:
                continue
            if self._options.labels and node.label_changes:
                yield node.name, partial(self._writer.set_labels, node.name, node.label_changes)
            if self._options.condition and self._is_due(node.name, node.marks):
                yield node.name, partial(self._set_condition, node.name, node.marks)
            problem = node.marks.problem
            if taint is not None and problem is not None and problem != node.tainted:
                yield node.name, partial(self._writer.set_taint, node.name, taint, present=problem)

    def _is_due(self, name: str, marks: NodeMarks) -> bool:
        at, written = self._written.get(name, (0.0, ("", "", "")))
        return written != self._words(marks) or self._runtime.monotonic() - at >= AGAIN_S

    def _words(self, marks: NodeMarks) -> tuple[str, str, str]:
        """Status, reason and message."""
        assert self._options.condition is not None
        _, bad = self._options.condition
        status = UNKNOWN if marks.problem is None else bad
        if marks.problem is False:
            status = "False" if bad == "True" else "True"
        return status, marks.reason, marks.message

    def _set_condition(self, name: str, marks: NodeMarks) -> None:
        assert self._options.condition is not None
        words = status, reason, message = self._words(marks)
        now = datetime.fromtimestamp(self._runtime.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": self._options.condition[0],
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        self._writer.set_condition(name, condition)
        self._written[name] = self._runtime.monotonic(), words
