"""Contains an exception to the object that triggered it, so that a bug stops nobody else.

    a fact raises      the object is set aside. The state is built again without it, because the handler
                       may have left it half changed (rebuild.py)
    a search raises    the gang is set aside. A search changes the state only through drafts, which are
                       undone
    anything else of   the gang is set aside, the state is built again, and the cycle begins again with
    a gang raises      the decisions that were made so far

MemoryError and RecursionError may come in the middle of a change, so they always count as the last case.
Without exceptions the fence costs nothing: Python enters a try block for free.

Design: docs/design/0049-containment.md
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast, get_args

from central.model.decisions import Decision, EmitWarning
from central.model.event_reasons import SET_ASIDE
from central.model.facts import (
    BatchFact,
    BindFailed,
    EvictDone,
    Fact,
    JobGone,
    JobSeen,
    NodeReported,
    PodSeen,
)
from central.model.volumes import VolumeGone, VolumeSeen
from central.scheduler import rebuild
from central.scheduler.apply import apply
from central.scheduler.fact_keys import display_of, key_of
from central.scheduler.inventory.pods import BIND_FAILED, BOUND, EVICTION_ENDED, Pod
from central.scheduler.quarantine import ACCOUNT, GANG, SetAsideKey
from central.scheduler.queues import order
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.state import handlers
from central.scheduler.state.gangs import Gang, GangKey

STEP = "step of the cycle"
OF_CONTROLLERS = frozenset((JobSeen, JobGone, *get_args(BatchFact)))
UNSAFE = (MemoryError, RecursionError)

# Functions that change the snapshot for a draft, or while they look without some pods.
CHANGE_FILES = ("snapshot.py", "draft.py", "release_forecast.py", "reservation.py")
CHANGES = frozenset(
    (
        "take",
        "take_all",
        "take_many",
        "give",
        "undo",
        "retake",
        "_take_shares",
        "_change",
        "without",
    )
)

Result = TypeVar("Result")


class SearchFailed(Exception):
    """A search for a place or for victims raised the cause. The state is as before."""


class StateRebuilt(Exception):
    """The scheduler has a new state. Whoever holds parts of the old one must begin again."""


# --- facts -----------------------------------------------------------------------


def apply_facts(scheduler: Scheduler, facts: Iterable[Fact]) -> None:
    """Applies all facts but those of objects that are, or must be, set aside. Raises CannotRebuild."""
    if scheduler.quarantine.set_asides:
        facts = [*_retried(scheduler), *facts]
        for fact in facts:
            _apply_if_allowed(scheduler, fact)
        return
    rest = iter(facts)
    for fact in rest:
        try:
            apply(scheduler, fact)
        except Exception as error:  # noqa: BLE001  a bug in a handler; the object is set aside
            _fact_failed(scheduler, fact, error)
            for other in rest:
                _apply_if_allowed(scheduler, other)


def _apply_if_allowed(scheduler: Scheduler, fact: Fact) -> None:
    """While something is set aside."""
    quarantine, now, key = scheduler.quarantine, scheduler.state.now, key_of(fact)
    if quarantine.blocks(key, fact, now):
        quarantine.set_asides[key].latest = fact
        _keep_counted(scheduler, fact)
        return
    known = quarantine.set_asides.get(key)
    try:
        if _is_suspect(scheduler, fact):
            apply(_on_trial(scheduler), fact)
    except Exception as error:  # noqa: BLE001  it fails on its own, so the state need not see it
        quarantine.set_aside(key, display_of(fact), error, fact, now)
        _keep_counted(scheduler, fact)
        return
    try:
        apply(scheduler, fact)
    except Exception as error:  # noqa: BLE001  as in apply_facts()
        _fact_failed(scheduler, fact, error)
    else:
        if known is not None:
            quarantine.release(key)


def _retried(scheduler: Scheduler) -> list[Fact]:
    """The facts whose backoff has ended."""
    state = scheduler.state
    return [
        found.latest
        for found in scheduler.quarantine.set_asides.values()
        if found.latest is not None and state.now >= found.retry_at
    ]


def _is_suspect(scheduler: Scheduler, fact: Fact) -> bool:
    """Whether a fact of this kind failed before: then it is tried apart first. A batch of objects
    with the same fault then costs one rebuild, not one for each."""
    kind = key_of(fact).kind
    return any(key.kind == kind for key in scheduler.quarantine.set_asides)


def _on_trial(scheduler: Scheduler) -> Scheduler:
    trial = scheduler.emptied()
    trial.state.now = scheduler.state.now
    return trial


def _fact_failed(scheduler: Scheduler, fact: Fact, error: Exception) -> None:
    state, key = scheduler.state, key_of(fact)
    if type(fact).__name__.endswith("Seen") or isinstance(fact, NodeReported):
        scheduler.quarantine.set_aside(key, display_of(fact), error, fact, state.now)
    else:
        scheduler.quarantine.note(key, display_of(fact), error)
    if type(fact) in OF_CONTROLLERS:
        step(scheduler, "controllers", scheduler.controllers.discard, fact)
        return
    if isinstance(fact, BindFailed | EvictDone) and (pod := state.pods.get(fact.pod)) is not None:
        _note_outcome(pod, fact)
    rebuild.rebuild(scheduler, fact)
    _keep_counted(scheduler, fact)


def _keep_counted(scheduler: Scheduler, fact: Fact) -> None:
    """What a fact that is not applied says of capacity in use: where a pod runs, that a volume is not
    free, and that the devices of a node are not those of its last report."""
    state, instead = scheduler.state, fact
    try:
        if isinstance(fact, NodeReported):
            handlers.lose_report(state, fact.node)
        elif isinstance(fact, VolumeSeen) and not fact.free:
            instead = VolumeGone(fact.name)
            apply(scheduler, instead)
        elif isinstance(fact, PodSeen) and fact.node:
            pod = state.pods.get(fact.uid)
            if pod is None or pod.node != fact.node:
                instead = rebuild.bare(fact)
                handlers.admit_pod(state, instead)
    except Exception:  # noqa: BLE001  not even that can be counted
        rebuild.rebuild(scheduler, instead)


def _note_outcome(pod: Pod, fact: BindFailed | EvictDone) -> None:
    """What matters most of an answer that could not be applied."""
    if isinstance(fact, EvictDone):
        if fact.why:
            pod.advance(EVICTION_ENDED)
    elif pod.node == fact.node and pod.life.stage != BOUND:  # the handler may have advanced it
        pod.advance(BIND_FAILED)
        pod.node, pod.gpus = "", 0


# --- gangs -----------------------------------------------------------------------


def search(call: Callable[..., Result], *args: object) -> Result:
    """Calls a function that changes the state through drafts only, and undoes them if it raises."""
    try:
        return call(*args)
    except (DoesNotFit, *UNSAFE):
        raise
    except Exception as error:
        if _was_changing(error):
            raise
        raise SearchFailed from error


def _was_changing(error: Exception) -> bool:
    """Whether it came from the middle of a change of the snapshot, which no draft undoes."""
    place = error.__traceback__
    while place is not None:
        code = place.tb_frame.f_code
        if code.co_name in CHANGES and code.co_filename.endswith(CHANGE_FILES):
            return True
        place = place.tb_next
    return False


def key_of_gang(gang: Gang, kind: str = GANG) -> SetAsideKey:
    return SetAsideKey(kind, gang.key)


def content_of(gang: Gang) -> object:
    """What a decision about the gang depends on, apart from the rest of the cluster."""
    return (gang.object, tuple(pod.seen for pod in gang.members.values()))


def blocks(scheduler: Scheduler, gang: Gang, kinds: Sequence[str] = (GANG, ACCOUNT)) -> bool:
    """Whether the gang is set aside."""
    quarantine = scheduler.quarantine
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


def set_gang_aside(scheduler: Scheduler, gang: Gang, error: BaseException, kind: str = GANG) -> str:
    """Returns the reason for users."""
    state = scheduler.state
    display = (gang.namespace, gang.name)
    found = scheduler.quarantine.set_aside(
        key_of_gang(gang, kind), display, error, content_of(gang), state.now
    )
    gang.attempt.reason = found.why
    scheduler.refused.pop(gang.key, None)  # it is not computed again
    return found.why


def gang_failed(scheduler: Scheduler, gang: Gang, error: Exception, kind: str = GANG) -> None:
    """Sets the gang aside. Raises StateRebuilt unless a search failed."""
    state = scheduler.state
    cause = error.__cause__ if isinstance(error, SearchFailed) and error.__cause__ else error
    set_gang_aside(scheduler, gang, cause, kind)
    if not isinstance(error, SearchFailed):
        rebuild.rebuild(scheduler)
        raise StateRebuilt from error
    for spec in {pod.spec for pod in gang.members.values()}:
        state.snapshot.forget_view(spec)  # its counts may be incomplete
    state.pending.changed(gang)


def each_gang(
    scheduler: Scheduler,
    gangs: Iterable[Gang],
    call: Callable[[Gang], list[Decision] | None],
    decisions: list[Decision],
    kind: str = GANG,
) -> None:
    """Calls for each gang that is not set aside, and appends what each decides: the state has it
    already. Raises StateRebuilt if one fails."""
    quarantine = scheduler.quarantine
    for gang in list(gangs):
        if quarantine.set_asides and blocks(scheduler, gang, (kind,)):
            continue
        try:
            decisions += call(gang) or ()
        except Exception as error:  # noqa: BLE001  any bug
            gang_failed(scheduler, gang, error, kind)
        if kind != GANG and quarantine.set_asides:
            quarantine.release(key_of_gang(gang, kind))


# --- steps -----------------------------------------------------------------------


def step(
    scheduler: Scheduler, name: str, call: Callable[..., Result], *args: object
) -> Result | None:
    """Calls a part of the cycle that decides about no gang. None: it failed, and the cycle goes on
    without it."""
    try:
        return call(*args)
    except StateRebuilt:
        raise
    except Exception as error:  # noqa: BLE001  any bug
        scheduler.quarantine.note(SetAsideKey(STEP, name), ("", name), error)
        return None


def decided(
    scheduler: Scheduler, name: str, call: Callable[..., Iterable[Decision]], *args: object
) -> Iterable[Decision]:
    """What a part of the cycle decides, called as by step(); nothing if it failed."""
    return step(scheduler, name, call, *args) or ()


def cycle_failed(scheduler: Scheduler, error: Exception) -> None:
    """Something raised outside of all attempts. Sets aside the gangs that can't even be ordered, and
    builds the state again."""
    scheduler.quarantine.note(SetAsideKey(STEP, "scheduling"), ("", "scheduling"), error)
    scheduler.state.pending.round = None
    rebuild.rebuild(scheduler)
    for gang in list(scheduler.state.pending.waiting.values()):
        try:
            list(order.in_order(scheduler.queues, [gang], []))
        except Exception as why:  # noqa: BLE001  the one that it is about
            set_gang_aside(scheduler, gang, why)
            scheduler.state.pending.update(gang, waiting=False, partial=False)


def warnings(scheduler: Scheduler) -> list[Decision]:
    """An Event for each object that was set aside. Gangs have their own (gang_status.py)."""
    decisions: list[Decision] = []
    for key, found in scheduler.quarantine.take_warnings():
        if key.kind in EVENT_KINDS:
            uid = str(key.identity) if key.kind == "Pod" else ""
            decisions.append(
                EmitWarning(
                    found.namespace, "", "", uid, found.name, found.why, SET_ASIDE, key.kind
                )
            )
    return decisions


EVENT_KINDS = frozenset(
    {
        "Pod",
        "Node",
        "PodGroup",
        "Queue",
        "Job",
        "CronJob",
        "JobFlow",
        "JobTemplate",
        "Command",
        "HyperNode",
        "PersistentVolumeClaim",
        "PersistentVolume",
    }
)
