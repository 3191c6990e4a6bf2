"""Members that a gang does not need leave for one that it lacks: against every set of them."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import Fact, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption.disruption_budgets import disruptions_left
from tests.central import factories
from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.exact.space import nodes_of, place, pods_of
from tests.central.scheduler.invariants import check_invariants

NODE = 4  # GPUs


@dataclass(frozen=True)
class Member:
    task: str
    gpus: int
    node: int
    kept: bool = False  # not preemptable


@dataclass(frozen=True)
class Case:
    members: tuple[Member, ...]
    others: tuple[int, ...]  # GPUs of another gang, by node
    least: int
    minima: tuple[tuple[str, int], ...]
    gpus: int  # of the only member of task ps


def drawn(seed: int) -> Case:
    dice = Random(seed)
    members: list[Member] = []
    others = []
    for node in range(dice.randint(1, 3)):
        left = NODE - dice.choice((0, 0, 1))
        others.append(min(left, dice.choice((0, 0, 1, 2))))
        left -= others[-1]
        while left > 0:
            size = min(left, dice.choice((1, 1, 2)))
            left -= size
            members.append(Member(dice.choice("ab"), size, node, dice.random() < 0.2))
    have = Counter(each.task for each in members)
    minima = tuple((task, dice.randint(0, have[task])) for task in "ab" if have[task])
    minima = (*(pair for pair in minima if pair[1]), ("ps", 1))
    needed = sum(least for _, least in minima)
    least = dice.randint(needed, len(members) + 1)
    return Case(tuple(members), tuple(others), least, minima, dice.randint(1, 3))


def facts_of(case: Case) -> list[Fact]:
    facts: list[Fact] = [factories.node(f"n{i}", gpus=NODE) for i in range(len(case.others))]
    facts.append(factories.gang("job", case.least, task_min=case.minima))
    for index, each in enumerate(case.members):
        pod = factories.pod(f"job-{index}", each.gpus, "job", node=f"n{each.node}", phase="Running")
        facts.append(replace(pod, task=each.task, preemptable=False if each.kept else None))
    for node, gpus in enumerate(case.others):
        if gpus:
            facts.append(factories.pod(f"other-{node}", gpus, node=f"n{node}", phase="Running"))
    return facts


def played(case: Case) -> tuple[bool, set[int]]:
    """Whether the member of task ps was bound at once, and who leaves."""
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, facts_of(case), 0.0)
    ps = replace(factories.pod("job-ps", case.gpus, "job", created=1.0), task="ps")
    decisions = schedule_once(scheduler, [ps], 1.0)
    check_invariants(scheduler)
    gone = [each.name for each in decisions if isinstance(each, Evict)]
    assert all(name.startswith("job-") for name in gone)
    bound = any(isinstance(each, Bind) for each in decisions)
    return bound, {int(name.removeprefix("job-")) for name in gone}


def leavers(case: Case) -> tuple[Model, list[Sum]]:
    """The members that leave, where the new one can start and the gang keeps what it needs."""
    model = Model()
    gone = [model.integer(0, 0 if each.kept else 1) for each in case.members]
    free = {node: Sum(constant=NODE - gpus) for node, gpus in enumerate(case.others)}
    left = {"a": Sum(), "b": Sum(), "ps": Sum(constant=1)}
    for each, one in zip(case.members, gone, strict=True):
        free[each.node] += each.gpus * (one - 1)
        left[each.task] = left[each.task] + (1 - one)
    for task, least in case.minima:
        model.at_most(least, left[task])
    model.at_most(case.least, total(left.values()))
    place(model, nodes_of(free), pods_of([case.gpus]))
    return model, gone


def is_legal(case: Case, chosen: set[int]) -> bool:
    model, gone = leavers(case)
    return model.is_possible(*(1 - x if i in chosen else x for i, x in enumerate(gone)))


def fewer_suffice(case: Case, chosen: set[int]) -> bool:
    model, gone = leavers(case)
    others = [x for i, x in enumerate(gone) if i not in chosen]
    return model.is_possible(*others, total(gone) - (len(chosen) - 1))


@pytest.mark.long
def test_who_is_not_needed_leaves_for_who_is() -> None:
    seen = Counter[str]()
    for seed in range(200):
        case = drawn(seed)
        bound, gone = played(case)
        if fits_at_once(case):
            assert (bound, gone) == (True, set()), seed
            seen["fits"] += 1
        elif leavers(case)[0].is_possible():
            assert is_legal(case, gone), (seed, gone, case)
            assert not fewer_suffice(case, gone), (seed, "fewer suffice")
            seen["leave"] += 1
            seen["several leave"] += len(gone) > 1
        else:
            assert not gone, (seed, gone)
            seen["nobody may leave"] += 1
    assert len(seen) == 4
    assert min(seen.values()) >= 5, seen


def fits_at_once(case: Case) -> bool:
    """Whether the gang has all that it needs or not."""
    free = [NODE - gpus for gpus in case.others]
    for each in case.members:
        free[each.node] -= each.gpus
    return max(free) >= case.gpus


FULL = Case((Member("a", 2, 0), Member("a", 2, 0)), (0,), 2, (("a", 1), ("ps", 1)), 2)


def after(case: Case, *more: Fact, never: bool = False) -> dict[str, str]:
    """The reason of each eviction, by pod, where these are there as well."""
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*facts_of(case), *more], 0.0)
    ps = replace(factories.pod("job-ps", case.gpus, "job", created=1.0), task="ps")
    decisions = schedule_once(scheduler, [replace(ps, preempts=not never)], 1.0)
    check_invariants(scheduler)
    assert not scheduler.state.gangs["ns", "job", True].preemption.preempted_for
    return {each.name: each.why for each in decisions if isinstance(each, Evict)}


def test_the_eviction_says_why() -> None:
    assert after(FULL) == {
        "job-1": "above the minimum of its task; ns/job lacks a member that it needs"
    }


def test_who_is_less_urgent_goes_first() -> None:
    urgent = factories.gang("job", 2, task_min=FULL.minima, priority=5)
    other = factories.pod("other", 2, node="n1", phase="Running")
    gone = after(FULL, urgent, factories.node("n1", gpus=2), other)
    assert gone == {"other": "preempted by ns/job (priority 5 > 0)"}


def test_nobody_leaves_for_a_pod_that_preempts_nobody() -> None:
    assert not after(FULL, never=True)


def test_nobody_leaves_against_a_disruption_budget() -> None:
    covered = [
        replace(fact, labels=(("app", "covered"),)) if isinstance(fact, PodSeen) else fact
        for fact in facts_of(FULL)
    ]
    assert after(FULL, *covered, factories.budget("covered", 1))
    assert not after(FULL, *covered, factories.budget("covered", 0))


def test_a_gang_that_is_evicted_whole_keeps_its_members() -> None:
    whole = replace(factories.gang("job", 2, task_min=FULL.minima), evicted_whole=True)
    assert not after(FULL, whole)


def test_who_leaves_already_is_not_counted_as_staying() -> None:
    """A node lost the GPUs that its member was to free, and the other member is needed."""
    case = Case((Member("a", 2, 0), Member("a", 2, 1)), (2, 2), 2, FULL.minima, 2)
    facts = [
        replace(fact, preemptable=False)
        if isinstance(fact, PodSeen) and fact.name[0] == "o"
        else fact
        for fact in facts_of(case)
    ]
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, facts, 0.0)
    ps = replace(factories.pod("job-ps", 2, "job", created=1.0), task="ps")
    gone = [
        each.name
        for now, fact in ((1.0, ps), (40.0, factories.node("n1", gpus=2)))
        for each in schedule_once(scheduler, [fact], now)
        if isinstance(each, Evict)
    ]
    check_invariants(scheduler)
    assert gone == ["job-1"]


def test_a_member_leaves_as_soon_as_its_disruption_budget_allows_it() -> None:
    covered = [
        replace(fact, labels=(("app", "covered"),)) if isinstance(fact, PodSeen) else fact
        for fact in facts_of(FULL)
    ]
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*covered, factories.budget("covered", 0)], 0.0)
    ps = replace(factories.pod("job-ps", FULL.gpus, "job", created=1.0), task="ps")
    for now in (1.0, 10.0):
        assert not any(isinstance(d, Evict) for d in schedule_once(scheduler, [ps], now))
    decisions = schedule_once(scheduler, [factories.budget("covered", 1)], 20.0)
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["job-1"]
    left = disruptions_left(scheduler.budgets, scheduler.state.gangs.values())
    assert left == {("ns", "keep-covered"): 0}, "it is spent before the status shows it"
