"""What containers with shares were told when they got them: how their caps hold, and how large they are.
After a start of the agent the kubelet's checkpoint says it, which holds our own answers."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.backoff import Voice
from agent.kubelet import checkpoint
from agent.node import State
from protos.names import GPU_SHARE
from protos.nearest import card_of

log = logging.getLogger(__name__)

LEVEL, CAP, SLICE = "LOCKSTEP_GPU_ENFORCEMENT", "LOCKSTEP_GPU_MEMORY", "LOCKSTEP_GPU_TIMESLICE"
Ids = tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class Said:
    level: str = ""  # empty: not known
    cap: int = 0  # bytes; 0: none
    slice: str = ""


class Told:
    def __init__(self, plugins: Path) -> None:
        self._plugins = plugins
        self._lock = threading.Lock()
        self._known: dict[Ids, Said] = {}
        self._voice = Voice(log)

    def note(self, ids: Ids, said: Said) -> None:
        """An Allocate is answered so."""
        with self._lock:
            self._known[ids] = said

    def of(self, ids: Ids) -> Said:
        """Of a container that starts."""
        with self._lock:
            if ids not in self._known:
                self._known |= self._written({ids})
            return self._known.get(ids, Said())

    def now(self, state: State) -> dict[Ids, Said]:
        """Of all shares that are out."""
        out = shares_out(state)
        with self._lock:
            if missing := out - self._known.keys():
                self._known |= self._written(missing)
            self._known = {ids: said for ids, said in self._known.items() if ids in out}
            return {ids: self._known.get(ids, Said()) for ids in out}

    def _written(self, wanted: set[Ids]) -> dict[Ids, Said]:
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            self._voice.bad(str(error))
            return {}
        return {
            entry.device_ids: _said(entry.envs())
            for entry in entries
            if entry.resource == GPU_SHARE and entry.device_ids in wanted
        }


def _said(envs: Mapping[str, str]) -> Said:
    cap = envs.get(CAP, "")
    return Said(envs.get(LEVEL, ""), int(cap) if cap.isdigit() else 0, envs.get(SLICE, ""))


def shares_out(state: State) -> set[Ids]:
    """By container."""
    held = [(row.resource, row.device_ids) for row in state.grants]
    held += [(row.resource, row.device_ids) for row in (*state.sales, *state.unnamed)]
    return {tuple(sorted(ids)) for resource, ids in held if resource == GPU_SHARE}


def by_gpu(said: Mapping[Ids, Said]) -> dict[str, list[Said]]:
    found: dict[str, list[Said]] = {}
    for ids, each in sorted(said.items()):
        found.setdefault(card_of(ids[0]), []).append(each)
    return found
