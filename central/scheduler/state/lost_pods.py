"""Pods that terminate for ever, because their node died: nobody deletes them, and nobody can say that they have ended.
Some time after their grace period they count as ended. They hold no quota, and claims do not wait for them. They count
again when the node is ready again.

Design: docs/design/gangs.md
"""

from collections.abc import Iterator

from central.scheduler.inventory.pods import FOUND, LOST, Pod
from central.scheduler.state import handlers
from central.scheduler.state.cluster_state import ClusterState


def write_off(state: ClusterState, now: float, after_s: float, max_grace_s: float) -> None:
    """after_s: behind the grace period, of which at most max_grace_s counts."""
    for pod, ends in [*_terminating(state, max_grace_s)]:
        if ends + after_s <= now:
            _change(state, pod, LOST)
            state.node_sets.with_lost_pods.add(pod.node)
    for name in sorted(state.node_sets.with_lost_pods):
        node = state.nodes.get(name)
        if node is None or (node.seen is not None and node.seen.ready):
            state.node_sets.with_lost_pods.discard(name)
            for pod in [*node.pods.values()] if node is not None else ():
                _change(state, pod, FOUND)


def due(state: ClusterState, after_s: float, max_grace_s: float) -> list[float]:
    """Returns the times at which write_off() finds more pods."""
    return [ends + after_s for _, ends in _terminating(state, max_grace_s)]


def _terminating(state: ClusterState, max_grace_s: float) -> Iterator[tuple[Pod, float]]:
    """Yields the pods that terminate on nodes that are not ready and still hold something, and when their grace periods
    end."""
    for name in state.node_sets.not_ready:
        for pod in state.nodes[name].pods.values():
            holds = not pod.life.lost or pod.charged_spec is not None
            if holds and pod.seen.deleting and pod.seen.ended is not None:
                yield pod, pod.seen.ended + min(pod.seen.grace_s, max_grace_s)


def _change(state: ClusterState, pod: Pod, event: str) -> None:
    if pod.life.lost or event == LOST:
        pod.advance(event)
        handlers.move_pod(state, pod, pod.node)
