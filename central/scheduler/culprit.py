"""Finds the object on which a phase of the cycle fails, and sets it aside, so that the phase comes back for all others.

Cycles of parts of the cluster are tried on copies. The objects that must be there before the phase fails are found by
bisection; the last of them is the culprit if the phase passes without it:

    a b c d e f g h   fails            a b c d   passes        a b c d e f   fails
    a b c d e         passes           so f is the last one that it needs; without f it passes: f is set aside

Pending gangs come last in this order; where no single one is at fault, running gangs do, then nodes, then the rest. Several
culprits are found one after the other. If there is none, the phase stays left out for its while (cycle_phases.py). A search
tries a bounded number of objects in each cycle.

Design: docs/design/containment.md
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, cast

from central.model.facts import Fact, GangSeen, NodeReported, PodSeen
from central.scheduler import fence, rebuild
from central.scheduler.cycle_phases import CyclePhases, Phase
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.fact_keys import display_of, key_of
from central.scheduler.quarantine import GANG, SetAsideKey
from central.scheduler.scheduler import NoControllers, Scheduler
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import GangKey

OBJECTS_MOST = 10_000  # that the copies of one cycle have together: about a quarter of a second
CULPRITS_MOST = 4  # of one search
CYCLES = 2  # that are tried on a copy: what the first one reserves may fail in the second

TryCycle = Callable[[Scheduler], None]  # a cycle of a copy; an exception ends it
Search = Generator[int, None, None]  # yields how many objects its next copy has


class Fails(Protocol):
    """Whether the phase fails in a copy with these objects, without some facts about them."""

    def __call__(self, keys: Sequence[SetAsideKey], *without: Fact) -> bool: ...


def advance(scheduler: Scheduler, try_cycle: TryCycle, spent: int = 0) -> int:
    """Goes on with the search for what failed last. spent: objects of earlier copies of this cycle. Returns those of all."""
    quarantine = scheduler.quarantine
    while spent < OBJECTS_MOST:
        if quarantine.search is None:
            if not quarantine.failed_phases:
                break
            phase = next(iter(quarantine.failed_phases))
            error = quarantine.failed_phases.pop(phase)
            quarantine.search = _search(scheduler, phase, error, try_cycle)
        try:
            spent += next(quarantine.search)
        except StopIteration:
            quarantine.search = None
        except rebuild.CannotRebuild:
            raise
        except Exception as error:  # noqa: BLE001  an object that cannot even be compared: the phase stays left out
            quarantine.search = None
            quarantine.note(SetAsideKey("search", "culprit"), ("", "culprit"), error)
    return spent


def _search(
    scheduler: Scheduler, phase: Phase, error: BaseException, try_cycle: TryCycle
) -> Search:
    def fails(keys: Sequence[SetAsideKey], *without: Fact) -> bool:
        phases = _try(scheduler, keys, try_cycle, without)
        return phases is not None and phase in phases.failed

    def passes(keys: Sequence[SetAsideKey]) -> bool:
        """Others come through the phase, so it is not at fault itself."""
        phases = _try(scheduler, keys, try_cycle)
        return phases is not None and phase in phases.passed - phases.failed

    keys = _objects(scheduler)
    before = scheduler.quarantine.culprits.pop(phase, {})
    again = [key for key in before if key in keys and not _is_blocked(scheduler, key)]
    if again and (yield from _passes_without(again, keys, passes)):
        scheduler.quarantine.culprits[phase] = before
        yield from _contain(scheduler, phase, again, error, fails)
        return
    yield 1
    if fails(()):
        return  # it needs no object
    yield len(keys)
    if not fails(keys):
        return  # a state that is built again has not what it failed on
    found: list[SetAsideKey] = []
    while len(found) < CULPRITS_MOST:
        candidate: SetAsideKey | None = None
        for order in _orders(scheduler, keys):
            culprit = yield from _last_needed(order, fails)
            if found and culprit.kind != GANG:
                continue  # without it others may just not come to where they fail
            candidate = candidate or (culprit if culprit.kind == GANG else None)
            if (yield from _passes_without([culprit], keys, passes)):
                yield from _contain(scheduler, phase, [*found, culprit], error, fails)
                return
        if candidate is None:
            return
        found.append(candidate)
        keys = [key for key in keys if key != candidate]


def _passes_without(
    culprits: Sequence[SetAsideKey],
    keys: Sequence[SetAsideKey],
    passes: Callable[[Sequence[SetAsideKey]], bool],
) -> Generator[int, None, bool]:
    rest = [key for key in keys if key not in culprits]
    yield len(rest)
    return passes(rest)


def _contain(
    scheduler: Scheduler,
    phase: Phase,
    culprits: Sequence[SetAsideKey],
    error: BaseException,
    fails: Fails,
) -> Search:
    """Sets them aside. Gangs alone are no longer decided, if that is enough; else they are left out of the state."""
    before = scheduler.quarantine.culprits.setdefault(phase, {})
    for key in culprits:
        if key.kind == GANG:
            _set_gang_aside(scheduler, key, error)
        else:
            _set_facts_aside(scheduler, _facts_of(scheduler, key), error, before.get(key, 0))
    rebuild.rebuild(scheduler)
    for key in culprits:
        if key.kind == GANG:
            others = [each for each in culprits if each != key]
            yield from _leave_gang_out(
                scheduler, key, others, error, fails, before=before.get(key, 0)
            )
        before[key] = before.get(key, 0) + 1
    scheduler.quarantine.phases.restore(phase)
    fence.release_gangs(scheduler.quarantine, phase)


def _leave_gang_out(
    scheduler: Scheduler,
    key: SetAsideKey,
    others: Sequence[SetAsideKey],
    error: BaseException,
    fails: Fails,
    *,
    before: int,
) -> Search:
    """Of a gang about which nothing is decided any more: its PodGroup, or that and its pods, if the phase fails still.
    others: culprits that may still be in the state. before: how often it was one."""
    keys = [each for each in _objects(scheduler) if each not in others]
    yield len(keys)
    if not fails(keys):
        return
    facts: Sequence[Fact] = _facts_of(scheduler, key)
    groups = [fact for fact in facts if isinstance(fact, GangSeen)]
    if 0 < len(groups) < len(facts):
        yield len(keys)
        if not fails(keys, *groups):
            facts = groups
    _set_facts_aside(scheduler, facts, error, before)
    scheduler.quarantine.release(key)


def _last_needed(
    keys: Sequence[SetAsideKey], fails: Callable[[Sequence[SetAsideKey]], bool]
) -> Generator[int, None, SetAsideKey]:
    """The first object with which, and with all before it, the phase fails. With all it does."""
    low, high = 0, len(keys) - 1
    while low < high:
        middle = (low + high) // 2
        yield middle + 1
        if fails(keys[: middle + 1]):
            high = middle
        else:
            low = middle + 1
    return keys[low]


def _try(
    scheduler: Scheduler,
    keys: Sequence[SetAsideKey],
    try_cycle: TryCycle,
    without: Sequence[Fact] = (),
) -> CyclePhases | None:
    """The phases of some cycles of a copy with these objects, without some facts about them; None: it cannot be made."""
    kept, sizes = frozenset(keys), _Sizes(scheduler)

    def keeps(fact: Fact) -> bool:
        return _object_of(fact) in kept and fact not in without

    try:
        copy = rebuild.part_of(scheduler, keeps, sizes)
    except Exception:  # noqa: BLE001  any bug
        return None
    for _ in range(CYCLES):
        with suppress(Exception):
            try_cycle(copy)
    return copy.quarantine.phases


def _objects(scheduler: Scheduler) -> list[SetAsideKey]:
    """All that is recorded."""
    facts = [*rebuild.recorded(scheduler), *(pod.seen for pod in scheduler.state.pods.values())]
    return list(dict.fromkeys(map(_object_of, facts)))


def _orders(scheduler: Scheduler, keys: Sequence[SetAsideKey]) -> Iterator[list[SetAsideKey]]:
    """Each sort of objects last in turn, as far as there are any."""
    waiting = scheduler.state.pending.waiting

    def sort_of(key: SetAsideKey) -> int:
        if key.kind == GANG:
            return 0 if key.identity in waiting else 1
        return {"Pod": 1, "Node": 2}.get(key.kind, 3)

    sorts = {key: sort_of(key) for key in keys}
    for last in sorted({*sorts.values()}):
        yield sorted(keys, key=lambda key: sorts[key] == last)


def _object_of(fact: Fact) -> SetAsideKey:
    """The object that is set aside for it: a gang has its PodGroup and its pods, a node its report."""
    if isinstance(fact, PodSeen) and fact.gang_key is not None:
        return SetAsideKey(GANG, fact.gang_key)
    if isinstance(fact, GangSeen):
        return SetAsideKey(GANG, (fact.namespace, fact.name, True))
    if isinstance(fact, NodeReported):
        return SetAsideKey("Node", ("", fact.node))
    return key_of(fact)


def _set_gang_aside(scheduler: Scheduler, key: SetAsideKey, error: BaseException) -> None:
    gang = scheduler.state.gangs.get(cast("GangKey", key.identity))
    if gang is not None:
        fence.set_gang_aside(scheduler, gang, error)


def _facts_of(scheduler: Scheduler, key: SetAsideKey) -> list[Fact]:
    found = [fact for fact in rebuild.recorded(scheduler) if _object_of(fact) == key]
    pods = (pod.seen for pod in scheduler.state.pods.values())
    return [*found, *(seen for seen in pods if _object_of(seen) == key)]


def _is_blocked(scheduler: Scheduler, key: SetAsideKey) -> bool:
    """Whether it is set aside, and takes part in no phase that can do without it."""
    gang = scheduler.state.gangs.get(cast("GangKey", key.identity)) if key.kind == GANG else None
    return gang is not None and fence.blocks(scheduler, gang)


def _set_facts_aside(
    scheduler: Scheduler, facts: Sequence[Fact], error: BaseException, before: int
) -> None:
    """before: how often it was done."""
    state = scheduler.state
    for fact in facts:
        raw = state.owners.pods.get(fact.uid, fact) if isinstance(fact, PodSeen) else fact
        place = key_of(raw), display_of(raw)
        scheduler.quarantine.set_aside(*place, error, raw, state.now, failed_before=before)
    rebuild.rebuild(scheduler, *facts)


class _Sizes(NoControllers):
    """The elastic gangs of the scheduler, as far as a copy has them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._known = scheduler.controllers.elastic_gangs(scheduler.state)

    def elastic_gangs(self, state: ClusterState) -> list[ElasticGang]:
        return [
            replace(
                each,
                gang=state.gangs[each.key],
                placed={n: state.pods[pod.seen.uid] for n, pod in each.placed.items()},
            )
            for each in self._known
            if each.key in state.gangs
        ]
