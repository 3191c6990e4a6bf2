"""The phase and the reason of a gang, and a status update whenever they change."""

from collections.abc import Mapping
from operator import attrgetter

from central.model import limits, wording
from central.model.decisions import PODS_SHOWN, Decision, UpdateGangStatus
from central.model.past_turns import PastTurns
from central.model.pending_causes import CAUSES, ERROR, SET_ASIDE, UNSCHEDULABLE
from central.model.phases import COMPLETED, PENDING, RUNNING, UNKNOWN
from central.scheduler.inventory.pods import Pod
from central.scheduler.state import readiness
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, PublishedStatus
from central.scheduler.status import unhealthy
from protos.names import ISLAND, NODE

MOST_TASKS = 3  # named in one reason


def phase(gang: Gang) -> str:
    """The phase in the words of the PodGroup API: Running once the minimum is placed, and Completed for good once its
    last pod is deleted."""
    if gang.published.override is not None:
        return gang.published.override[0]
    succeeded = gang.counts.succeeded
    if not gang.members and is_completed(gang):
        return COMPLETED
    if succeeded and succeeded == len(gang.members) and succeeded >= gang.minimum:
        return COMPLETED
    return PENDING if gang.missing() else RUNNING


def is_completed(gang: Gang) -> bool:
    """Returns whether the gang's status says Completed, as last written or as the API server has it."""
    written = gang.object.phase if gang.object is not None else ""
    return COMPLETED in (written, gang.published.state.phase)


def describe(state: ClusterState, gang: Gang) -> str:
    return _describe(state, gang, phase(gang), state.why_set_aside(gang))


def _describe(state: ClusterState, gang: Gang, now: str, aside: str) -> str:
    text, ill = _describe_phase(state, gang, now), unhealthy.describe(state, gang)
    if not (aside or ill):
        return text  # mostly, and hundreds are written at once
    if aside and not gang.members:
        text = ""
    elif aside in text:
        aside = ""
    return "; ".join(filter(None, (text, aside, ill)))


def _describe_phase(state: ClusterState, gang: Gang, now: str) -> str:
    if gang.published.override is not None:
        return gang.published.override[1]
    if now == COMPLETED:
        count = len(gang.members)
        return f"all {count} pods succeeded" if count > 1 else "its pod succeeded"
    if now == PENDING:
        placed = len(gang.counts.placed)
        lacks = (
            gang.attempt.reason
            or readiness.eviction(gang)
            or readiness.shortage(gang, gang.missing())
        )
        return f"{_bound(gang, placed)}; {lacks}" if placed else lacks
    text = f"{len(gang.counts.placed)} of {len(gang.members)} pods placed {closeness(state, gang)}"
    return (
        f"{text}; remaining pods: {gang.attempt.reason}"
        if gang.counts.unplaced and gang.attempt.reason
        else text
    )


def _bound(gang: Gang, placed: int) -> str:
    """Returns how many pods of the minimum are bound, in words; by task where only tasks are below their minima."""
    short = gang.short_tasks() if placed >= gang.minimum else {}
    if not short:
        return f"{placed} of {gang.minimum} pods are bound"
    least = dict(gang.task_min)
    tasks = [f"{least[task] - n} of {least[task]} of task {task}" for task, n in short.items()]
    more = ", ..." if len(tasks) > MOST_TASKS else ""
    pods = wording.counted(placed, "pod")
    return f"{pods} {'is' if placed == 1 else 'are'} bound, {', '.join(tasks[:MOST_TASKS])}{more}"


def closeness(state: ClusterState, gang: Gang) -> str:
    """The narrowest domain that holds every placed pod, in words."""
    counts, alive = gang.counts, gang.counts.placed
    if counts.succeeded or counts.failed:
        alive = [pod for pod in alive if pod.alive]
    nodes = {*map(_node, alive)}
    if not nodes:
        return "earlier"
    if len(nodes) == 1:
        return _on_one_node(state, nodes.pop(), [pod.gpus for pod in alive])
    row, domains = state.snapshot.columns.row, state.snapshot.columns.domains
    rows = [row[name] for name in nodes if name in row]
    if len(rows) == len(nodes):
        of = domains.of[:, rows]
        for level in reversed(range(len(domains.levels))):
            inside = of[level, 0]
            if inside >= 0 and (of[level] == inside).all():
                kind = domains.levels[level].rpartition("/")[2]
                return f"on {len(nodes)} nodes of {kind} {domains.names[level][inside]}"
    return f"on {len(nodes)} nodes"


_node = attrgetter("node")


def _on_one_node(state: ClusterState, name: str, masks: list[int]) -> str:
    shape = state.nodes[name].reported.shape
    gpus = 0
    for mask in masks:
        gpus |= mask
    if shape is not None and gpus and any(not gpus & ~island for island in shape.islands):
        return f"in one {ISLAND} of {NODE} {name}"
    return f"on {NODE} {name}"


def status_update(
    state: ClusterState,
    gang: Gang,
    cause: str,
    nominated: Mapping[str, str],
    past_turns: PastTurns | None = None,
) -> list[Decision]:
    """An UpdateGangStatus if the gang's phase, reason or counts changed, or what it had run, after warnings about its
    devices. cause: of pending_causes.CAUSES. nominated: by name, the nodes of pods whose place others are leaving."""
    aside = state.why_set_aside(gang)
    if not (gang.members or gang.published.override or _is_news_without_pods(gang, aside)):
        return []
    warnings = unhealthy.new_warnings(state, gang)
    counts = gang.counts
    pod_phases = (counts.running, counts.succeeded + gang.collected, counts.failed)
    now = PENDING if aside and not gang.members else phase(gang)
    reason = state.public(_describe(state, gang, now, aside), gang.namespace)
    shown, others, is_news = _pods_to_tell(gang, cause, nominated)
    turns = (past_turns.ran_s, past_turns.until, past_turns.runs) if past_turns else None
    # Each of the first pods that wait gets the reason, so another one is news.
    groups = _podgroups(gang)
    published = PublishedStatus(now, reason, pod_phases, len(shown), turns, cause, groups)
    if published == gang.published.state and not is_news:
        return [*warnings]
    gang.published.state = published
    group = state.group_of(gang)
    update = UpdateGangStatus(
        gang.namespace,
        gang.name,
        now,
        reason,
        group is not None and not group.declared,
        tuple([pod.seen.name for pod in (*shown, *others)]),
        *pod_phases,
        quiet=gang.published.suppress_event,
        of_job=gang.published.of_job,
        native_version=group.native_version if group is not None else "",
        podgroups=groups,
        past_turns=past_turns,
        cause=cause,
        nominated=tuple(nominated.items()),
    )
    return [*warnings, update]


def _podgroups(gang: Gang) -> tuple[tuple[str, bool], ...]:
    """The first PodGroups of a CompositePodGroup's gang, and whether they have their minimum."""
    if not gang.subgroups or not gang.subgroups[0].within:
        return ()
    groups = gang.division().groups
    return tuple((group.values[0], not group.lacks) for group in groups[: limits.SUBGROUPS])


def _pods_to_tell(
    gang: Gang, cause: str, nominated: Mapping[str, str]
) -> tuple[list[Pod], list[Pod], bool]:
    """The first pending pods without scheduling gates, and those of the others whose condition makes autoscalers act
    otherwise than it should; and whether one of these is not decided yet. A gang that was not tried changes none."""
    reason = CAUSES.get(cause, "")
    waiting = [pod for pod in gang.counts.waiting if not pod.seen.gated]
    if gang.counts.blocked and reason == ERROR:
        waiting += [pod for pod in gang.members.values() if pod.bind_error and pod.waiting]
    shown, others, is_news = waiting[:PODS_SHOWN], list[Pod](), False
    if not reason:
        return shown, others, is_news
    before, told = gang.published.told, dict[str, tuple[str, str]]()
    for index, pod in enumerate(waiting):
        wanted, seen = (reason, nominated.get(pod.seen.name, "")), pod.seen.told
        last = told[pod.seen.uid] = before.get(pod.seen.uid, seen)
        matters = UNSCHEDULABLE in (seen[0], last[0], reason) or seen[1] or last[1] or wanted[1]
        if index < PODS_SHOWN or (matters and not seen == last == wanted):
            told[pod.seen.uid] = wanted
            others += [pod] if index >= PODS_SHOWN else []
            is_news |= index >= PODS_SHOWN and last != wanted
    gang.published.told = told
    return shown, others, is_news


def _is_news_without_pods(gang: Gang, aside: str) -> bool:
    """Returns whether a gang without pods gets a status: one that is set aside, or whose last pods were deleted. A
    PodGroup that never had pods gets none, and a completed one stays so."""
    lost_all = gang.has_podgroup and gang.published.state.phase not in ("", COMPLETED)
    return not gang.foreign and (bool(aside) or lost_all)


def plain_status(gang: Gang, why: str) -> list[Decision]:
    """Returns the update for a gang that is set aside because its status can't be computed; empty: nothing changed."""
    published = PublishedStatus(UNKNOWN, why)
    if published == gang.published.state:
        return []
    gang.published.state = published
    pending = (pod.seen for pod in gang.members.values() if pod.waiting)
    names = tuple(seen.name for seen in pending if not seen.gated)
    return [
        UpdateGangStatus(
            gang.namespace,
            gang.name,
            UNKNOWN,
            why,
            gang.has_podgroup,
            names,
            native_version=gang.object.native_version if gang.object is not None else "",
            past_turns=gang.object.past_turns if gang.object is not None else None,
            cause=SET_ASIDE,
        )
    ]
