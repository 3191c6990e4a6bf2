"""NICs that are one device each (--rdma-shares=1, virtual functions): whatever comes and goes, no NIC is planned for
two pods or for one beside its holder, and whoever is bound finds as many free ones as it asked for."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from central.model.decisions import UpdateGangStatus
from central.model.facts import Fact, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from protos.names import RDMA
from protos.topology import Grant, NodeTopology, indices_of
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.inventory import test_nics
from tests.central.scheduler.inventory.test_nics import cards, gpus, node, scheduler
from tests.effort import seeds

NICS = 4


def alone() -> NodeTopology:
    plain = test_nics.topology()
    return replace(plain, hcas=tuple(replace(nic, shares=1) for nic in plain.hcas))


def pod(name: str, gpus: int, nics: int) -> PodSeen:
    plain = test_nics.pod(name, gpus)
    requests = tuple(sorted({**dict(plain.spec.requests), RDMA: nics}.items()))
    return replace(
        plain, spec=replace(plain.spec, requests=requests, rdma_containers=(("main", nics),))
    )


class Kubelet:
    """Gives bound pods their devices: those planned, else any free one."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.scheduler = scheduler(alone())
        seen = replace(node(), allocatable={**node().allocatable, RDMA: NICS})
        schedule_once(self.scheduler, [seen], 0.0)
        self.held: dict[str, tuple[str, ...]] = {}
        self.pods: dict[str, PodSeen] = {}
        self.generation, self.bound = 1, 0

    def step(self, now: float, *facts: Fact) -> None:
        schedule_once(self.scheduler, list(facts), now)
        check_invariants(self.scheduler)
        planned = Counter(nic for nics in cards(self.scheduler).values() for nic in nics)
        taken = {nic for nics in self.held.values() for nic in nics}
        assert not planned or max(planned.values()) == 1, "one NIC is planned for two"
        assert not taken & set(planned), "a NIC is planned that has a holder"

    def arrive(self, now: float, name: str) -> None:
        self.pods[name] = pod(name, self.dice.randint(0, 2), self.dice.randint(1, 3))
        self.step(now, self.pods[name])

    def start_one(self, now: float) -> None:
        """A bound pod without devices gets them, and the agent reports."""
        new = [
            name
            for name in self.pods
            if name not in self.held and self.scheduler.state.pods[f"uid-{name}"].node
        ]
        if not new:
            return
        name = self.dice.choice(new)
        count = dict(self.pods[name].spec.requests)[RDMA]
        taken = {nic for nics in self.held.values() for nic in nics}
        free = [f"mlx5_{number}" for number in range(NICS) if f"mlx5_{number}" not in taken]
        assert len(free) >= count, "bound, and the node has too few NICs"
        planned = cards(self.scheduler).get(name, ())
        self.held[name] = tuple(planned) or tuple(self.dice.sample(free, count))
        assert set(self.held[name]) <= set(free)
        assert len(self.held[name]) == count
        self.bound += 1
        self.report(now, {name: gpus(self.scheduler).get(name, ())})

    def report(self, now: float, fresh: dict[str, tuple[str, ...]]) -> None:
        grants = [
            Grant("ns", name, "main", RDMA, tuple(f"0000:8{nic[-1]}:00.0" for nic in nics))
            for name, nics in self.held.items()
        ]
        for name in self.held:
            mask = self.scheduler.state.pods[f"uid-{name}"].gpus
            ids = fresh.get(name) or tuple(f"GPU-{gpu}" for gpu in indices_of(mask))
            if ids:
                grants.append(Grant("ns", name, "main", "nvidia.com/gpu", ids))
        self.generation += 1
        self.step(now, factories.report("a", alone(), self.generation, tuple(grants)))

    def end_one(self, now: float) -> None:
        if self.held:
            name = self.dice.choice(sorted(self.held))
            del self.held[name], self.pods[name]
            self.step(now, PodGone(f"uid-{name}"))
            self.report(now, {})


@pytest.mark.long
def test_no_nic_has_two_pods() -> None:
    bound = waited = 0
    for seed in seeds(40):
        kubelet = Kubelet(seed)
        for turn in range(40):
            deed = kubelet.dice.choice(("arrive", "start", "start", "end"))
            if deed == "arrive":
                kubelet.arrive(float(turn), f"p{turn}")
            elif deed == "start":
                kubelet.start_one(float(turn))
            else:
                kubelet.end_one(float(turn))
        bound += kubelet.bound
        waited += any(not each.node for each in kubelet.scheduler.state.pods.values())
    assert bound > 5 * len(seeds(40))
    assert waited > 0, "there were more pods than NICs"


def test_whoever_finds_none_reads_that_nics_are_short() -> None:
    kubelet = Kubelet(0)
    kubelet.step(1.0, pod("one", 1, 3))
    decisions = schedule_once(kubelet.scheduler, [pod("two", 1, 2)], 2.0)
    (told,) = (each for each in decisions if isinstance(each, UpdateGangStatus) and each.reason)
    assert "1 node has GPUs free and lacks 1 of 2 lockstep.dev/rdma" in told.reason
