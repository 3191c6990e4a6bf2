"""Who must leave for a gang among queues, where gangs have several pods and some surplus: what holds of each choice."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.defaults import ACROSS_NAMESPACES, ACROSS_NONE, ACROSS_QUEUES
from central.model.facts import EvictDone, Fact, PodGone, QueueSeen
from central.scheduler.cycle import schedule_once
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.queues.queued_gangs import members, queue
from tests.central.scheduler.small_cluster import World, job
from tests.effort import examples

NODES, GPUS = 2, 8


@dataclass
class Gang:
    name: str
    namespace: str
    queue: str
    priority: int
    gpus: int  # of each pod
    nodes: list[int]  # of its pods
    least: int


@dataclass
class Case:
    across: str
    gangs: list[Gang]
    claimant: Gang
    capability: dict[str, int]
    guarantee: dict[str, int]
    budget: int  # pods of queue b that may be evicted
    covers: bool = False

    def guard(self, gang: Gang) -> bool:
        return self.covers and gang.queue == "b"


def drawn(dice: random.Random) -> Case:
    queues = "abc"
    left, gangs = [GPUS] * NODES, list[Gang]()
    for number in range(12):
        gpus, nodes = dice.choice((1, 1, 2, 3)), list[int]()
        for _ in range(dice.choice((1, 2, 3))):
            node = dice.randrange(NODES)
            if left[node] >= gpus:
                left[node] -= gpus
                nodes.append(node)
        if nodes:
            where = dice.choice("xy"), dice.choice(queues), dice.choice((0, 0, 5))
            gangs.append(Gang(f"g{number}", *where, gpus, nodes, dice.randrange(1, len(nodes) + 1)))
    size, gpus = dice.choice(((1, 1), (1, 3), (2, 2), (2, 4), (1, 6), (3, 1)))
    own = Gang("new", "x", "a", dice.choice((0, 3, 9)), gpus, [-1] * size, size)
    used = Counter[str]()
    for gang in gangs:
        used[gang.queue] += gang.gpus * len(gang.nodes)
    capability = {
        q: max(used[q], size * gpus) + dice.randrange(3) for q in queues if dice.random() < 0.5
    }
    guarantee = {
        q: min(dice.choice((2, 4)), capability.get(q, 9)) for q in queues if dice.random() < 0.4
    }
    across = dice.choice((ACROSS_NONE, ACROSS_NAMESPACES, ACROSS_QUEUES))
    return Case(across, gangs, own, capability, guarantee, dice.randrange(3), dice.random() < 0.5)


def facts_of(case: Case) -> list[Fact]:
    facts: list[Fact] = [factories.node(f"n{n}", gpus=GPUS) for n in range(NODES)]
    for name in "abc":
        limit, floor = case.capability.get(name), case.guarantee.get(name)
        amounts = [((GPU, each),) if each is not None else () for each in (limit, floor)]
        facts.append(QueueSeen(name, capability=amounts[0], guarantee=amounts[1]))
    if case.covers:
        facts += [replace(factories.budget("b", case.budget), namespace=name) for name in "xy"]
    return [*facts, *(fact for gang in case.gangs for fact in pods_of(gang, 0.0))]


def pods_of(gang: Gang, created: float) -> list[Fact]:
    group = factories.gang(
        gang.name, gang.least, queue=gang.queue, priority=gang.priority, created=created
    )
    pods = members(
        gang.name,
        gang.gpus,
        gang.nodes,
        created=created,
        priority=gang.priority,
        namespace=gang.namespace,
        app=gang.queue,
    )
    return [replace(group, namespace=gang.namespace), *pods]


def played(case: Case) -> tuple[list[str], set[str]]:
    """The pods that are evicted, and those of the claimant that are bound in the end. Disruption budgets hold for those
    that are not reclaimed past them."""
    made = new_scheduler(factories.LEVELS, preempt_across=case.across)
    schedule_once(made, facts_of(case), 0.0)
    victims, bound, now = list[str](), set[str](), 10.0
    within = Counter[str]()
    covered = {f"{g.name}-{n}" for g in case.gangs if g.queue == "b" for n in range(len(g.nodes))}
    arrived = pods_of(case.claimant, 10.0)
    for _ in range(4):
        answers: list[Fact] = []
        for each in schedule_once(made, arrived, now):
            if isinstance(each, Evict):
                answers.append(EvictDone(each.pod, trial=each.trial))
                if not each.trial:
                    within[each.namespace] += not each.beyond_budgets and each.name in covered
                    victims.append(each.name)
                    answers.append(PodGone(each.pod))
            elif isinstance(each, Bind):
                bound.add(each.name)
        arrived, now = answers, now + 1.0
    assert not case.covers or max(within.values(), default=0) <= case.budget
    return victims, bound


def may_start(case: Case, gone: set[str]) -> bool:
    """Whether nodes, the capability of its queue and the guarantees of others have space for the claimant without
    these pods."""
    free, used = [GPUS] * NODES, Counter[str]()
    for gang in case.gangs:
        for rank, node in enumerate(gang.nodes):
            if f"{gang.name}-{rank}" not in gone:
                free[node] -= gang.gpus
                used[gang.queue] += gang.gpus
    own = case.claimant
    needs = own.gpus * len(own.nodes)
    if used["a"] + needs > case.capability.get("a", NODES * GPUS):
        return False
    kept = sum(max(0, least - used[q]) for q, least in case.guarantee.items() if q != "a")
    guaranteed = used["a"] + needs <= case.guarantee.get("a", 0)
    fits = sum(each // own.gpus for each in free) >= len(own.nodes)
    return fits and (guaranteed or sum(free) - needs >= kept)


def leaves(gang: Gang, victims: set[str]) -> int:
    return sum(f"{gang.name}-{rank}" in victims for rank in range(len(gang.nodes)))


def problem(case: Case, seen: Counter[str]) -> str:
    """What is wrong with the choice; empty: nothing."""
    victims, bound = played(case)
    gone, own = {*victims}, case.claimant
    if len(gone) < len(victims):
        return "one is evicted twice"
    if not victims:
        seen["none"] += 1
        return "" if bool(bound) == may_start(case, set()) else "it should have started at once"
    if len(bound) < len(own.nodes):
        return f"{victims} left in vain"
    used, takes = Counter[str](), Counter[str]()
    units: list[set[str]] = []
    for gang in case.gangs:
        count = leaves(gang, gone)
        used[gang.queue] += gang.gpus * (len(gang.nodes) - count)
        takes[gang.queue] += gang.gpus * count
        names = {f"{gang.name}-{rank}" for rank in range(len(gang.nodes))} & gone
        surplus = len(gang.nodes) - gang.least
        if 0 < count < len(gang.nodes) and count > surplus:
            return f"{gang.name} is left below its minimum"
        units += [names] if count > surplus else [{name} for name in names]
        seen["surplus" if 0 < count <= surplus else "whole"] += bool(count)
        if not count:
            continue
        if gang.queue == own.queue and gang.priority >= own.priority:
            return f"{gang.name} is not less urgent than its equal"
        if (
            gang.queue == own.queue
            and case.across == ACROSS_NONE
            and gang.namespace != own.namespace
        ):
            return f"{gang.name} is of another namespace"
        seen["own queue" if gang.queue == own.queue else "another queue"] += 1
    of_others = {
        f"{gang.name}-{rank}"
        for gang in case.gangs
        for rank in range(len(gang.nodes))
        if gang.queue != own.queue
    }
    takes_from_others = not of_others.isdisjoint(gone)
    for name, amount in takes.items():
        if name != own.queue and amount and used[name] < case.guarantee.get(name, 0):
            return f"queue {name} is left below its guarantee"
    for unit in units:
        # The own queue may have to give so that it is entitled to take from others.
        if (not takes_from_others or unit & of_others) and may_start(case, gone - unit):
            return f"{sorted(unit)} of {victims} need not leave"
    return ""


@pytest.mark.long
def test_what_holds_of_each_choice_of_victims() -> None:
    seen = Counter[str]()
    for seed in range(examples(160)):
        case = drawn(random.Random(seed))
        if found := problem(case, seen):
            raise AssertionError(f"seed {seed}: {found}\n{case}")
    assert len(seen) == 5, seen
    assert min(seen.values()) >= 2, seen


def test_surplus_that_leaves_for_capacity_counts_for_quota_whatever_its_rank() -> None:
    """The claimant needs 3 GPUs of node 1 and 3 of its queue: one pod of 1 GPU and a member of 2, which is not the
    last."""
    gangs = [
        Gang("rest", "x", "c", 5, 1, [0] * 4 + [1] * 5, 9),
        Gang("small", "x", "a", 0, 1, [1], 1),
        Gang("large", "x", "a", 0, 2, [0, 1, 0], 2),
    ]
    claimant = Gang("new", "x", "a", 3, 3, [-1], 1)
    victims, bound = played(Case(ACROSS_NAMESPACES, gangs, claimant, {"a": 7}, {}, 0))
    assert (sorted(victims), bound) == (["large-1", "small-0"], {"new-0"})


@pytest.mark.parametrize(("preempts", "goes"), [(True, "mid-0"), (False, "low-0")])
def test_own_work_goes_before_what_is_deserved_only_if_it_will_not_claim_that_itself(
    preempts: bool, goes: str
) -> None:
    """The other queue would be below its share without mid."""
    world = World(
        *(factories.node(name, gpus=6) for name in "ab"),
        *(queue(name, deserved=6) for name in ("left", "right")),
    )
    high = job("high", 1, 4, priority=3, queue="right")
    mid = job("mid", 1, 3, priority=2, queue="right")
    world.step(1.0, *high, *mid, *job("low", 1, 3, priority=1, queue="left", preempts=preempts))
    world.step(600.0, *job("urgent", 1, 3, priority=3, queue="left", created=600.0))
    assert world.evicted == [goes]
