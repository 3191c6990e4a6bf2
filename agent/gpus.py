"""Whole GPUs as a resource."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent import allocation
from agent.allocation import Choice, Holding, Key, Question, Response
from agent.cdi import Injection
from agent.node import State
from agent.offer import Device
from protos.names import GPU, GPU_SHARE

RECENT_S = 1.0  # a pod's resources are allocated one right after the other


class GpuOffer:
    resource = GPU
    endpoint = "lockstep-gpu.sock"

    def __init__(
        self, device_nodes: Callable[[Sequence[str]], tuple[str, ...]], injection: Injection
    ) -> None:
        self._device_nodes, self._injection = device_nodes, injection
        self._lock = threading.Lock()
        self._last: tuple[float, tuple[str, ...]] = (float("-inf"), ())

    def devices(self, state: State) -> tuple[Device, ...]:
        shared = state.sold().shared
        return tuple(
            Device(gpu.uuid, gpu.healthy and gpu.uuid not in shared, gpu.numa)
            for gpu in state.topology.gpus
            if not gpu.mig
        )

    def preferred(
        self,
        question: Question,
        state: State,
        listed: Sequence[Holding] | None,
        asked: frozenset[Key],
    ) -> Choice:
        plans = tuple(plan for plan in state.intents if plan.resource == GPU)
        rows = None if listed is None else tuple(row.of(GPU) for row in listed)
        shared = state.sold().shared
        promised = {uuid for p in state.intents if p.resource == GPU_SHARE for uuid in p.device_ids}
        for spoken_for in (shared.keys() | promised, shared.keys()):
            free = tuple(uuid for uuid in question.available if uuid not in spoken_for)
            if len(free) >= question.size:
                question = replace(question, available=free)
                break
        return allocation.preferred(question, state.topology, plans, rows, asked)

    def response(self, ids: Sequence[str], state: State) -> Response:
        files = () if self._injection.mode == "cdi" else self._device_nodes(sorted(ids))
        given = allocation.response(ids, state.topology, files)
        given = self._injection.apply(sorted(ids), given)
        with self._lock:
            self._last = (time.monotonic(), tuple(sorted(ids)))
        return given

    def just_given(self) -> tuple[str, ...]:
        """To the pod that is being admitted, most likely; else nothing."""
        with self._lock:
            at, ids = self._last
        return ids if time.monotonic() - at < RECENT_S else ()

    def words(self, ids: Sequence[str], state: State) -> str:
        return "GPUs " + ",".join(str(gpu.index) for gpu in state.topology.gpus if gpu.uuid in ids)

    def starting(self, ids: Sequence[str], holder: Key | None) -> None:
        pass
