"""GPUs that an agent gives to pods for claims and by its device plugin: no GPU is in two hands, none is forgotten."""

from dataclasses import replace
from random import Random

import pytest

from central.kube.decode import policy_decoder
from central.model.decisions import Bind, Evict
from central.model.device_claims import (
    DeviceClaimGone,
    DeviceClaimSeen,
    DeviceClaimSpec,
    DeviceId,
    DeviceRequest,
    DeviceUse,
)
from central.model.facts import DeviceClassSeen, Fact, NodeGone, PodGone, PodSeen, PrioritySeen
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.rebuild import rebuild
from central.server.published_nodes.published_devices import slices_of
from protos.names import DRA_DRIVER
from protos.topology import ClaimDevice, ClaimPlan, Grant, NodeTopology, indices_of
from tests.central import factories
from tests.central.kube import api_fixtures
from tests.central.scheduler.device_claims.devices import Cycles, claim, pod
from tests.effort import seeds

CLASS = DeviceClassSeen(DRA_DRIVER, "", (f'device.driver == "{DRA_DRIVER}"',))


def asks(count: int) -> DeviceClaimSpec:
    return DeviceClaimSpec(((DeviceRequest("r", DRA_DRIVER, count),),))


def by_claim(name: str, count: int = 1, **other: object) -> tuple[DeviceClaimSeen, PodSeen]:
    return claim(f"c-{name}", asks(count)), pod(name, f"c-{name}", **other)  # type: ignore[arg-type]  # a test's shorthand


def held(name: str, *devices: str) -> DeviceClaimSeen:
    """A claim that another scheduler has allocated. devices: NODE/NUMBER"""
    pairs = [each.split("/") for each in devices]
    ids = tuple(DeviceId(DRA_DRIVER, node, f"gpu-{number}") for node, number in pairs)
    return claim(name, asks(len(ids)), allocated=ids, requests=("r",) * len(ids))


class Cluster(Cycles):
    """Nodes whose agents serve claims, and an API server that keeps what is decided."""

    def __init__(self, *names: str, gpus: int = 4, mode: str = "beside") -> None:
        super().__init__()
        self.generation, self.names, self.gpus, self.mode = 0, names, gpus, mode
        plugin = gpus if mode == "beside" else 0
        self.cycle(CLASS, *(factories.node(name, gpus=plugin, shares=True) for name in names))
        for name in names:
            self.report(name)

    def report(
        self,
        name: str,
        *grants: Grant,
        topology: NodeTopology | None = None,
        prepared: tuple[ClaimPlan, ...] = (),
    ) -> None:
        """The agent's report, and the slices that follow from it."""
        self.generation += 1
        what = topology or factories.topology(self.gpus, shares=True)
        fact = factories.report(name, what, self.generation, grants)
        self.cycle(replace(fact, claims=self.mode, prepared=prepared))
        pools = self.scheduler.state.podclasses.device_claims.allocation.pools
        known = [*pools.slices((DRA_DRIVER, name))]
        self.cycle(*slices_of(self.scheduler.state.nodes[name], known))

    def by_plugin(self, name: str) -> int:
        """The mask of GPUs that pods have from the plugin, or are to get."""
        mask = 0
        for each in self.scheduler.state.nodes[name].pods.values():
            mask |= each.gpus
        return mask

    def by_claims(self, name: str) -> list[int]:
        claims = self.scheduler.state.podclasses.device_claims
        ids = [one for seen in claims._claims.values() for one in seen.allocated or ()]
        ids += [one.id for plan in claims.plans.values() for one in plan.devices]
        return sorted(int(each.device[4:]) for each in ids if each.pool == name)


def test_a_claim_and_the_plugin_get_different_gpus_in_one_cycle() -> None:
    cluster = Cluster("a")
    bound = cluster.step(*by_claim("c", 3, created=-2.0), factories.pod("p", 1, created=-1.0))
    assert bound == {"c": "a", "p": "a"}
    assert [*indices_of(cluster.by_plugin("a"))] == list({0, 1, 2, 3} - {*cluster.by_claims("a")})


@pytest.mark.parametrize("first", ["claim", "plugin"])
def test_who_comes_second_waits_in_the_same_cycle(first: str) -> None:
    cluster = Cluster("a")
    ages = {"claim": (-2.0, -1.0), "plugin": (-1.0, -2.0)}[first]
    bound = cluster.step(*by_claim("c", 3, created=ages[0]), factories.pod("p", 3, created=ages[1]))
    assert bound == {"c" if first == "claim" else "p": "a"}
    gone: list[Fact] = [PodGone(f"uid-{next(iter(bound))}")]
    gone += [DeviceClaimGone("ns", "c-c")] if first == "claim" else []
    assert cluster.step(*gone) == {"p" if first == "claim" else "c": "a"}


def test_a_claim_of_another_scheduler_takes_the_gpu_from_the_plugin() -> None:
    cluster = Cluster("a")
    cluster.step(factories.pod("p", 3))
    planned = [*indices_of(cluster.by_plugin("a"))]
    cluster.step(held("theirs", f"a/{planned[0]}"))
    assert cluster.by_plugin("a").bit_count() == 3, "the plan moves to the free GPU"
    assert not cluster.by_plugin("a") >> planned[0] & 1
    assert not cluster.step(factories.pod("q", 1), *by_claim("c"))
    assert cluster.step(DeviceClaimGone("ns", "theirs"))


def test_a_share_and_a_claim_never_meet() -> None:
    cluster = Cluster("a", gpus=2)
    assert cluster.step(factories.part("s", 30), *by_claim("c")) == {"s": "a", "c": "a"}
    assert [*indices_of(cluster.by_plugin("a"))] != cluster.by_claims("a")
    assert cluster.step(factories.part("t", 30)) == {"t": "a"}
    assert not cluster.step(factories.part("u", 50), *by_claim("d"))
    assert cluster.told["d"].endswith("(short of devices of claims: enough for 0)") or (
        "0 of 2 devices" in cluster.told["d"]
    )


def test_an_unhealthy_gpu_is_not_claimed_where_the_api_server_keeps_no_taints() -> None:
    cluster = Cluster("a")
    cluster.cycle(
        *(
            replace(each, generation=9, devices=tuple(replace(d, taints=()) for d in each.devices))
            for each in slices_of(cluster.scheduler.state.nodes["a"], ())
        )
    )
    sick = replace(
        factories.report("a", factories.topology(4, sick=(0, 1, 2)), 99), claims="beside"
    )
    assert cluster.step(sick, *by_claim("c"), *by_claim("d")).keys() in ({"c"}, {"d"})
    assert cluster.by_claims("a") == [3]


def test_a_gpu_is_free_when_the_agent_has_unprepared_its_claim() -> None:
    cluster = Cluster("a", gpus=1)
    plan = ClaimPlan("ns", "gone", "uid-gone", (ClaimDevice("r", "gpu-0"),))
    cluster.report("a", prepared=(plan,))
    assert not cluster.step(factories.pod("p", 1), *by_claim("c"))
    cluster.report("a")
    assert cluster.by_plugin("a") or cluster.by_claims("a")


def test_claims_alone_where_the_plugin_offers_no_gpus() -> None:
    cluster = Cluster("a", mode="only")
    assert cluster.step(*by_claim("c", 3), factories.pod("p", 1)) == {"c": "a"}
    assert cluster.step(*by_claim("d", 1)) == {"d": "a"}


@pytest.mark.parametrize("mode", ["beside", "only"])
def test_queues_count_each_gpu_once(mode: str) -> None:
    cluster = Cluster("a", "b", mode=mode)
    queue = policy_decoder.decode_queue(api_fixtures.queue("q"))

    def total() -> float:
        return cluster.scheduler.queues.total.get(GPU_EQUIVALENTS, 0) / GPU_UNITS

    cluster.cycle(queue, factories.pod("x", 99, queue="q"))
    assert total() == 8
    cluster.step(*by_claim("c", 2, queue="q"), held("theirs", "b/1"))
    cluster.cycle()
    assert total() == 7, "without the one of the other scheduler"
    if mode == "beside":
        assert cluster.step(factories.pod("p", 3, queue="q"))
        cluster.cycle()
        assert total() == 7
    assert cluster.scheduler.queues.by_name["q"].used[GPU_EQUIVALENTS] == GPU_UNITS * (
        5 if mode == "beside" else 2
    )


@pytest.mark.parametrize("kind", ["claim", "plugin"])
def test_a_more_urgent_claim_evicts_whoever_has_the_gpu(kind: str) -> None:
    cluster = Cluster("a", gpus=2)
    low = [factories.pod("p", 2)] if kind == "plugin" else by_claim("p", 2)
    assert cluster.step(*low) == {"p": "a"}
    cluster.report("a")
    known = cluster.scheduler.state.podclasses.device_claims.allocation.pools
    (shown,) = known.slices((DRA_DRIVER, "a"))
    assert any(each.taints for each in shown.devices) == (kind == "plugin")
    urgent = by_claim("c", 1, priority=9)
    decisions = cluster.cycle(PrioritySeen("high", 9), *urgent)
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["p"]
    gone: list[Fact] = [PodGone("uid-p"), DeviceClaimGone("ns", "c-p")]
    assert cluster.step(*gone) == {"c": "a"}


def test_a_node_that_goes_and_comes_back_is_counted_again() -> None:
    cluster = Cluster("a")
    cluster.step(held("theirs", "a/0", "a/1"))
    assert cluster.step(factories.pod("p", 1))
    cluster.step(NodeGone("a"), PodGone("uid-p"))
    cluster.step(factories.node("b", gpus=4))
    assert cluster.step(factories.pod("on-b", 4)) == {"on-b": "b"}
    cluster.step(factories.node("a", gpus=4, shares=True))
    cluster.report("a")
    assert not cluster.step(factories.pod("q", 3))
    assert cluster.step(*by_claim("c", 2)) == {"c": "a"}
    assert not cluster.step(factories.pod("r", 1))


def test_an_agent_that_serves_no_claims_for_a_while_is_counted_again() -> None:
    cluster = Cluster("a")
    assert cluster.step(factories.pod("p", 1))
    cluster.mode = ""
    cluster.report("a")
    assert cluster.step(PodGone("uid-p"), factories.pod("q", 4)) == {"q": "a"}
    cluster.step(PodGone("uid-q"))
    cluster.mode = "beside"
    cluster.report("a")
    assert cluster.step(*by_claim("c", 4)) == {"c": "a"}


def test_a_planned_share_leaves_the_gpu_of_a_claim() -> None:
    cluster = Cluster("a", gpus=2)
    cluster.step(factories.part("s", 30))
    (planned,) = indices_of(cluster.by_plugin("a"))
    cluster.step(held("theirs", f"a/{planned}"))
    assert [*indices_of(cluster.by_plugin("a"))] == [1 - planned]


def test_a_device_that_is_withheld_is_no_free_gpu() -> None:
    cluster = Cluster("a")
    snapshot = cluster.scheduler.state.snapshot
    row, devices = snapshot.columns.row["a"], snapshot.pod_counts.devices
    devices.withhold({DeviceUse(DeviceId(DRA_DRIVER, "a", "gpu-2")): 1})
    assert snapshot.columns.gpus.count[row] == 3
    devices.withhold({})
    assert snapshot.columns.gpus.count[row] == 4


def test_gpus_are_not_claimed_before_the_agent_has_reported() -> None:
    """A new leader knows the slices of the one before."""
    cluster = Cluster("a")
    (slices,) = slices_of(cluster.scheduler.state.nodes["a"], ())
    other = Cluster()
    running = replace(factories.pod("p", 2), node="a", phase="Running")
    node = factories.node("a", gpus=4, shares=True)
    assert other.step(node, slices, running, *by_claim("d", 2)) == {}
    other.report("a", factories.grant("p", 0, 3))
    assert other.by_claims("a") == [1, 2]


class History:
    """Random pods, claims of others, ends and reports on two nodes."""

    def __init__(self, seed: int) -> None:
        self.rng, self.cluster = Random(seed), Cluster("a", "b")
        self.wanted: dict[str, PodSeen] = {}  # without a node
        self.sizes: dict[str, int] = {}
        self.bound: dict[str, PodSeen] = {}
        self.others: set[str] = set()
        self.number = 0

    def step(self) -> None:
        facts = self._facts()
        decisions = self.cluster.cycle(*facts)
        for each in decisions:
            if isinstance(each, Bind):
                seen = replace(self.wanted.pop(each.name), node=each.node, phase="Running")
                self.bound[each.name] = seen
                for given in each.device_claims:
                    spec = asks(len(given.devices))
                    ids = tuple(one.id for one in given.devices)
                    requests = tuple(one.request for one in given.devices)
                    made = claim(given.claim, spec, allocated=ids, requests=requests)
                    facts.append(replace(made, reserved=(seen.uid,)))
        if self.rng.random() < 0.5:  # else the watch shows it later, or never
            shown = [f for f in facts if isinstance(f, DeviceClaimSeen) and f.allocated]
            self.cluster.cycle(*shown, *self.bound.values())
        if self.rng.random() < 0.1:
            rebuild(self.cluster.scheduler)
            self.cluster.cycle()
        self._check()

    def _facts(self) -> list[Fact]:
        rng, facts = self.rng, list[Fact]()
        for _ in range(rng.randrange(3)):
            self.number += 1
            name, size = f"p{self.number}", rng.choice((1, 1, 2, 3, 4))
            self.sizes[name] = size
            kind = rng.choice(("plugin", "claim", "claim", "share"))
            if kind == "claim":
                seen, self.wanted[name] = by_claim(name, size)
                facts.append(seen)
            elif kind == "plugin":
                self.wanted[name] = factories.pod(name, size)
            else:
                self.wanted[name] = factories.part(name, rng.choice((30, 60)))
            facts.append(self.wanted[name])
        for name in [*self.bound]:
            if rng.random() < 0.2:
                facts += [PodGone(self.bound.pop(name).uid), DeviceClaimGone("ns", f"c-{name}")]
        for name in [*self.wanted]:
            if rng.random() < 0.1:
                facts += [PodGone(self.wanted.pop(name).uid), DeviceClaimGone("ns", f"c-{name}")]
        for name in sorted(self.others):
            if rng.random() < 0.3:
                self.others.discard(name)
                facts.append(DeviceClaimGone("ns", name))
        if rng.random() < 0.3:
            node = rng.choice("ab")
            free = set(range(4)) - {*indices_of(self.cluster.by_plugin(node))}
            free -= {*self.cluster.by_claims(node)}
            if free:
                self.number += 1
                self.others.add(f"o{self.number}")
                facts.append(held(f"o{self.number}", f"{node}/{rng.choice(sorted(free))}"))
        return facts

    def _check(self) -> None:
        free = {}
        for node in "ab":
            plugin = [*indices_of(self.cluster.by_plugin(node))]
            claims = self.cluster.by_claims(node)
            assert len({*claims}) == len(claims), "two claims have one GPU"
            assert not {*claims} & {*plugin}, "a claim and the plugin have one GPU"
            free[node] = 4 - len(plugin) - len(claims)
        if len(self.wanted) == 1:
            ((name, seen),) = self.wanted.items()
            if not seen.spec.share_containers:
                why = self.cluster.told.get(name, "")
                assert max(free.values()) < self.sizes[name], f"{name} fits and waits: {why}"


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(20))
def test_any_history_has_no_gpu_in_two_hands_and_leaves_none_idle(seed: int) -> None:
    story = History(seed)
    for _ in range(40):
        story.step()
