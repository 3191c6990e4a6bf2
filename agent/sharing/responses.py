"""The setup of containers with GPU shares at their allocation: enforcement, memory cap, time slice. After a restart
of the agent it is read from the kubelet's checkpoint, which holds the answers to Allocate."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.backoff import StateLogger
from agent.bounded_files import number
from agent.kubelet import checkpoint
from agent.node_state import NodeState
from protos.names import GPU_SHARE
from protos.nearest import device_of

log = logging.getLogger(__name__)

LEVEL, CAP, TIME_SLICE = "LOCKSTEP_GPU_ENFORCEMENT", "LOCKSTEP_GPU_MEMORY", "LOCKSTEP_GPU_TIMESLICE"
Ids = tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class ShareSettings:
    level: str = ""  # empty: unknown
    cap: int = 0  # bytes; 0: none
    time_slice: str = ""


class AllocateResponses:
    def __init__(self, plugins: Path) -> None:
        self._plugins = plugins
        self._lock = threading.Lock()
        self._known: dict[Ids, ShareSettings] = {}
        self._log = StateLogger(log)

    def record(self, ids: Ids, settings: ShareSettings) -> None:
        """Records the settings of an Allocate that is being answered."""
        with self._lock:
            self._known[ids] = settings

    def get(self, ids: Ids) -> ShareSettings:
        """Settings of the container with these shares."""
        with self._lock:
            if ids not in self._known:
                self._known |= self._written({ids})
            return self._known.get(ids, ShareSettings())

    def current(self, state: NodeState) -> dict[Ids, ShareSettings]:
        """Settings of all allocated shares."""
        held = allocated_shares(state)
        with self._lock:
            if missing := held - self._known.keys():
                self._known |= self._written(missing)
            self._known = {ids: each for ids, each in self._known.items() if ids in held}
            return {ids: self._known.get(ids, ShareSettings()) for ids in held}

    def _written(self, wanted: set[Ids]) -> dict[Ids, ShareSettings]:
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            self._log.failed(str(error))
            return {}
        return {
            entry.device_ids: _settings(entry.envs())
            for entry in entries
            if entry.resource == GPU_SHARE and entry.device_ids in wanted
        }


def _settings(envs: Mapping[str, str]) -> ShareSettings:
    cap = envs.get(CAP, "")
    return ShareSettings(envs.get(LEVEL, ""), max(0, number(cap, 0)), envs.get(TIME_SLICE, ""))


def allocated_shares(state: NodeState) -> set[Ids]:
    """The shares of each container."""
    held = [(row.resource, row.device_ids) for row in state.grants]
    held += [(row.resource, row.device_ids) for row in (*state.allocations, *state.unlisted)]
    held += [(row.resource, row.device_ids) for row in state.forgotten]
    return {tuple(sorted(ids)) for resource, ids in held if resource == GPU_SHARE}


def by_gpu(settings: Mapping[Ids, ShareSettings]) -> dict[str, list[ShareSettings]]:
    found: dict[str, list[ShareSettings]] = {}
    for ids, each in sorted(settings.items()):
        found.setdefault(device_of(ids[0]), []).append(each)
    return found
