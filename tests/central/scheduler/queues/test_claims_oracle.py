"""Claims between queues of three levels, judged by an exact solver."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import Fact, QueueSeen
from central.scheduler.cycle import schedule_once
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.exact.queue_claims import (
    DESERVED,
    KEEPING,
    LEGAL,
    Claim,
    Gang,
    Judge,
    Leaver,
    Leavers,
    teams_of,
)
from tests.central.scheduler.exact.shares import Team
from tests.central.scheduler.invariants import check_invariants
from tests.effort import examples

MOST_VICTIMS = 4
TEAMS = ("a", "b", "c", "d")
BELOW_SHARE = "leave a queue below its share"
MORE_URGENT = "come back in the place of others of their queue"
OWN_FIRST = "are of the own queue, and claim when they come back"


def teams(dice: Random) -> tuple[Team, ...]:
    """Two departments with two teams each; sometimes a team stands beside the departments."""

    def team(name: str, parent: str = "") -> Team:
        capability = dice.choice((None, None, None, 3, 4, 6))
        deserved = dice.choice((None, None, 0, 1, 2, 4))
        limit = 12 if capability is None else capability
        return Team(
            name,
            parent,
            weight=dice.randint(1, 3),
            priority=dice.choice((0, 0, 0, 1)),
            capability=capability,
            deserved=None if deserved is None else min(deserved, limit),
            guarantee=min(dice.choice((0, 0, 0, 1, 2)), limit),
            reclaimable=dice.random() < 0.8,
        )

    parents = {"a": "left", "b": "left", "c": "right", "d": dice.choice(("right", ""))}
    return (team("left"), team("right"), *(team(name, parents[name]) for name in TEAMS))


def case(seed: int) -> Claim:
    dice = Random(seed)
    nodes = tuple(dice.choice((2, 3, 4)) for _ in range(dice.randint(1, 3)))
    running: list[Gang] = []
    for node, gpus in enumerate(nodes):
        left = gpus
        while left > 0:
            size = min(left, dice.choice((1, 1, 2, 3)))
            left -= size
            if dice.random() < 0.85:
                name, team = f"r{len(running)}", dice.choice(TEAMS)
                priority = dice.choice((0, 0, 5))
                running.append(Gang(name, team, size, (node,), priority=priority))
    claimant, gpus, priority = dice.choice(TEAMS), dice.randint(1, 4), dice.choice((0, 3))
    return Claim(teams(dice), nodes, tuple(running), claimant, 1, gpus, priority)


def growing_case(seed: int) -> Claim:
    """The claimant is one more member of a gang of which one runs. Some of the others are such members, too."""
    found, dice = case(seed), Random(-seed)
    node = dice.randrange(len(found.nodes))
    others = tuple(replace(one, is_surplus=dice.random() < 0.4) for one in found.gangs)
    member = Gang("new-0", found.team, found.gpus, (node,), priority=found.priority)
    nodes = tuple(gpus + found.gpus * (i == node) for i, gpus in enumerate(found.nodes))
    return replace(found, nodes=nodes, gangs=(*others, member), member=member.name)


def lent_case(seed: int) -> Claim:
    """Another team has some of what the claimant's deserves, in gangs larger than what it has above its share."""
    dice = Random(seed)
    total, own = dice.randint(7, 10), dice.randint(3, 5)
    teams = (Team("a", deserved=own), Team("b", deserved=total - own))
    running: list[Gang] = []
    for team, most in (("a", dice.randint(1, own)), ("b", total)):
        sizes = (1, 2) if team == "a" else (2, 3, 3)
        while (used := sum(one.gpus for one in running)) < most:
            size, priority = min(dice.choice(sizes), most - used), dice.choice((0, 0, 5))
            running.append(Gang(f"r{len(running)}", team, size, (0,), priority=priority))
    return Claim(teams, (total,), tuple(running), "a", 1, dice.randint(1, 3), priority=3)


def queue_of(team: Team) -> QueueSeen:
    return QueueSeen(
        team.name,
        team.weight,
        team.priority,
        team.parent,
        () if team.capability is None else ((GPU, team.capability),),
        ((GPU, team.guarantee),) if team.guarantee else (),
        () if team.deserved is None else ((GPU, team.deserved),),
        team.reclaimable,
    )


def queue_facts(teams: Sequence[Team]) -> list[Fact]:
    return [queue_of(team) for team in teams]


def played(case: Claim) -> tuple[bool, set[str]]:
    """Whether the claimant started at once, and the victims."""
    scheduler = new_scheduler(factories.LEVELS, half_life_s=0.0)
    facts: list[Fact] = [factories.node(f"n{i}", gpus=gpus) for i, gpus in enumerate(case.nodes)]
    facts += queue_facts(case.teams)
    facts += [
        factories.pod(
            one.name,
            one.gpus,
            gang="new" if one.name == case.member else f"of-{one.name}" * one.is_surplus,
            node=f"n{one.nodes[0]}",
            phase="Running",
            queue=one.team,
            priority=one.priority,
        )
        for one in case.gangs
    ]
    for one in case.gangs:
        if one.is_surplus:
            facts += _with_minimum(one)
    if case.member:
        facts.append(factories.gang("new", 1, queue=case.team, priority=case.priority))
    schedule_once(scheduler, facts, 0.0)
    claimant = factories.pod(
        "new-1" if case.member else "new",
        case.gpus,
        gang="new" if case.member else "",
        queue=case.team,
        created=10.0,
        priority=case.priority,
    )
    decisions = schedule_once(scheduler, [claimant], 10.0)
    check_invariants(scheduler)
    bound = any(isinstance(each, Bind) for each in decisions)
    return bound, {each.name for each in decisions if isinstance(each, Evict)}


def _with_minimum(one: Gang) -> list[Fact]:
    """The gang of a surplus member, and the member without GPUs that it needs."""
    name = f"of-{one.name}"
    least = factories.pod(
        f"{name}-0", 0, name, node=f"n{one.nodes[0]}", phase="Running", priority=one.priority
    )
    return [factories.gang(name, 1, queue=one.team, priority=one.priority), least]


def problem(case: Claim) -> str:
    """What is wrong with the scheduler's decision; empty: nothing."""
    judge = Judge(case, MOST_VICTIMS)
    bound, victims = played(case)
    if bound:
        starts = not victims and judge.lets_start(())
        return "" if starts else "it was bound where it may not start"
    if judge.lets_start(()):
        return "it may start, and was not bound"
    chosen = tuple(Leaver(one, one.nodes) for one in case.gangs if one.name in victims)
    if not chosen:
        possible = judge.select(LEGAL)
        return f"{names(possible.chosen())} may be evicted" if possible.is_possible() else ""
    if not judge.lets_start(chosen):
        return f"{names(chosen)} are evicted in vain"
    if not judge.follows(LEGAL, chosen):
        return f"{names(chosen)} must stay"
    return what_is_better(judge, chosen)


def what_is_better(judge: Judge, chosen: Leavers) -> str:
    """Less urgent victims of one queue, then those that keep all shares, then others before the own queue's."""
    claim = judge.claim
    others = [team for team in teams_of(chosen) if team != claim.team]
    for team in others if not claim.member else ():
        found = judge.select(LEGAL)
        found.is_less_urgent_than(chosen, team)
        if found.is_possible():
            return f"{names(chosen)} {MORE_URGENT}; {names(found.chosen())} are less urgent"
    for team in others:
        found = judge.select(KEEPING)
        found.is_more_urgent_than(chosen, team)
        if found.is_possible():
            return ""
    keeps, takes_own = judge.follows(KEEPING, chosen), claim.team in teams_of(chosen)
    if not keeps:
        found = judge.select(KEEPING)
        if not takes_own and judge.follows(DESERVED, chosen):
            found.only_of(team.name for team in claim.teams if team.name != claim.team)
        if found.is_possible():
            return f"{names(chosen)} {BELOW_SHARE}; {names(found.chosen())} do not"
    found = judge.select(DESERVED)
    if takes_own and keeps and not claim.member and found.is_possible():
        return f"{names(chosen)} {OWN_FIRST}; {names(found.chosen())} are deserved"
    return ""


def names(chosen: Leavers) -> list[str]:
    return [one.gang.name for one in chosen]


# Drawn claims (seeds 4635, 7056, 7358) without what makes no difference.
MENDED = [
    Claim(
        (
            Team("left"),
            Team("right"),
            Team("a", "left", guarantee=1),
            Team("b", "left"),
            Team("c", "right"),
            Team("d", deserved=1),
        ),
        (4, 3, 4),
        (
            Gang("r0", "b", 3, (0,)),
            Gang("r1", "c", 1, (0,), priority=5),
            Gang("r2", "d", 1, (1,)),
            Gang("r3", "c", 2, (1,), priority=5),
            Gang("r4", "c", 2, (2,), priority=5),
            Gang("r5", "c", 1, (2,), priority=5),
            Gang("r6", "b", 1, (2,), priority=5),
        ),
        "d",
        1,
        3,
    ),
    Claim(
        (
            Team("left", capability=4),
            Team("right"),
            Team("a", "left"),
            Team("b", "left"),
            Team("c", "right"),
            Team("d", "right", guarantee=2),
        ),
        (4, 2, 4),
        (
            Gang("r0", "a", 3, (0,)),
            Gang("r1", "a", 1, (0,)),
            Gang("r2", "b", 1, (1,)),
            Gang("r3", "b", 1, (1,)),
            Gang("r4", "b", 1, (2,)),
            Gang("r5", "a", 2, (2,), priority=5),
            Gang("r6", "a", 1, (2,), priority=5),
        ),
        "c",
        1,
        4,
    ),
    Claim(
        (Team("left"), Team("a", "left", deserved=2), Team("b", "left", deserved=4), Team("c")),
        (3, 3, 3),
        (
            Gang("r1", "c", 1, (0,)),
            Gang("r3", "c", 1, (1,), priority=5),
            Gang("r4", "b", 1, (2,)),
            Gang("r5", "b", 1, (2,)),
            Gang("r6", "a", 1, (2,)),
        ),
        "b",
        1,
        3,
        priority=3,
    ),
]


@pytest.mark.long
@pytest.mark.parametrize("claim", MENDED)
def test_others_go_where_the_least_harmful_ones_may_not(claim: Claim) -> None:
    assert not problem(claim)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_a_claim_takes_what_it_may_and_nothing_else(part: int) -> None:
    many = examples(600) // 4
    for seed in range(part * many, (part + 1) * many):
        if found := problem(case(seed)):
            raise AssertionError(f"seed {seed}: {found}\n{case(seed)}")


@pytest.mark.long
def test_what_is_lent_comes_back_before_own_work_goes() -> None:
    found = {seed: wrong for seed in range(examples(80)) if (wrong := problem(lent_case(seed)))}
    assert not found


@pytest.mark.parametrize("seed", [2926, 5957])
def test_own_work_stays_where_what_is_deserved_frees_the_guarantee(seed: int) -> None:
    """Drawn cases in which the guarantee could be freed in either way."""
    assert not problem(case(seed)), case(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_growth_takes_what_is_deserved_and_surplus_by_fair_share(part: int) -> None:
    many = examples(400) // 4
    for seed in range(part * many, (part + 1) * many):
        if found := problem(growing_case(seed)):
            raise AssertionError(f"seed {seed}: {found}\n{growing_case(seed)}")
