"""Which reservations bind a gang, by the rules as they are written, for drawn gangs and reservations."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.defaults import ACROSS_NAMESPACES, ACROSS_NONE, ACROSS_QUEUES, USAGE_HALF_LIFE_S
from central.model.facts import Fact, QueueSeen, Taint
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.apply import apply
from central.scheduler.binding_reservations import BindingReservations
from central.scheduler.cycle import schedule_once
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.usage_history import DecayedUsage
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.central import factories

GANGS = 7
MIN_RUNTIMES = {"q0": None, "q1": 0.0, "q2": 60.0}


@dataclass
class Case:
    """What the facts said of each gang, and the reservations."""

    across: str
    min_runtime_s: float
    scheduler: Scheduler
    queue: dict[str, str] = field(default_factory=dict)  # by gang
    namespace: dict[str, str] = field(default_factory=dict)
    priority: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)  # of each of its two pods
    preempts: dict[str, bool] = field(default_factory=dict)  # every waiting pod may
    stays: dict[str, bool] = field(default_factory=dict)  # a pod is not preemptable, or protected
    half_life_s: float = 0.0
    # by queue
    queues: dict[str, QueueSeen] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)
    past: dict[str, float] = field(default_factory=dict)  # usage, with a half-life

    def exceeds(self, queue: str, name: str) -> bool:
        """With both pods of the gang; nothing runs."""
        shares = fair_shares(self.scheduler.queues, GPU_EQUIVALENTS)
        return shares[queue] < 2 * self.gpus[name] * GPU_UNITS

    def siblings(self, mine: str, other: str) -> tuple[str, str]:
        """The queues of both gangs, or those above them."""
        first, second = self.queue[mine], self.queue[other]
        if self.queues[first].parent == self.queues[second].parent:
            return first, second
        return self.queues[first].parent or first, self.queues[second].parent or second

    def order(self, queue: str) -> tuple[bool, int]:
        """What decides between queues before what they have had; the lowest is first. Nothing runs."""
        seen = self.queues[queue]
        return not dict(seen.deserved).get(GPU, 0), -seen.priority

    def gang(self, name: str) -> Gang:
        return self.scheduler.state.gangs[self.namespace[name], name, True]


def case(dice: random.Random) -> Case:
    across = dice.choice((ACROSS_NONE, ACROSS_NAMESPACES, ACROSS_QUEUES))
    least_s = dice.choice((0.0, 0.0, 30.0))
    half_life_s = dice.choice((0.0, 0.0, USAGE_HALF_LIFE_S, 600.0))
    made = new_scheduler(
        factories.LEVELS, preempt_across=across, min_runtime_s=least_s, half_life_s=half_life_s
    )
    given = Case(across, least_s, made, half_life_s=half_life_s)
    given.queues = drawn_queues(dice)
    facts: list[Fact] = [*given.queues.values()]
    facts += [replace(factories.budget("kept", 0), namespace=each) for each in ("a", "b")]
    for index in range(GANGS):
        facts += members(given, f"g{index}", dice)
    gpus, taints = dice.choice((0, 4, 8, 16)), (Taint("kept", "", "NoSchedule"),)
    facts.append(factories.node("shared", gpus=gpus, cpu=10**9, taints=taints))
    schedule_once(made, facts, 0.0)  # none fits, but what is there is shared
    assert not made.reservations
    for name, queue in made.queues.by_name.items():
        given.received[name] = queue._received.amount = float(dice.randint(0, 3))
        given.past[name] = past = dice.choice((0.0, 1.0, 2.0)) * GPU_UNITS
        queue.past_usage = DecayedUsage.kept(0.0, [(GPU_EQUIVALENTS, past)])
    return given


def drawn_queues(dice: random.Random) -> dict[str, QueueSeen]:
    """Side by side, or two of them below a department."""
    parent = dice.choice(("", "", "d"))
    found = {}
    for name in (*MIN_RUNTIMES, *([parent] if parent else [])):
        found[name] = QueueSeen(
            name,
            priority=dice.choice((0, 0, 0, 1)),
            parent="" if name in ("q0", "d") else parent,
            deserved=dice.choice(((), (), ((GPU, 0),), ((GPU, 1),))),
            min_runtime_s=MIN_RUNTIMES.get(name),
        )
    return found


def members(given: Case, name: str, dice: random.Random) -> list[Fact]:
    given.queue[name] = queue = dice.choice(sorted(MIN_RUNTIMES))
    given.namespace[name] = namespace = dice.choice("aab")
    given.priority[name] = priority = dice.randrange(3)
    whole = dice.choice((None, None, True, False))
    group = factories.gang(name, 2, queue=queue, priority=priority, preemptable=whole)
    facts: list[Fact] = [replace(group, namespace=namespace)]
    given.preempts[name], given.stays[name] = True, False
    given.gpus[name] = gpus = dice.choice((1, 1, 2))
    for rank in range(2):
        own = dice.choice((None, None, None, True, False))
        protected, preempts = dice.random() < 0.1, dice.random() < 0.9
        pod = factories.pod(f"{name}-{rank}", gpus, name, preempts=preempts, preemptable=own)
        labels = (("app", "kept" if protected else "other"),)
        facts.append(replace(pod, namespace=namespace, labels=labels))
        given.preempts[name] &= preempts
        given.stays[name] |= protected or (whole if own is None else own) is False
    return facts


def reserve(given: Case, gang: Gang, dice: random.Random) -> Reservation:
    columns = given.scheduler.state.snapshot.columns
    nodes = dice.choice((0, 1))  # the only one
    nothing = np.zeros(nodes, dtype=np.int64), np.zeros((nodes, columns.width), dtype=np.int64)
    taken = TakenCapacity(*nothing, [0] * nodes, frozenset())
    place = ReservedPlace.on(given.scheduler.state.snapshot, taken, newest=0.0)
    request = PlacementRequest(((factories.spec(1), 2),))
    if dice.random() < 0.4:
        return Reservation.by_evictions(gang, request, place, 5.0)
    start, strict = dice.choice((100.0, inf)), dice.random() < 0.5
    return Reservation(gang, request, place, start=start, after="", strict=strict)


def expected(given: Case, held: Reservation, gang: Gang, tried: set[str]) -> bool:
    """The rules of BindingReservations._binds(), in their order."""
    mine, other = gang.name, held.gang.name
    if held.gang is gang:
        return False
    own = given.scheduler.reservations.get(gang.key)
    same_queue = given.queue[mine] == given.queue[other]
    on_same_node = own is not None and len(own.place.rows) and len(held.place.rows)
    if own is not None and own.by_eviction and on_same_node and not held.by_eviction:
        more_urgent = same_queue and given.priority[other] > given.priority[mine]
        if not more_urgent:
            return False
    if held.by_eviction and not same_queue:
        return True
    if held.start == inf and evicts(given, other, mine):
        return False
    if not held.strict and (same_queue or held.start == inf) and other not in tried:
        return False
    if same_queue or given.across == ACROSS_QUEUES:
        return given.priority[mine] <= given.priority[other]
    return not passes(given, mine, other)


def passes(given: Case, mine: str, other: str) -> bool:
    """Between queues: the order, with what both have received, then the priority. With a half-life the order between
    queues, with past usage."""
    own, others = given.siblings(mine, other)
    if given.half_life_s:
        return (*given.order(own), past(given, own)) < (*given.order(others), past(given, others))
    first, second = (
        (*given.order(queue), given.received[queue], -given.priority[name])
        for queue, name in ((own, mine), (others, other))
    )
    return first < second


def past(given: Case, queue: str) -> float:
    """As it counts: of a queue below its deserved amount, and of what nobody has, nothing."""
    is_rich, _ = given.order(queue)
    return (
        given.past[queue] if is_rich and given.scheduler.queues.total.get(GPU_EQUIVALENTS) else 0.0
    )


def evicts(given: Case, claimant: str, victim: str) -> bool:
    if given.priority[claimant] <= given.priority[victim]:
        return False
    if given.across != ACROSS_QUEUES and given.queue[claimant] != given.queue[victim]:
        return False
    if given.across == ACROSS_NONE and given.namespace[claimant] != given.namespace[victim]:
        return False
    least_s = MIN_RUNTIMES[given.queue[victim]]
    least_s = given.min_runtime_s if least_s is None else least_s
    return given.preempts[claimant] and not given.stays[victim] and not least_s


@pytest.mark.parametrize("seed", range(60))
def test_the_rules_are_those_that_are_written(seed: int) -> None:
    """Also in one pass over the gangs, in which answers are kept, and while more gangs are tried; and where the pass
    goes on in another slice, after a gang has got another priority."""
    dice = random.Random(seed)
    given = case(dice)
    names = sorted(given.queue)
    reservations = given.scheduler.reservations
    for name in dice.sample(names, dice.randint(0, 4)):
        gang = given.gang(name)
        reservations[gang.key] = reserve(given, gang, dice)
    tried = set(dice.sample(names, dice.randint(0, 3)))
    keys = {given.gang(name).key for name in tried}
    in_one_pass = BindingReservations(given.scheduler)
    in_one_pass.begin(resumed=False)
    in_one_pass.tried = keys
    for name in dice.choices(names, k=12):
        gang = given.gang(name)
        binding = [held for held in reservations.values() if expected(given, held, gang, tried)]
        assert names_of(in_one_pass.of(gang)) == names_of(binding)
        tried.add(name)
        keys.add(gang.key)
        if dice.random() < 0.5:
            in_one_pass.end()
            moved = given.gang(dice.choice(names))
            assert moved.object is not None
            given.priority[moved.name] = priority = dice.randrange(3)
            apply(given.scheduler, replace(moved.object, priority=priority))
            in_one_pass.begin(resumed=True)


def names_of(reservations: Sequence[Reservation]) -> list[str]:
    return [held.gang.name for held in reservations]
