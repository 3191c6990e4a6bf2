"""A started gang that is below its minimum moves whole, where a lost member has no place beside the others."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict, UpdateGangStatus
from central.model.facts import BindDone, EvictDone, Fact, GangSeen, NodeGone, PodGone, PodSeen
from central.scheduler.cycle import due, schedule_once
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

RACKS, NODES, FAILURES = 4, 3, 100


class Site:
    """Racks of nodes with 8 GPUs, gangs of whole nodes in one rack, and controllers that create lost pods again."""

    def __init__(self, racks: int, nodes: int) -> None:
        self.racks = {f"n{r}-{i}": f"r{r}" for r in range(racks) for i in range(nodes)}
        self.up = set(self.racks)
        self.cluster = new_scheduler(factories.LEVELS)
        self.pods: dict[str, PodSeen] = {}
        self.sizes: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.why: list[str] = []
        self.now = 0.0
        self.made = 0
        self._facts: list[Fact] = [self._node(name) for name in self.racks]

    def _node(self, name: str) -> Fact:
        return factories.node(name, rack=self.racks[name])

    def add(self, group: GangSeen, gpus: int = 8) -> None:
        self.sizes[group.name] = group.min_member
        self._facts.append(replace(group, topology_required=RACK))
        for index in range(group.min_member):
            self._create(group.name, index, gpus)

    def _create(self, gang: str, index: int, gpus: int) -> None:
        self.made += 1
        pod = replace(factories.pod(f"{gang}-{index}", gpus, gang), uid=f"uid-{self.made}")
        self.pods[pod.uid] = pod
        self._facts.append(pod)

    def lose(self, name: str) -> None:
        self.up.discard(name)
        self._facts.append(NodeGone(name))
        for pod in [pod for pod in self.pods.values() if pod.node == name]:
            self.end(pod)

    def repair(self, name: str) -> None:
        self.up.add(name)
        self._facts.append(self._node(name))

    def end(self, pod: PodSeen) -> None:
        del self.pods[pod.uid]
        self._facts.append(PodGone(pod.uid))
        self._create(pod.gang, pod.order[0], len(pod.spec.gpu_containers) and 8)

    def step(self, seconds: float = 1.0) -> None:
        """A cycle; what it decides has happened before the next one."""
        self.now += seconds
        facts, self._facts = self._facts, []
        for decision in schedule_once(self.cluster, facts, self.now):
            if isinstance(decision, UpdateGangStatus):
                self.reasons[decision.gang] = decision.reason
            elif isinstance(decision, Bind):
                seen = replace(self.pods[decision.pod], node=decision.node, phase="Running")
                self.pods[decision.pod] = seen
                self._facts += [BindDone(decision.pod, decision.node), seen]
            elif isinstance(decision, Evict):
                self.why.append(decision.why)
                self._facts.append(EvictDone(decision.pod))
                self.end(self.pods[decision.pod])
        check_invariants(self.cluster)

    def settle(self, until: float) -> None:
        while self.now < until:
            at = due(self.cluster, self.now)
            self.step(1.0 if self._facts else max(1.0, min(at or until, until) - self.now))

    def where(self, gang: str) -> list[str]:
        return sorted(pod.node for pod in self.pods.values() if pod.gang == gang and pod.node)

    def could_be_whole(self, gang: str) -> bool:
        """Whether a rack has as many nodes without pods of others."""
        used = {pod.node for pod in self.pods.values() if pod.gang != gang}
        free = [self.racks[name] for name in self.up - used]
        return any(free.count(rack) >= self.sizes[gang] for rack in set(free))


def broken(**other: object) -> Site:
    """A gang in rack r0, one of whose nodes is lost at 1 s. Rack r1 is free."""
    site = Site(2, 2)
    site.add(replace(factories.gang("g", 2), **other))  # type: ignore[arg-type]  # a test's shorthand
    site.step()
    site.step()
    [first, *_] = site.where("g")
    assert {site.racks[name] for name in site.where("g")} == {site.racks[first]}
    site.lose(first)
    site.step()
    return site


@pytest.mark.parametrize("after_s", [60.0, 300.0])
def test_it_moves_after_the_time_of_its_podgroup(after_s: float) -> None:
    site = broken(move_after_s=after_s)
    site.settle(after_s)
    assert len(site.where("g")) == 1
    assert not site.why
    site.settle(after_s + 10.0)
    assert len({site.racks[name] for name in site.where("g")}) == 1
    assert len(site.where("g")) == 2
    assert site.why == [
        f"gang g is moved: it has lacked 1 pod for {'60 s' if after_s == 60 else '5 min'}, which has no place beside the "
        "others, and all of it fits elsewhere"
    ]


def test_it_reserves_no_node_of_its_own_member() -> None:
    site = broken()
    assert "reserved" not in site.reasons["g"]
    assert not site.cluster.reservations


def test_it_stays_while_it_fits_nowhere_else() -> None:
    site = broken()
    site.add(factories.gang("other", 2))
    site.settle(1000.0)
    assert len(site.where("g")) == 1
    assert not site.why


def test_it_stays_where_its_node_is_repaired_in_time() -> None:
    site = broken()
    lost = min(set(site.racks) - site.up)
    site.settle(200.0)
    site.repair(lost)
    site.settle(210.0)
    assert lost in site.where("g")
    assert not site.why


def test_others_leave_the_new_place_free_while_it_moves() -> None:
    """The gang has no place any more when its pods leave: what arrives in between goes elsewhere."""
    site = broken(move_after_s=60.0)
    site.settle(60.0)
    while not site.why:
        site.step()
    site.add(factories.gang("late", 2))
    site.settle(100.0)
    assert len(site.where("g")) == 2
    assert not site.where("late")


def random_group(dice: random.Random, index: int) -> GangSeen:
    return factories.gang(f"g{index}", dice.randint(1, NODES), move_after_s=120.0)


def lose_some(site: Site, dice: random.Random) -> None:
    """A node, a rack or a member fails, or a node is repaired."""
    kind = dice.random()
    if kind < 0.2 and site.up:
        rack = site.racks[dice.choice(sorted(site.up))]
        for name in [name for name in sorted(site.up) if site.racks[name] == rack]:
            site.lose(name)
    elif kind < 0.4 and site.up:
        site.lose(dice.choice(sorted(site.up)))
    elif kind < 0.6 and (placed := [pod for pod in site.pods.values() if pod.node]):
        site.end(dice.choice(placed))
    elif down := sorted(set(site.racks) - site.up):
        site.repair(dice.choice(down))


def below(site: Site) -> Sequence[str]:
    """Gangs with some of their members that could be whole."""
    short = [name for name, size in site.sizes.items() if 0 < len(site.where(name)) < size]
    return [name for name in short if site.could_be_whole(name)]


def play(seed: int) -> None:
    """A hundred failures."""
    dice = random.Random(seed)
    site = Site(RACKS, NODES)
    for index in range(5):
        site.add(random_group(dice, index))
    site.settle(10.0)
    for failures in range(FAILURES):
        lose_some(site, dice)
        if dice.random() < 0.3:
            site.settle(site.now + 600.0)
            assert below(site) == [], f"after {failures} failures"
        else:
            site.step(dice.choice([1.0, 10.0, 100.0]))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_no_gang_stays_below_its_minimum_that_could_be_whole(seed: int) -> None:
    play(seed)


@pytest.mark.long
@pytest.mark.parametrize("story", [5, 16])
def test_a_replacement_may_use_what_is_reserved_for_a_pending_gang(story: int) -> None:
    """Else the two wait for each other: the plan is for the time when the gang that is broken ends."""
    play(story)
