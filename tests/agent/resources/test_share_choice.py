"""Which GPU's shares a container gets, compared with the rule as it is written; and for whom an Allocate is."""

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.cdi import Injection
from agent.resources.device_resource import Choice, ContainerDevices, ContainerKey, DeviceRequest
from agent.resources.gpu_share import GpuShareResource, preferred
from protos.gpu_sharing import LEAST, RANKS, SHARE
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.topology import Grant
from tests.fakes import machines

COUNT = 4
ALL = survey(machines.machine(COUNT))
TOPOLOGY = replace(ALL, gpus=tuple(replace(gpu, shares=100) for gpu in ALL.gpus))


def ids(gpu: int, numbers: Collection[int]) -> tuple[str, ...]:
    return tuple(share_id(machines.uuid(gpu), number) for number in sorted(numbers))


def plan(pod: str, gpu: int, size: int, container: str = "c0", least: str = "none") -> Grant:
    limits = tuple(sorted({SHARE: size, LEAST: RANKS[least]}.items()))
    return Grant("ns", pod, container, GPU_SHARE, (machines.uuid(gpu),), limits)


def row(pod: str, container: str = "c0", **devices: tuple[str, ...]) -> ContainerDevices:
    named = {"share": GPU_SHARE, "gpu": GPU}
    return ContainerDevices("ns", pod, container, tuple((named[key], each) for key, each in devices.items()))  # fmt: skip


def gpus_of(choice: Choice) -> set[int]:
    uuids = {each.partition("::")[0] for each in choice.device_ids}
    return {gpu.index for gpu in TOPOLOGY.gpus if gpu.uuid in uuids}


# --- the rule ----------------------------------------------------------------


def by_the_rule(
    free: dict[int, set[int]],
    must: list[tuple[int, int]],
    size: int,
    *,
    mine: list[Any],
    others: dict[int, int],
    levels: dict[int, int],
) -> set[int]:
    """The GPUs that may be chosen; empty: none has enough left. mine: the plan's GPU, its least enforcement, and the
    GPUs of the pod's other containers; empty: no plan. others: hundredths planned for others."""
    missing = size - len(must)
    planned, least, siblings = mine or (None, 0, [])
    favoured = [gpu for gpu, _ in must[:1]]  # a share must fit on one GPU
    favoured = favoured or ([] if planned is None else [planned, *siblings])
    for reserve in (others, {}):
        left = {
            gpu: len(found) - reserve.get(gpu, 0)
            for gpu, found in free.items()
            if levels[gpu] >= least
        }
        for gpu in favoured:
            if gpu in left and left[gpu] >= missing:
                return {gpu}
        if not must:
            fits = {gpu for gpu, each in left.items() if each >= missing}
            opened = {gpu for gpu in fits if left[gpu] < 100}
            if opened:
                fullest = min(left[gpu] for gpu in opened)
                return {gpu for gpu in opened if left[gpu] == fullest}
            if fits:
                return fits
    return set()  # fmt: skip


def test_random_requests() -> None:
    dice = random.Random(2)
    kinds = dict.fromkeys(("must", "planned", "sibling", "other", "none"), 0)
    for _ in range(700):
        free = {gpu: set(dice.sample(range(100), dice.choice((0, 5, 30, 60, 100)))) for gpu in range(COUNT)}  # fmt: skip
        levels = {gpu: dice.choice((0, 0, RANKS["watch"])) for gpu in range(COUNT)}
        names = {rank: name for name, rank in RANKS.items() if name in ("none", "watch")}
        shown = tuple(replace(gpu, enforcement=names[levels[gpu.index]]) for gpu in TOPOLOGY.gpus)
        topology = replace(TOPOLOGY, gpus=shown)
        source = dice.randrange(COUNT)
        must = [(source, n) for n in sorted(free[source])[: dice.choice((0, 0, 0, 3))]]
        size = len(must) + dice.choice((0, 1, 10, 30, 60, 100)) or 1
        rows, plans = [row("p"), row("q")], list[Grant]()
        mine, others = list[Any](), dict[int, int]()
        if dice.random() < 0.7:
            target, least = dice.randrange(COUNT), dice.choice(("none", "watch"))
            plans.append(plan("p", target, size, least=least))
            siblings = []
            if dice.random() < 0.4:
                sibling = dice.randrange(COUNT)
                rows.append(row("p", "c1", share=ids(sibling, [101])))
                siblings.append(sibling)
            mine = [target, RANKS[least], siblings]
        for other in range(dice.choice((0, 0, 1, 2))):
            gpu, amount = dice.randrange(COUNT), dice.choice((10, 40))
            whole = dice.random() < 0.3
            if whole:
                plans.append(Grant("ns", f"w{other}", "c0", GPU, (machines.uuid(gpu),)))
            else:
                plans.append(plan(f"o{other}", gpu, amount))
            others[gpu] = 100 if whole else others.get(gpu, 0) + amount
        served = plan("served", dice.randrange(COUNT), 90)
        plans.append(served)
        rows.append(row("served", share=("x::1",)))
        available = tuple(each for gpu in free for each in ids(gpu, free[gpu]))
        required = tuple(share_id(machines.uuid(gpu), n) for gpu, n in must)
        request = DeviceRequest(available, required, size, tuple(rows))
        choice = preferred(request, topology, tuple(plans))
        left = {gpu: found - {n for g, n in must if g == gpu} for gpu, found in free.items()}
        allowed = by_the_rule(left, must, size, mine=mine, others=others, levels=levels)
        if not allowed:
            assert (choice.device_ids, choice.why) == ((), f"no GPU has {size} % left")
            kinds["none"] += 1
            continue
        assert len(choice.device_ids) == len(set(choice.device_ids)) == size
        assert set(required) <= set(choice.device_ids) <= set(available)
        new = set(choice.device_ids) - set(required)
        chosen = {gpu.index for gpu in TOPOLOGY.gpus for each in new if each.startswith(gpu.uuid)}
        assert chosen <= allowed, (chosen, allowed)
        assert len(gpus_of(choice)) == 1
        assert choice.key == (("ns", "p", "c0") if mine else None)
        if mine:
            as_planned = allowed == {mine[0]}
            assert ("as planned" in choice.why) == as_planned
            assert "ns/p, container c0" in choice.why
        kind = "must" if must else "planned" if mine and mine[0] in allowed else "sibling" if mine and set(mine[2]) & allowed else "other"  # fmt: skip
        kinds[kind] += 1
    assert min(kinds.values()) > 8, kinds


def test_pods_that_it_may_be_for() -> None:
    """Without a list of the kubelet nobody is known. Of two, it is not certain which one is meant."""
    available = tuple(each for gpu in range(COUNT) for each in ids(gpu, range(100)))
    plans = (plan("a", 1, 10), plan("b", 2, 10))
    for listed, asked, why in (
        (None, set(), "one of 2 pods with a plan"),
        ((), set(), "one of 2 pods with a plan"),
        ((row("a"), row("b")), {"a", "b"}, "one of 2 pods with a plan"),
        ((row("a"),), {"a"}, "ns/a, container c0: as planned"),
        ((row("a", share=ids(1, [1])), row("b")), {"b"}, "ns/b, container c0: as planned"),
    ):
        choice = preferred(DeviceRequest(available, (), 10, listed), TOPOLOGY, plans)
        assert {key[1] for key in choice.asked} == asked
        assert choice.why == why
    alone = preferred(DeviceRequest(available, (), 10, ()), TOPOLOGY, ())
    assert alone.why == "a pod without a plan"


# --- the resource ------------------------------------------------------------


class Terms:
    def __init__(self) -> None:
        self.meant: list[Collection[ContainerKey]] = []
        self.started: list[Any] = []

    def response(self, ids: tuple[str, ...], state: Any, meant: Collection[ContainerKey]) -> Any:
        assert list(ids) == sorted(set(ids))
        self.meant.append(meant)
        return {"TERMS": "yes"}, (("/a", "/b", True),)

    def pre_start(self, ids: tuple[str, ...], holder: ContainerKey | None) -> None:
        self.started.append((ids, holder))


class Box:
    def __init__(self) -> None:
        self.node, self.terms = AgentNode("n"), Terms()
        self.node.set_topology(TOPOLOGY)
        self.node.set_grants(())
        injection = Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)
        self.shares = GpuShareResource(lambda _: (), injection, self.terms)

    def healthy(self) -> dict[int, int]:
        """Healthy shares by GPU, of those that are listed."""
        found: dict[int, int] = {}
        for device in self.shares.devices(self.node.state):
            gpu = next(g for g in TOPOLOGY.gpus if device.id.startswith(g.uuid))
            assert device.numa == gpu.numa
            found[gpu.index] = found.get(gpu.index, 0) + device.healthy
        return found

    def ask(self, *pods: str, size: int = 2, before: Collection[str] = ()) -> Choice:
        available = tuple(each for gpu in range(COUNT) for each in ids(gpu, range(100)))
        asked = frozenset(("ns", pod, "c0") for pod in before)
        listed = tuple(map(row, pods))
        return self.shares.preferred(DeviceRequest(available, (), size, listed, asked), self.node.state)  # fmt: skip

    def allocate(self, given: Collection[str]) -> Any:
        return self.shares.container_response([*given], self.node.state, ())


def test_which_shares_are_healthy() -> None:
    box = Box()
    assert box.healthy() == dict.fromkeys(range(COUNT), 100)
    box.node.record_allocation(GPU, (machines.uuid(1),), 0.0)
    assert box.healthy() == {0: 100, 1: 0, 2: 100, 3: 100}, "it is in use as a whole"
    box.node.record_allocation(GPU_SHARE, ids(2, [5]), 0.0)
    ill = tuple(replace(gpu, healthy=gpu.index != 0, shares=100 if gpu.index != 2 else 0) for gpu in TOPOLOGY.gpus)  # fmt: skip
    box.node.set_topology(replace(TOPOLOGY, gpus=ill))
    assert box.healthy() == {0: 0, 1: 0, 2: 0, 3: 100}, "shares in use are listed until they end"
    closed = tuple(replace(gpu, shares=0) for gpu in TOPOLOGY.gpus)
    box.node.set_topology(replace(TOPOLOGY, gpus=closed))
    assert box.healthy() == {2: 0}


def test_gpus_in_use_as_a_whole_are_not_preferred() -> None:
    box = Box()
    for gpu in (0, 1, 2):
        box.node.record_allocation(GPU, (machines.uuid(gpu),), 0.0)
    assert gpus_of(box.ask()) == {3}
    box.node.record_allocation(GPU, (machines.uuid(3),), 0.0)
    assert box.ask().device_ids == ()


@pytest.mark.parametrize(
    ("pods", "before", "meant"),
    [
        (("a",), (), {"a"}),
        (("a", "b"), (), set()),
        (("a", "b"), ("a",), {"b"}),
        (("a", "b"), ("a", "b"), set()),
        ((), (), set()),
    ],
    ids=str,
)
def test_for_whom_the_next_allocate_is(pods: Any, before: Any, meant: set[str]) -> None:
    """It does not name its container, so the preference before it says it, if that was followed."""
    box = Box()
    box.node.set_intents((plan("a", 1, 2), plan("b", 2, 2)), 1)
    choice = box.ask(*pods, before=before)
    box.allocate(choice.device_ids[::-1])
    [found] = box.terms.meant
    if len(pods) == 2 and not before:
        assert {key[1] for key in found} <= {"a", "b"}
    else:
        assert {key[1] for key in found} == meant
    box.allocate(ids(3, [7, 8]))
    assert box.terms.meant[-1] == (), "other shares are for somebody else"


def test_what_a_container_is_told(tmp_path: Path) -> None:
    box = Box()
    given = box.allocate([*ids(1, [4, 2]), *ids(1, [2])])
    assert given.envs["LOCKSTEP_GPU_SHARE"] == "2"
    assert given.envs["TERMS"] == "yes"
    assert given.annotations["lockstep.dev/gpu-share"] == "2"
    assert given.mounts == (("/a", "/b", True),)
    assert box.shares.runtime_ids(ids(1, [4, 2])) == [machines.uuid(1)]
    assert box.shares.describe(ids(1, [4, 2]), box.node.state) == "2 % of GPU 1"
    box.shares.pre_start(ids(1, [2]), ("ns", "a", "c0"))
    assert box.terms.started == [(ids(1, [2]), ("ns", "a", "c0"))]
