"""Decides when which GPUs are checked, and remembers the result. A GPU is checked while it is unused: when the agent
starts, after each use, and every hour. A GPU that fails is unhealthy until a later check passes; the check never
delays a container, and one that hangs ends by its timeout.

Design: docs/design/gpu-health.md
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from agent.backoff import StateLogger
from agent.machine.facts import GpuFacts
from agent.machine.findings import PREFLIGHT
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.preflight import idle_checks
from agent.preflight.copy_process import CopyOutcome, CopyProcess
from protos.names import GPU
from protos.topology import Gpu, NodeTopology

log = logging.getLogger(__name__)

NONE, LINKS, COPY = "none", "links", "copy"  # --preflight
AGAIN_S = 3600.0  # after a check that passed
RETRY_S = 60.0  # after one that failed
TICK_S = 5.0
PENDING = f"{PREFLIGHT}not checked yet"


@dataclass(frozen=True, slots=True)
class Verdict:
    at: float  # monotonic time
    why: str = ""  # empty: passed
    used: bool = False  # or unhealthy for another reason, since then


class Preflight:
    """facts: of the last survey. wake: asks for a survey, which applies new verdicts."""

    def __init__(
        self,
        mode: str,
        wait_s: float,
        node: AgentNode,
        facts: Callable[[], Iterable[GpuFacts]],
        *,
        wake: Callable[[], None],
        copies: CopyProcess | None = None,
    ) -> None:
        self._mode, self._wait_s, self._node = mode, wait_s, node
        self._facts, self._wake = facts, wake
        self._copies = copies or CopyProcess()
        self._verdicts: dict[str, Verdict] = {}
        self._log = StateLogger(log)

    def with_failures(self, seen: NodeTopology) -> NodeTopology:
        """The topology with GPUs that failed their last check as unhealthy. From any thread."""
        verdicts = self._verdicts
        return _unhealthy(seen, lambda gpu: verdicts[gpu.uuid].why if gpu.uuid in verdicts else "")

    def with_pending(self, topology: NodeTopology) -> NodeTopology:
        """The topology with idle GPUs that were never checked as unhealthy. It is not a failure, so no hold-down
        follows. From any thread."""
        if self._mode == NONE:
            return topology
        state, verdicts = self._node.state, self._verdicts
        return _unhealthy(
            topology, lambda gpu: PENDING if gpu.uuid not in verdicts and idle(state, gpu) else ""
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            state = self._node.state
            if due := self._due(state, time.monotonic()):
                self._check(due, stop)
            self._node.wait(_changed(self._node.state, stop), TICK_S)

    def _due(self, state: NodeState, now: float) -> list[str]:
        """UUIDs of idle GPUs to check; none if no check is due. One that is due takes all idle ones with it, because
        copies go between them."""
        here = {gpu.uuid for gpu in state.topology.gpus}
        kept = {}
        for gpu in state.topology.gpus:
            verdict = self._verdicts.get(gpu.uuid)
            if state.grants_known and not (gpu.mig or (idle(state, gpu) and checkable(gpu))):
                verdict = replace(verdict or Verdict(now), used=True)
            if verdict is not None:
                kept[gpu.uuid] = verdict
        self._verdicts = {uuid: verdict for uuid, verdict in kept.items() if uuid in here}
        free = [gpu.uuid for gpu in state.topology.gpus if idle(state, gpu) and checkable(gpu)]
        return free if any(self._is_due(uuid, now) for uuid in free) else []

    def _is_due(self, uuid: str, now: float) -> bool:
        verdict = self._verdicts.get(uuid)
        if verdict is None or verdict.used:
            return True
        return now - verdict.at >= (RETRY_S if verdict.why else AGAIN_S)

    def _check(self, uuids: list[str], stop: threading.Event) -> None:
        topology = self._node.state.topology
        found = idle_checks.failures(topology, self._facts(), uuids)
        rest = [uuid for uuid in uuids if uuid not in found]
        copied = CopyOutcome({})
        if self._mode == COPY and rest:
            copied = self._copies.run(
                rest, self._wait_s, lambda: stop.is_set() or not self._still_idle(rest)
            )
        if copied.unable:
            self._log.failed(f"preflight without copies: {copied.unable}")
        elif self._mode == COPY and not copied.cancelled:
            self._log.ok(f"preflight of {len(rest)} GPUs: {len(copied.failed)} failed copies")
        found |= copied.failed
        now, state = time.monotonic(), self._node.state
        verdicts = dict(self._verdicts)
        for gpu in state.topology.gpus:
            # Who got the GPU meanwhile may have caused the failure, and is checked after.
            if (
                gpu.uuid in uuids
                and idle(state, gpu)
                and not (copied.cancelled and gpu.uuid in rest)
            ):
                why = found.get(gpu.uuid, "")
                verdicts[gpu.uuid] = Verdict(now, f"{PREFLIGHT}{why}" if why else "")
        if verdicts != self._verdicts:
            self._verdicts = verdicts
            self._wake()

    def _still_idle(self, uuids: Collection[str]) -> bool:
        state = self._node.state
        return all(idle(state, gpu) for gpu in state.topology.gpus if gpu.uuid in uuids)


def idle(state: NodeState, gpu: Gpu) -> bool:
    """Returns whether the GPU is unused and can be allocated whole."""
    if gpu.mig or not state.grants_known:
        return False
    allocated = state.allocated()
    taken = {*state.taken(GPU), *allocated.whole, *allocated.shared, *allocated.sliced}
    return gpu.uuid not in taken


def checkable(gpu: Gpu) -> bool:
    """Returns whether the GPU is healthy, or unhealthy only by an earlier check."""
    return gpu.healthy or gpu.why.startswith(PREFLIGHT)


def _unhealthy(topology: NodeTopology, why: Callable[[Gpu], str]) -> NodeTopology:
    whys = {gpu.uuid: why(gpu) for gpu in topology.gpus if gpu.healthy}
    if not any(whys.values()):
        return topology
    gpus = tuple(
        replace(gpu, healthy=False, why=whys[gpu.uuid]) if whys.get(gpu.uuid) else gpu
        for gpu in topology.gpus
    )
    return replace(topology, gpus=gpus)


def _changed(old: NodeState, stop: threading.Event) -> Callable[[NodeState], bool]:
    return lambda now: (
        stop.is_set()
        or now.grants is not old.grants
        or now.grants_known != old.grants_known
        or now.allocations is not old.allocations
        or now.topology is not old.topology
    )
