"""Who leaves for single pods, judged by an exact solver on small nodes."""

import random
from collections import Counter

import pytest

from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic import needs
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.needs import Need
from central.scheduler.inventory.pods import start_leaving
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.elastic.test_pools import Rig
from tests.central.scheduler.exact.shrinking import Donor, most_served
from tests.central.scheduler.exact.space import fits, nodes_of, pods_of

GPUS = 6  # of a node


def world(dice: random.Random, gangs: int, nodes: int) -> tuple[Rig, list[ElasticGang]]:
    """Members of one GPU on some nodes, and pods that stay."""
    facts: list[Fact] = []
    spots = [f"n{node}" for node in range(nodes) for _ in range(GPUS)]
    dice.shuffle(spots)
    facts += [factories.node(f"n{node}", gpus=GPUS) for node in range(nodes)]
    facts += [
        factories.pod(f"stays{number}", 1, node=spots.pop(), phase="Running")
        for number in range(dice.randint(0, 3))
    ]
    for name in "abc"[:gangs]:
        size = dice.randint(1, max(1, len(spots) // (gangs + 1)))
        facts.append(factories.gang(name, 1))
        facts += [
            factories.pod(f"{name}-{number}", 1, name, node=spots.pop(), phase="Running")
            for number in range(size)
        ]
    rig = Rig(*facts)
    donors = []
    for name in "abc"[:gangs]:
        size = len(rig.made.state.gangs["ns", name, True].counts.placed)
        donor = rig.elastic(name, least=dice.randint(1, size), most=size + dice.randint(0, 3))
        donor.numbers = {pod.seen.uid: number for number, pod in donor.placed.items()}
        donors.append(donor)
    return rig, donors


def singles(rig: Rig, count: int, gpus: int) -> list[Need]:
    facts: list[Fact] = []
    for number in range(count):
        facts.append(factories.gang(f"s{number}", 1))
        facts.append(factories.pod(f"s{number}-0", gpus, f"s{number}"))
    schedule_once(rig.made, facts, 1.0)
    request = PlacementRequest(((factories.spec(gpus), 1),))
    gangs = rig.made.state.gangs
    return [Need(gangs["ns", f"s{number}", True], request) for number in range(count)]


def free_of(rig: Rig) -> dict[str, int]:
    used = [
        pod.node
        for pod in rig.made.state.pods.values()
        if pod.node
        for _ in range(pod.spec.request(GPU))
    ]
    return {name: GPUS - used.count(name) for name in rig.made.state.nodes}


def donor_of(gang: ElasticGang) -> Donor:
    return Donor(Counter(pod.node for pod in gang.placed.values()), gang.spare)


@pytest.mark.parametrize("seed", range(40))
def test_no_more_leave_than_are_needed_and_as_many_are_served_as_can_be(seed: int) -> None:
    """As many by one gang; by several, what they may give together on each node may be less than the best split."""
    dice = random.Random(seed)
    gangs = dice.choice((1, 1, 2))
    rig, donors = world(dice, gangs, nodes=dice.randint(1, 3 if gangs == 1 else 2))
    gpus, free = dice.choice((1, 2, 3)), free_of(rig)
    wanted = singles(rig, dice.randint(1, 8), gpus)
    wanted = [need for need in wanted if need.gang.key in rig.made.state.pending.waiting]
    free = free_of(rig)
    if not wanted:
        return
    found = needs.plan(rig.context, donors, wanted, 1.0)
    served = len(wanted) - len(found.unserved)
    assert [need.gang for need in wanted[served:]] == found.unserved
    possible = most_served(free, [*map(donor_of, donors)], gpus, len(wanted))
    assert served == possible if gangs == 1 else served <= possible
    after = dict(free)
    for index, pods in found.leaving.items():
        assert len({*map(id, pods)}) == len(pods) <= donors[index].spare
        for pod in pods:
            after[pod.node] += 1
    fits = sum(each // gpus for each in after.values())
    assert fits == served
    touched = {pod.node for pods in found.leaving.values() for pod in pods}
    assert all(after[name] % gpus == 0 for name in touched), "each that leaves is needed"
    for index, pods in found.leaving.items():
        donor = donors[index]
        for name in touched:  # on each node the highest numbers leave
            there = [donor.number(pod) or 0 for pod in donor.placed.values() if pod.node == name]
            gone = [donor.number(pod) or 0 for pod in pods if pod.node == name]
            assert sorted(gone) == sorted(there)[len(there) - len(gone) :]


@pytest.mark.parametrize("seed", range(20))
def test_the_gang_with_the_most_surplus_gives_first(seed: int) -> None:
    """On one node, for pods of one GPU: each time a member of the gang that has the most above its least."""
    dice = random.Random(seed)
    rig, donors = world(dice, 3, nodes=1)
    wanted = singles(rig, GPUS, 1)
    wanted = [need for need in wanted if need.gang.key in rig.made.state.pending.waiting]
    found = needs.plan(rig.context, donors, wanted, 1.0)
    spare = [donor.spare for donor in donors]
    for _ in range(min(len(wanted), sum(spare))):
        first = [i for i in range(3) if spare[i] and spare[i] == max(spare)]
        numbers = {
            i: max(n for n in range(len(donors[i].placed) - (donors[i].spare - spare[i])))
            for i in first
        }
        spare[max(first, key=lambda i: (numbers[i], -i))] -= 1
    given = [donor.spare - left for donor, left in zip(donors, spare, strict=True)]
    assert [len(found.leaving.get(index, ())) for index in range(3)] == given


def unlike(rig: Rig, name: str, pods: list[int]) -> Need:
    """A pending gang whose pods have so many GPUs."""
    facts: list[Fact] = [factories.gang(name, len(pods))]
    facts += [factories.pod(f"{name}-{i}", gpus, name) for i, gpus in enumerate(pods)]
    schedule_once(rig.made, facts, 1.0)
    groups = tuple((factories.spec(gpus), pods.count(gpus)) for gpus in sorted({*pods}))
    return Need(rig.made.state.gangs["ns", name, True], PlacementRequest(groups))


@pytest.mark.parametrize("seed", range(40))
def test_those_who_are_served_fit_together_when_the_others_have_left(seed: int) -> None:
    """Gangs of unlike pods and single ones, one after the other; nobody gives more than it may, and for a gang that
    does not fit nobody leaves."""
    dice = random.Random(seed)
    rig, donors = world(dice, gangs=2, nodes=2)
    shapes = [[dice.choice((1, 2, 3)) for _ in range(dice.choice((1, 2, 3)))] for _ in range(3)]
    wanted = [unlike(rig, f"g{number}", pods) for number, pods in enumerate(shapes)]
    wanted = [need for need in wanted if need.gang.key in rig.made.state.pending.waiting]
    found, free = needs.plan(rig.context, donors, wanted, 1.0), free_of(rig)
    pods = {
        need.gang.key: [
            spec.request(GPU) for spec, count in need.request.groups for _ in range(count)
        ]
        for need in wanted
    }
    left_out = {gang.key for gang in found.unserved}
    for index, gone in found.leaving.items():
        assert len({*map(id, gone)}) == len(gone) <= donors[index].spare
        for pod in gone:
            free[pod.node] += 1
    served = [gpus for key, each in pods.items() if key not in left_out for gpus in each]
    assert fits(nodes_of(free), pods_of(served))
    for need, plan in found.plans:
        assert need.gang.key not in left_out
        assert int(plan.taken.need[:, 0].sum()) == sum(pods[need.gang.key])


def test_what_leaves_for_a_reservation_is_not_given_again() -> None:
    facts: list[Fact] = [factories.node("n0", gpus=8), factories.gang("a", 1)]
    facts += [factories.pod(f"a-{i}", 1, "a", node="n0", phase="Running") for i in range(8)]
    rig = Rig(*facts)
    first, second = unlike(rig, "first", [2, 1]), unlike(rig, "second", [1])
    donor = rig.elastic("a", least=2, most=8)
    donor.numbers = {pod.seen.uid: number for number, pod in donor.placed.items()}
    ((_, plan),) = needs.plan(rig.context, [donor], [first], 1.0).plans
    start_leaving(plan.victims)
    assert len(plan.victims) == 3
    place = ReservedPlace.on(rig.made.state.snapshot, plan.taken)
    held = Reservation.by_evictions(first.gang, first.request, place, 1.0)
    rig.made.reservations[first.gang.key] = held
    donor.placed = {n: pod for n, pod in donor.placed.items() if not pod.leaving}
    found = needs.plan(rig.context, [donor], [first, second], 1.0)
    assert [len(pods) for pods in found.leaving.values()] == [1]
    assert found.unserved == []
    held.by_eviction = False
    found = needs.plan(rig.context, [donor], [second], 1.0)
    assert found.leaving == {}, "three seats are free soon"
    held.by_eviction = True
    donor.placed = dict([*donor.placed.items()][:2])  # nobody else may leave
    assert needs.plan(rig.context, [donor], [second], 1.0).unserved == [second.gang]
