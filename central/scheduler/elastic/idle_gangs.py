"""Gangs that leave their GPUs idle, in queues that ask for their eviction (`idleTimeout`).

A gang is idle when agents say so of each of its pods with GPUs. Pods whose utilization the driver does not tell are
never idle.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from central.model.decisions import IDLE, Evict
from central.model.facts import GpusIdle
from central.model.wording import format_duration
from central.scheduler.inventory.pods import Pod, evictions
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

FRESH_S = 180.0  # a report that is older says nothing


@dataclass(slots=True)
class IdleGpus:
    # By the pods' uids: how long, and when it was said; and how long, as said since the last cycle.
    _idle: dict[str, tuple[float, float]] = field(default_factory=dict)
    _news: dict[str, float] = field(default_factory=dict)

    def apply(self, state: ClusterState, fact: GpusIdle) -> None:
        """Ignores reports about pods that are not on the node. The others that are there are busy."""
        idle = {(namespace, name): idle_s for namespace, name, idle_s in fact.pods}
        node = state.nodes.get(fact.node)
        for uid, pod in node.pods.items() if node else ():
            self._idle.pop(uid, None)
            self._news.pop(uid, None)
            if (idle_s := idle.get((pod.seen.namespace, pod.seen.name))) is not None:
                self._news[uid] = idle_s

    def decide(self, state: ClusterState, queues: Queues, now: float) -> Iterator[Evict]:
        """Yields the evictions of the gangs that reached their queue's limit."""
        if not self._news:
            return
        self._idle |= {uid: (idle_s, now) for uid, idle_s in self._news.items()}
        for uid in [uid for uid, (_, at) in self._idle.items() if now - at > FRESH_S]:
            del self._idle[uid]
        pods = (state.pods.get(uid) for uid in sorted(self._news))
        gangs = {gang.key: gang for pod in pods if pod is not None and (gang := state.gang_of(pod))}
        self._news.clear()
        for _, gang in sorted(gangs.items()):
            limit_s = queues.nearest(gang.queue, attrgetter("idle_s"))
            if limit_s and not gang.foreign and self._is_idle(queues, gang, limit_s):
                state.pending.touch(gang)
                why = (
                    f"gang {gang.display_name} has left its GPUs idle for {format_duration(limit_s)}, "
                    f"the idleTimeout of queue {gang.queue_name}"
                )
                yield from evictions(gang.counts.placed, why, IDLE)

    def _is_idle(self, queues: Queues, gang: Gang, limit_s: float) -> bool:
        def idle(pod: Pod) -> bool:
            return self._idle.get(pod.seen.uid, (0.0, 0.0))[0] >= limit_s

        using = [pod for pod in gang.counts.placed if queues.currency.worth(pod.spec.requests)]
        return bool(using) and all(map(idle, using))
