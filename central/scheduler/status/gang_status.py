"""The phase and the reason of a gang, and a status update whenever they change."""

from central.model.decisions import Decision, UpdateGangStatus
from central.model.phases import COMPLETED, PENDING, RUNNING
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.status import unhealthy
from protos.names import ISLAND, NODE


def phase(gang: Gang) -> str:
    """The phase in the words of the PodGroup API: Running once the minimum is placed."""
    if gang.published.override is not None:
        return gang.published.override[0]
    succeeded = gang.counts.succeeded
    if succeeded >= gang.minimum and succeeded == len(gang.members):
        return COMPLETED
    return PENDING if gang.missing() else RUNNING


def describe(state: ClusterState, gang: Gang) -> str:
    return _describe(state, gang, phase(gang))


def _describe(state: ClusterState, gang: Gang, now: str) -> str:
    devices = unhealthy.describe(state, gang)
    return "; ".join(filter(None, (_describe_phase(state, gang, now), devices)))


def _describe_phase(state: ClusterState, gang: Gang, now: str) -> str:
    if gang.published.override is not None:
        return gang.published.override[1]
    if now == COMPLETED:
        return f"all {len(gang.members)} pods succeeded"
    if now == PENDING:
        placed = len(gang.placed())
        lacks = (
            gang.attempt.reason
            or _preempted(gang)
            or f"needs {gang.minimum} pods to start, {len(gang.members)} exist"
        )
        return f"{placed} of {gang.minimum} pods are bound; {lacks}" if placed else lacks
    text = f"{len(gang.placed())} of {len(gang.members)} pods placed {closeness(state, gang)}"
    return (
        f"{text}; remaining pods: {gang.attempt.reason}"
        if gang.counts.unplaced and gang.attempt.reason
        else text
    )


def _preempted(gang: Gang) -> str:
    return f"preempted by {gang.preemption.preempted_for}" if gang.preemption.preempted_for else ""


def closeness(state: ClusterState, gang: Gang) -> str:
    """The narrowest domain that holds every placed pod, in words."""
    alive = [pod for pod in gang.placed() if pod.alive]
    nodes = {pod.node for pod in alive}
    if not nodes:
        return "earlier"
    if len(nodes) == 1:
        return _on_one_node(state, nodes.pop(), [pod.gpus for pod in alive])
    rows = [
        state.snapshot.columns.row[name] for name in nodes if name in state.snapshot.columns.row
    ]
    domains = state.snapshot.columns.domains
    if len(rows) == len(nodes):
        of = domains.of[:, rows]
        for level in reversed(range(len(domains.levels))):
            inside = of[level, 0]
            if inside >= 0 and (of[level] == inside).all():
                kind = domains.levels[level].rpartition("/")[2]
                return f"on {len(nodes)} nodes of {kind} {domains.names[level][inside]}"
    return f"on {len(nodes)} nodes"


def _on_one_node(state: ClusterState, name: str, masks: list[int]) -> str:
    shape = state.nodes[name].reported.shape
    gpus = 0
    for mask in masks:
        gpus |= mask
    if shape is not None and gpus and any(not gpus & ~island for island in shape.islands):
        return f"in one {ISLAND} of {NODE} {name}"
    return f"on {NODE} {name}"


def status_updates(state: ClusterState) -> list[Decision]:
    """One UpdateGangStatus for each gang whose phase, reason or counts changed."""
    updates: list[Decision] = []
    for gang in state.pending.changed_gangs.values():
        if not gang.members and gang.published.override is None:
            continue
        updates += unhealthy.new_warnings(state, gang)
        counts = gang.counts
        pod_phases = (counts.running, counts.succeeded, counts.failed)
        now = phase(gang)
        reason = _describe(state, gang, now)
        published = (now, reason, pod_phases)
        if published == gang.published.state:
            continue
        gang.published.state = published
        updates.append(
            UpdateGangStatus(
                gang.namespace,
                gang.name,
                now,
                reason,
                gang.object is not None,
                tuple(pod.seen.name for pod in counts.waiting),
                *pod_phases,
                quiet=gang.published.suppress_event,
            )
        )
    state.pending.changed_gangs.clear()
    return updates
