"""Claims beside the quota of a queue while other pods terminate: victims of the claim before, and pods that users
delete. Against every set of victims."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from central.model.facts import Fact, QueueSeen
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.small_cluster import World, job
from tests.effort import examples

URGENT = 5


def limited(gpus: int, **more: object) -> QueueSeen:
    return QueueSeen("q", capability=((GPU, gpus),), **more)  # type: ignore[arg-type]  # a test's shorthand


def running(*gpus: int, queue: QueueSeen) -> World:
    """Gangs r0, r1, ... of one pod each in queue q, all from the same second, with capacity for as many again."""
    world = World(*(factories.node(f"n{number}") for number in range(2 * len(gpus))), queue)
    world.step(1.0, *(f for i, n in enumerate(gpus) for f in job(f"r{i}", 1, n, queue="q")))
    return world


def urgent(pods: int, gpus: int, name: str = "urgent") -> list[Fact]:
    return job(name, pods, gpus, queue="q", priority=URGENT, created=10.0)


def deleted(world: World, name: str, now: float) -> list[str]:
    """A user deletes the pod. What was bound."""
    seen = world.running[f"uid-{name}"] = replace(world.running[f"uid-{name}"], deleting=True)
    world.leaving[seen.uid] = now + world.grace_s
    return world.step(now, seen)


def test_a_request_that_grows_beside_a_quota_counts_on_what_already_terminates() -> None:
    """Of 8 GPUs 2 leave for the first member, and 2 more for the second one: not 4."""
    world = running(4, 2, 2, queue=limited(8))
    world.step(10.0, *urgent(1, 2))
    assert len(world.evicted) == 1
    world.step(11.0, *urgent(2, 2))
    assert sorted(world.evicted) == ["r1-0", "r2-0"]
    assert [world.step(now) for now in (15.0, 16.0)] == [[], ["urgent-0", "urgent-1"]]


def test_a_request_that_grows_to_all_that_terminates_keeps_it() -> None:
    """One victim had more than was needed. Nobody else is evicted, and its place and quota stay reserved."""
    world = running(4, queue=limited(4))
    world.step(10.0, *urgent(1, 2))
    world.step(11.0, *urgent(2, 2))
    assert world.evicted == ["r0-0"]
    assert "no victims" not in world.told["urgent"]
    assert "waiting for pods to terminate" in world.told["urgent"]
    assert world.step(12.0, *job("late", 1, 2, queue="q", created=12.0)) == []
    assert world.step(15.0) == ["urgent-0", "urgent-1"]


def test_nobody_is_evicted_for_quota_that_a_deleted_pod_leaves() -> None:
    world = running(2, 2, queue=limited(4))
    deleted(world, "r0-0", 9.0)
    assert world.step(10.0, *urgent(1, 2)) == []
    assert world.step(14.0) == ["urgent-0"]
    assert world.evicted == []


def test_a_pod_that_terminates_on_a_lost_node_is_not_waited_for() -> None:
    world = running(2, 2, queue=limited(4))
    deleted(world, "r0-0", 9.0)
    world.leaving["uid-r0-0"] = 1e6
    world.step(
        9.5, factories.node("n9"), factories.node(world.running["uid-r0-0"].node, ready=False)
    )
    world.step(10.0, *urgent(1, 2))
    assert world.evicted == ["r1-0"]


def test_the_number_of_gangs_counts_those_that_leave_and_those_that_come() -> None:
    """Two may run. One of them leaves for the first claimant, which grows, and the other one for the second."""
    world = running(1, 1, queue=limited(8, running_gangs=2))
    world.step(10.0, *urgent(1, 1))
    world.step(11.0, *urgent(2, 1))
    assert len(world.evicted) == 1
    world.step(12.0, *urgent(1, 1, "second"))
    assert len(world.evicted) == 2
    world.step(13.0, *urgent(1, 1, "third"))
    assert len(world.evicted) == 2


def test_a_free_place_among_the_running_gangs_is_kept_for_who_claimed_it() -> None:
    """The victim in its queue is gone before the one of another queue."""
    owed = limited(8, running_gangs=1, deserved=((GPU, 4),))
    world = World(factories.node("n", gpus=4), owed, QueueSeen("p"))
    world.step(1.0, *job("a", 1, 1, queue="q"), *job("b", 1, 3, queue="p"))
    world.step(10.0, *urgent(1, 4))
    assert sorted(world.evicted) == ["a-0", "b-0"]
    world.leaving["uid-b-0"] = 60.0
    assert world.step(15.0, *job("small", 1, 0, queue="q", created=11.0)) == []
    assert "runs 0 gangs, and keeps 1 for gangs whose victims terminate" in world.told["small"]
    assert world.step(60.0) == ["urgent-0"]


@pytest.mark.parametrize("kind", ["namespace", "user"])
def test_limits_of_tenants_count_what_leaves(kind: str) -> None:
    most = {f"{kind}_amounts": ((GPU, 4),), f"{kind}_gangs": 2}
    world = running(2, 2, queue=limited(8, **most))
    world.step(10.0, *urgent(1, 1))
    world.step(11.0, *urgent(2, 1))
    assert len(world.evicted) == 1
    assert world.step(15.0) == ["urgent-0", "urgent-1"]


# --- judged by an exact solver --------------------------------------------------


@dataclass
class _Claimant:
    name: str
    pods: int
    gpus: int


class _Story:
    """Urgent gangs that come and grow, and pods that users delete, in a queue that is full."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = Random(seed)
        sizes = [dice.choice((1, 1, 2, 3, 4)) for _ in range(dice.randint(2, 6))]
        self.priorities = [dice.choice((0, 0, 0, 3, 9)) for _ in sizes]
        self.gpus = {f"r{i}-0": size for i, size in enumerate(sizes)}
        self.most = sum(sizes) + dice.choice((0, 0, 0, 1))
        self.most_gangs = len(sizes) if dice.random() < 0.3 else None
        queue = limited(self.most, running_gangs=self.most_gangs)
        self.world = World(*(factories.node(f"n{number}") for number in range(16)), queue)
        facts = [
            fact
            for i, (gpus, priority) in enumerate(zip(sizes, self.priorities, strict=True))
            for fact in job(f"r{i}", 1, gpus, queue="q", priority=priority)
        ]
        self.world.step(1.0, *facts)
        self.world.grace_s = 100.0
        self.claimants: list[_Claimant] = []
        self.claims: set[str] = set()  # gangs with victims, or that need none

    def staying(self) -> list[str]:
        return [name for name in self.gpus if f"uid-{name}" not in self.world.leaving]

    def victims(self, claimant: _Claimant) -> tuple[Model, dict[str, Sum], list[Sum]]:
        """Who leaves, so that all claims fit once all that terminates is gone, and the harm: the highest priority, then
        by priority the pods and their GPUs."""
        model, stay = Model(), self.staying()
        gone = {name: model.integer(0, int(self.priority(name) < URGENT)) for name in stay}
        coming = [one for one in self.claimants if one.name in self.claims or one is claimant]
        used = total(self.gpus[name] * (1 - x) for name, x in gone.items())
        model.at_most(used + sum(one.pods * one.gpus for one in coming), self.most)
        if self.most_gangs is not None:
            model.at_most(total(1 - x for x in gone.values()) + len(coming), self.most_gangs)
        highest = model.integer(-1, max(self.priorities))
        for name, x in gone.items():
            model.at_most(self.priority(name), highest, x)
        levels = sorted({*self.priorities}, reverse=True)
        own = [[name for name in gone if self.priority(name) == level] for level in levels]
        pods = [total(gone[name] for name in names) for names in own]
        return (
            model,
            gone,
            [
                highest,
                *pods,
                *(total(gone[name] * self.gpus[name] for name in names) for names in own),
            ],
        )

    def priority(self, name: str) -> int:
        return self.priorities[int(name[1:-2])]

    def event(self, now: float) -> bool:
        """Returns whether the story goes on: what a claim gives up that has become too large, others may take at
        once."""
        dice = self.dice
        if dice.random() < 0.3 and (stay := self.staying()):
            before = len(self.world.evicted)
            deleted(self.world, dice.choice(stay), now)
            assert len(self.world.evicted) == before
            return True
        grows = [one for one in self.claimants if one.pods < 4]
        if grows and dice.random() < 0.6:
            claimant = dice.choice(grows)
            claimant.pods += 1
        else:
            claimant = _Claimant(f"u{len(self.claimants)}", 1, dice.choice((1, 2, 3)))
            self.claimants.append(claimant)
        had = claimant.name in self.claims
        self.claims.discard(claimant.name)
        model, gone, harm = self.victims(claimant)
        least = model.least(harm)
        before = len(self.world.evicted)
        self.world.step(now, *urgent(claimant.pods, claimant.gpus, claimant.name))
        evicted = tuple(sorted(self.world.evicted[before:]))
        if least is None:
            assert had or not evicted, "in vain"
            return not had
        chosen = [1 - x if name in evicted else x for name, x in gone.items()]
        assert {*evicted} <= gone.keys()
        assert model.least(harm, *chosen) == least, evicted
        self.claims.add(claimant.name)
        return True


@pytest.mark.long
def test_who_claims_beside_a_quota_evicts_the_least_that_is_enough() -> None:
    for seed in range(examples(60)):
        story = _Story(seed)
        try:
            for number in range(4):
                if not story.event(10.0 + number):
                    break
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_claims_at_a_quota_leave_what_is_free_as_it_is_for_who_comes_after() -> None:
    """Its minResources are all that is free, of which the claims before it have their places."""
    world = running(2, queue=limited(2))
    free_cpu = (("cpu", 127_900),)
    wide = factories.gang("wide", 1, queue="q", min_resources=free_cpu, created=11.0)
    member = factories.pod("wide-0", 0, "wide")
    claims = [*urgent(1, 1, "first"), *urgent(1, 1, "second")]
    assert world.step(10.0, *claims, wide, member) == ["wide-0"]
    assert world.evicted == ["r0-0"]


def test_a_gang_behind_one_that_lacks_more_quota_gets_its_victims() -> None:
    """Their pods are equal, and the first one asks for more by minResources: its victims are not enough."""
    world = World(*(factories.node(f"n{number}") for number in range(4)))
    world.step(0.0, QueueSeen("q", capability=((GPU, 24),)))
    for number in range(4):
        name, may_go = f"r{number}", None if number == 0 else False
        pod = factories.pod(f"{name}-0", 4, name, node=f"n{number}", phase="Running")
        pod = replace(pod, preemptable=may_go)
        world.step(1.0, factories.gang(name, 1, queue="q"), pod)
    both = [
        *job("more", 1, 8, queue="q", created=2.0, priority=5, min_resources=((GPU, 16),)),
        *job("less", 1, 8, queue="q", created=3.0, priority=5),
    ]
    world.step(4.0, *both)
    assert world.evicted == ["r0-0"]
    world.step(20.0)
    assert "less" in world.began
