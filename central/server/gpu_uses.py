"""The use of GPUs by pods, as their agents report it, and since when pods leave theirs idle. Kept in memory, by name.

A pod is idle while the mean utilization of its containers' GPUs is below `idle_below`. A restart of the scheduler
begins to count again. Pods whose utilization the driver does not tell, such as those on MIG slices, are never idle.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from central.model.json_types import Json
from protos.topology import GpuUse

LEAST_S = 300.0  # of idleness before the scheduler is told
TELL_EVERY_S = 60.0
PodKey = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class PodUse:
    """idle_since: monotonic time; None: it is busy, or its utilization is unknown. memory: bytes; -1: unknown"""

    utilization: float | None
    memory: int
    idle_since: float | None = None


class GpuUses:
    def __init__(self, idle_below: float = 0.05, idle_after_s: float = 1800.0) -> None:
        self._below, self.idle_after_s = idle_below, idle_after_s
        self._lock = threading.Lock()
        self._by_node: dict[str, dict[PodKey, PodUse]] = {}
        # By node: when the scheduler was told, and of which idle pods.
        self._told: dict[str, tuple[float, set[PodKey]]] = {}

    def record(self, node: str, uses: Iterable[GpuUse], now: float) -> None:
        """Replaces what is known of the node's pods."""
        by_pod: dict[PodKey, list[GpuUse]] = {}
        for use in uses:
            by_pod.setdefault((use.namespace, use.pod), []).append(use)
        with self._lock:
            before = self._by_node.pop(node, {})
            found = {key: self._of(each, before.get(key), now) for key, each in by_pod.items()}
            if found:
                self._by_node[node] = found

    def _of(self, uses: list[GpuUse], before: PodUse | None, now: float) -> PodUse:
        rates = [use.utilization for use in uses if use.utilization >= 0]
        rate = sum(rates) / len(rates) if rates else None
        memory = sum(use.memory for use in uses) if all(u.memory >= 0 for u in uses) else -1
        if rate is None or rate >= self._below:
            return PodUse(rate, memory)
        since = before.idle_since if before is not None else None
        return PodUse(rate, memory, now if since is None else since)

    def idle_on(self, node: str, now: float) -> tuple[tuple[str, str, float], ...] | None:
        """Returns the pods that have been idle for LEAST_S, with the seconds; at most once a minute, but at once if one
        of them is busy again. None: there is no news."""
        with self._lock:
            found = {
                key: now - use.idle_since
                for key, use in self._by_node.get(node, {}).items()
                if use.idle_since is not None and now - use.idle_since >= LEAST_S
            }
            at, before = self._told.pop(node, (-inf, set()))
            is_news = not before <= found.keys() or bool(found and now >= at + TELL_EVERY_S)
            if before or found:
                self._told[node] = (now, {*found}) if is_news else (at, before)
        return tuple(sorted((*key, idle_s) for key, idle_s in found.items())) if is_news else None

    def forget(self, node: str) -> None:
        with self._lock:
            self._by_node.pop(node, None)
            self._told.pop(node, None)

    def on_node(self, node: str, namespace: str, pod: str) -> PodUse | None:
        with self._lock:
            return self._by_node.get(node, {}).get((namespace, pod))

    def is_idle(self, use: PodUse, now: float) -> bool:
        """Returns whether the pod has been idle for as long as makes it known as idle."""
        return use.idle_since is not None and now - use.idle_since >= self.idle_after_s

    def together(self, pods: Iterable[tuple[str, str, str]], now: float) -> Json | None:
        """Returns the use by these pods, each with its node first; None: nothing is known of them.

        idle_s: since when all whose utilization is known are idle; None: one is busy
        """
        found = [use for node, *name in pods if (use := self.on_node(node, name[0], name[1]))]
        rated = [use for use in found if use.utilization is not None]
        since = [use.idle_since for use in rated if use.idle_since is not None]
        memory = [use.memory for use in found if use.memory >= 0]
        if not rated and not memory:
            return None
        rate = sum(use.utilization or 0.0 for use in rated) / len(rated) if rated else None
        idle = bool(rated) and len(since) == len(rated)
        return {
            "utilization": rate,
            "memory": sum(memory) if memory else None,
            "idle_s": now - max(since) if idle else None,
        }
