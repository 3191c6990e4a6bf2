"""What containers with shares were told when they got them: how their caps hold, and how large they are.
After a start of the agent the kubelet's checkpoint says it, which holds our own answers."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.backoff import StateLogger
from agent.kubelet import checkpoint
from agent.node_state import NodeState
from protos.names import GPU_SHARE
from protos.nearest import device_of

log = logging.getLogger(__name__)

LEVEL, CAP, TIME_SLICE = "LOCKSTEP_GPU_ENFORCEMENT", "LOCKSTEP_GPU_MEMORY", "LOCKSTEP_GPU_TIMESLICE"
Ids = tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class ShareSettings:
    level: str = ""  # empty: not known
    cap: int = 0  # bytes; 0: none
    time_slice: str = ""


class AllocateResponses:
    def __init__(self, plugins: Path) -> None:
        self._plugins = plugins
        self._lock = threading.Lock()
        self._known: dict[Ids, ShareSettings] = {}
        self._log = StateLogger(log)

    def record(self, ids: Ids, said: ShareSettings) -> None:
        """An Allocate is answered so."""
        with self._lock:
            self._known[ids] = said

    def get(self, ids: Ids) -> ShareSettings:
        """Of a container that starts."""
        with self._lock:
            if ids not in self._known:
                self._known |= self._written({ids})
            return self._known.get(ids, ShareSettings())

    def current(self, state: NodeState) -> dict[Ids, ShareSettings]:
        """Of all shares that are out."""
        out = shares_out(state)
        with self._lock:
            if missing := out - self._known.keys():
                self._known |= self._written(missing)
            self._known = {ids: said for ids, said in self._known.items() if ids in out}
            return {ids: self._known.get(ids, ShareSettings()) for ids in out}

    def _written(self, wanted: set[Ids]) -> dict[Ids, ShareSettings]:
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            self._log.failed(str(error))
            return {}
        return {
            entry.device_ids: _said(entry.envs())
            for entry in entries
            if entry.resource == GPU_SHARE and entry.device_ids in wanted
        }


def _said(envs: Mapping[str, str]) -> ShareSettings:
    cap = envs.get(CAP, "")
    return ShareSettings(
        envs.get(LEVEL, ""), int(cap) if cap.isdigit() else 0, envs.get(TIME_SLICE, "")
    )


def shares_out(state: NodeState) -> set[Ids]:
    """By container."""
    held = [(row.resource, row.device_ids) for row in state.grants]
    held += [(row.resource, row.device_ids) for row in (*state.allocations, *state.unlisted)]
    return {tuple(sorted(ids)) for resource, ids in held if resource == GPU_SHARE}


def by_gpu(said: Mapping[Ids, ShareSettings]) -> dict[str, list[ShareSettings]]:
    found: dict[str, list[ShareSettings]] = {}
    for ids, each in sorted(said.items()):
        found.setdefault(device_of(ids[0]), []).append(each)
    return found
