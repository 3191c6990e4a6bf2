"""Contains an exception to the object or the gang that triggered it, so that a bug stops nobody else.

    a fact raises      the object is set aside. The state is built again without it, because the handler
                       may have left it half changed (rebuild.py)
    a search raises    the gang is set aside. A search changes the state only through drafts, which are
                       undone
    anything else of   the gang is set aside, the state is built again, and the cycle begins again with
    a gang raises      the decisions that were made so far
    another exception  the state is built again, and the cycle begins again. If that raises too before a round of it
                       has ended, or from the same place within a minute, the process ends: a standby or a restart
                       lists everything

MemoryError and RecursionError may come in the middle of a change, so they never count as one of a search.
Without exceptions this costs nothing: Python enters a try block for free.

Design: docs/design/containment.md
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import cast, get_args

from central.model.decisions import PODS_SHOWN, Decision, EmitWarning, UpdateGangStatus
from central.model.event_objects import about, build_event
from central.model.event_reasons import SET_ASIDE
from central.model.facts import (
    Answered,
    BatchFact,
    BindFailed,
    ElasticFact,
    ElasticSeen,
    EvictDone,
    Fact,
    GangSeen,
    JobGone,
    JobSeen,
    NodeOffers,
    NodeReported,
    NodeSilent,
    PodSeen,
)
from central.model.facts.elastic_facts import SIZED_KINDS
from central.model.pending_causes import SET_ASIDE as FAILED
from central.model.phases import PENDING, UNKNOWN
from central.model.volumes import ClaimSeen, VolumeGone, VolumeSeen
from central.scheduler import rebuild
from central.scheduler.apply import apply
from central.scheduler.inventory.pods import (
    BIND_FAILED,
    BOUND,
    EVICTION_AGREED,
    EVICTION_ENDED,
    Pod,
)
from central.scheduler.quarantine import (
    ACCOUNT,
    CYCLE,
    GANG,
    PODGROUP,
    SetAside,
    SetAsideKey,
    display_of,
    is_gone,
    key_of,
)
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import handlers, reclassification
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status.pod_warning import pod_warning
from central.scheduler.work_meter import WorkLimitReached

NODE = "Node"
EVENT_KINDS = frozenset(  # of central.kube.resource_paths
    {
        *("Pod", NODE, PODGROUP, "Queue", "HyperNode", "Namespace", "PriorityClass"),
        *("Job", "CronJob", "JobFlow", "JobTemplate", "Command", "PodDisruptionBudget"),
        *("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver"),
        "CSIStorageCapacity",
    }
)
OF_CONTROLLERS = frozenset((JobSeen, JobGone, *get_args(BatchFact), *get_args(ElasticFact)))
UNSAFE = (MemoryError, RecursionError)


class SearchFailed(Exception):
    """A search for a place or for victims raised the cause. The state is as before."""


class StateRebuilt(Exception):
    """The scheduler has a new state. A caller that holds parts of the old one must begin again."""


# --- facts -----------------------------------------------------------------------


def apply_facts(scheduler: Scheduler, facts: Iterable[Fact]) -> None:
    """Applies all facts but those of objects that are, or must be, set aside. Raises CannotRebuild."""
    quarantine = scheduler.quarantine
    quarantine.forget_suspicion(scheduler.state.now)
    for fact in (*quarantine.retried(scheduler.state.now), *facts):
        if (needs_care := quarantine.needs_care()) and not _is_allowed(scheduler, fact):
            _keep_counted(scheduler, fact)
            continue
        try:
            apply(scheduler, fact)
        except Exception as error:  # noqa: BLE001  a bug in a handler; the object is set aside
            _fact_failed(scheduler, fact, error)
            continue
        if needs_care:
            quarantine.release(key_of(fact))


def _is_allowed(scheduler: Scheduler, fact: Fact) -> bool:
    """Returns whether the fact is to be applied, while something is set aside, or was lately."""
    quarantine, state, key = scheduler.quarantine, scheduler.state, key_of(fact)
    if is_gone(fact):
        quarantine.release(key)
        return True
    if quarantine.blocks(key, fact, state.now):
        quarantine.set_asides[key].latest = fact
        return False
    if not quarantine.suspects(key.kind):
        return True
    try:
        trial = scheduler.emptied()
        trial.state.now = state.now
        apply(trial, fact)
        trial.queues.settle()
    except Exception as error:  # noqa: BLE001  it fails on its own, so the state need not see it
        found = quarantine.set_aside(key, display_of(fact), error, fact, state.now)
        if found.failures == 1:  # the reasons of gangs that name it say so
            state.pending.all_changed = True
        return False
    return True


def _fact_failed(scheduler: Scheduler, fact: Fact, error: Exception) -> None:
    state, key = scheduler.state, key_of(fact)
    if type(fact).__name__.endswith("Seen") or isinstance(fact, NodeReported):
        scheduler.quarantine.set_aside(key, display_of(fact), error, fact, state.now)
    else:
        scheduler.quarantine.note(key, display_of(fact), error)
    if type(fact) in OF_CONTROLLERS:
        try:
            scheduler.controllers.discard(fact)
        except Exception as second:  # noqa: BLE001  the controller keeps what it had
            scheduler.quarantine.note(key, display_of(fact), second)
        return
    _note_outcome(scheduler, fact)
    rebuild.rebuild(scheduler, fact)
    _keep_counted(scheduler, fact)


def _keep_counted(scheduler: Scheduler, fact: Fact) -> None:
    """Applies what a fact that is not applied itself says of capacity in use: where a pod runs, that a volume is not
    free, and that the devices of a node are not those of its last report. Reclassifies the pods that name the volume
    claim of the fact, since their reasons change."""
    state, instead = scheduler.state, fact
    try:
        if isinstance(fact, NodeReported):
            handlers.lose_report(state, fact.node)
        elif isinstance(fact, VolumeSeen) and not fact.free:
            instead = VolumeGone(fact.name)
            apply(scheduler, instead)
        elif isinstance(fact, ClaimSeen):
            reclassification.claim_set_aside(state, fact)
        elif isinstance(fact, PodSeen) and fact.node:
            pod = state.pods.get(fact.uid)
            if pod is None or pod.node != fact.node:
                instead = rebuild.bare(fact)
                handlers.admit_pod(state, instead)
    except Exception:  # noqa: BLE001  not even that can be counted
        rebuild.rebuild(scheduler, instead)


def _note_outcome(scheduler: Scheduler, fact: Fact) -> None:
    """Applies the most important part of a fact that could not be applied and that is not repeated."""
    state = scheduler.state
    match fact:
        case NodeSilent():
            if (node := state.nodes.get(fact.node)) is not None:
                node.silent = True
                handlers.set_offered(state, node, True)
        case NodeOffers():
            if (node := state.nodes.get(fact.node)) is not None:
                handlers.set_offered(state, node, fact.offered)
        case Answered():
            for statuses in (scheduler.queue_statuses, scheduler.hypernode_statuses):
                statuses.writes.answered(fact, state.now, lost=True)
        case BindFailed():
            if (pod := state.pods.get(fact.pod)) is not None:
                _note_failed_binding(state, pod, fact)
        case EvictDone():
            if (pod := state.pods.get(fact.pod)) is not None:
                _note_eviction(state, pod, fact)
        case _:
            pass


def _note_failed_binding(state: ClusterState, pod: Pod, fact: BindFailed) -> None:
    if pod.node == fact.node and pod.life.stage != BOUND:  # the handler may have advanced it
        pod.advance(BIND_FAILED, fact.why if fact.final else "")
        pod.node, pod.gpus = "", 0
        if (gang := state.gang_of(pod)) is not None:
            gang.attempt.bind_failures += 1


def _note_eviction(state: ClusterState, pod: Pod, fact: EvictDone) -> None:
    pod.advance(EVICTION_ENDED if fact.why else EVICTION_AGREED)
    if fact.why and pod.evict_backoff.not_before <= state.now:
        not_before = state.now + handlers.EVICTION_BACKOFF_S
        pod.evict_backoff = pod.evict_backoff._replace(not_before=not_before)
        state.pending.preemption_retry_at.add(not_before)


# --- gangs -----------------------------------------------------------------------


class ContainedSearch:
    """A block that changes the snapshot through drafts only, which are undone if it raises: then it raises
    SearchFailed."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (DoesNotFit, WorkLimitReached, *UNSAFE)):
            return
        if isinstance(error, Exception) and not self._snapshot.is_half_changed:
            raise SearchFailed from error


def key_of_gang(gang: Gang, kind: str = GANG) -> SetAsideKey:
    return SetAsideKey(kind, gang.key)


def content_of(gang: Gang) -> object:
    """Returns the inputs of a decision about the gang, apart from the rest of the cluster."""
    return (gang.object, tuple(pod.seen for pod in gang.members.values()))


def blocks(scheduler: Scheduler, gang: Gang, kinds: Sequence[str] = (GANG, ACCOUNT)) -> bool:
    """Returns whether the gang is set aside, by a key of one of these kinds."""
    quarantine = scheduler.quarantine
    if not quarantine.set_asides:
        return False
    keys = [key for kind in kinds if (key := key_of_gang(gang, kind)) in quarantine.set_asides]
    if not keys:
        return False
    content = content_of(gang)
    return any(quarantine.blocks(key, content, scheduler.state.now) for key in keys)


def mark_due(scheduler: Scheduler) -> None:
    """Gangs whose backoff has ended count as changed."""
    state = scheduler.state
    for key, found in list(scheduler.quarantine.set_asides.items()):
        if key.kind in (GANG, ACCOUNT):
            gang = state.gangs.get(cast("GangKey", key.identity))
            if gang is None:
                scheduler.quarantine.release(key)
            elif state.now >= found.retry_at:
                state.pending.changed(gang)


def _release_tried(scheduler: Scheduler) -> None:
    """Releases the gangs that were tried again in a cycle without a failure, and have no turn in which that shows: what
    runs, and PodGroups without pods."""
    state, quarantine = scheduler.state, scheduler.quarantine
    for key, found in list(quarantine.set_asides.items()):
        if key.kind not in (GANG, ACCOUNT) or state.now < found.retry_at:
            continue
        gang = state.gangs.get(cast("GangKey", key.identity))
        if gang is not None and gang.key in state.pending.waiting:
            continue
        quarantine.release(key)
        if gang is not None:
            gang.attempt.reason = ""
            state.pending.publish(gang)


def set_gang_aside(scheduler: Scheduler, gang: Gang, error: BaseException, kind: str = GANG) -> str:
    """Returns the reason for users."""
    state = scheduler.state
    display = (gang.namespace, gang.name)
    found = scheduler.quarantine.set_aside(
        key_of_gang(gang, kind), display, error, content_of(gang), state.now
    )
    gang.attempt.reason = found.why
    scheduler.refused.pop(gang.key)  # it is not computed again
    return found.why


def gang_failed(scheduler: Scheduler, gang: Gang, error: Exception, kind: str = GANG) -> None:
    """Sets the gang aside. Raises StateRebuilt unless a search failed."""
    if not isinstance(error, SearchFailed):
        set_gang_aside(scheduler, gang, error, kind)
        rebuild.rebuild(scheduler)
        raise StateRebuilt from error
    set_gang_aside(scheduler, gang, error.__cause__ or error, kind)
    for spec in {pod.spec for pod in gang.members.values()}:
        scheduler.state.snapshot.forget_view(spec)  # its counts may be incomplete
    scheduler.state.pending.changed(gang)


@contextmanager
def contained(scheduler: Scheduler, gang: Gang, kind: str = GANG) -> Iterator[None]:
    """Sets the gang aside if the block fails, as gang_failed()."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  any bug
        gang_failed(scheduler, gang, error, kind)


# --- the cycle ---------------------------------------------------------------------


def cycle_failed(scheduler: Scheduler, error: Exception) -> None:
    """Builds the state again after an exception that no object or gang is set aside for. Raises the exception if it
    comes back: then the process ends."""
    quarantine = scheduler.quarantine
    quarantine.note(SetAsideKey(CYCLE, CYCLE), ("", CYCLE), error)
    if quarantine.comes_back(error, scheduler.state.now):
        raise error
    rebuild.rebuild(scheduler)


def cycle_passed(scheduler: Scheduler) -> None:
    if scheduler.state.pending.round is None:
        scheduler.quarantine.is_on_trial = False
    _release_tried(scheduler)


# --- what the owner of an object reads ------------------------------------------------


def take_notices(scheduler: Scheduler) -> list[Decision]:
    """Takes the Events about what was set aside, and the statuses that only the scheduler writes. A gang's status says
    why from now on (gang_status.py); Jobs and what creates Jobs have it in theirs (object_fence.py)."""
    decisions: list[Decision] = []
    for key, found in scheduler.quarantine.take_warnings():
        try:
            if key.kind in (GANG, ACCOUNT):
                gang = scheduler.state.gangs.get(cast("GangKey", key.identity))
                decisions += _of_gang(scheduler, gang, found.why) if gang is not None else []
            else:
                decisions += _of_object(scheduler, key, found)
        except Exception as error:  # noqa: BLE001  any bug; the log and the metric have it in any case
            scheduler.quarantine.note(key, (found.namespace, found.name), error)
    return decisions


def _of_gang(scheduler: Scheduler, gang: Gang, why: str) -> list[Decision]:
    scheduler.state.pending.publish(gang)
    pod = min(gang.members.values(), key=lambda each: each.seen.order, default=None)
    if pod is not None:
        return [pod_warning(gang, pod, why, SET_ASIDE)]
    return _of_group(gang.object, why) if gang.object is not None else []


def _of_group(group: GangSeen, why: str) -> list[Decision]:
    if group.declared or group.native_version:  # without pods it may be another scheduler's
        return []
    return [EmitWarning(group.namespace, "", "", group.uid, group.name, why, SET_ASIDE, PODGROUP)]


def _of_object(scheduler: Scheduler, key: SetAsideKey, found: SetAside) -> list[Decision]:
    kind, why, place, content = key.kind, found.why, (found.namespace, found.name), found.content
    uid = getattr(content, "uid", "") or getattr(getattr(content, "spec", None), "uid", "")
    decisions: list[Decision] = []
    match content:
        case GangSeen() as group if not key.of_decision:
            return _of_podgroup(scheduler, group, why)
        case ElasticSeen() as sized:
            concerning = about(SIZED_KINDS[sized.kind].api_version, sized.kind, *place, uid)
            return [build_event(concerning, SET_ASIDE, why, scheduler.state.now)]
        case PodSeen() as pod:
            # Of many pods of a gang the first ones; the gang says how many others there are.
            if pod.gang_key is not None:
                aside = scheduler.quarantine.members_aside(pod.gang_key)[:PODS_SHOWN]
                if not any(each is found for each in aside):
                    return []
            if not pod.node and pod.ours and not pod.gated:
                decisions = [
                    UpdateGangStatus(*place, PENDING, why, False, (pod.name,), cause=FAILED)
                ]
        case NodeReported():
            kind = NODE
        case _:
            pass
    if kind not in EVENT_KINDS:
        return []
    uid = found.name if kind == NODE else uid
    return [EmitWarning(found.namespace, "", "", uid, found.name, why, SET_ASIDE, kind), *decisions]


def _of_podgroup(scheduler: Scheduler, group: GangSeen, why: str) -> list[Decision]:
    event = _of_group(group, why)
    gang = scheduler.state.gangs.get((group.namespace, group.name, True))
    if gang is not None and gang.members:
        scheduler.state.pending.publish(gang)
        return event
    place = group.namespace, group.name
    update = UpdateGangStatus(*place, UNKNOWN, why, True, past_turns=group.past_turns, cause=FAILED)
    return [*event, update] if event else []
