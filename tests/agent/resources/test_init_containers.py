"""Pods with init containers and sidecars, against a model of the kubelet that makes every choice
that a real one could make at random."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import inf
from pathlib import Path
from random import Random
from typing import cast

import grpc
import pytest

from agent.kubelet import checkpoint
from agent.kubelet.plugin import DevicePlugin
from agent.kubelet.pod_resources import ObservedGrants
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.cdi import Injection
from agent.resources.device_resource import ContainerDevices
from agent.resources.whole_gpu import WholeGpuResource
from protos.names import GPU, REST_OF_POD
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant
from tests.agent.kubelet.listed_devices import PodResources
from tests.agent.resources.kubelet_reuse import (
    Container,
    Devices,
    Kubelet,
    can_be_exact,
    effective,
    every_choice,
)
from tests.effort import seeds, some
from tests.fakes import machines

TOPOLOGY = survey(machines.machine(bridged=True))
ALL = frozenset(gpu.uuid for gpu in TOPOLOGY.gpus)


class Context:
    """A call of a kubelet that sets no timeout."""

    def time_remaining(self) -> float:
        return inf


CONTEXT = cast("grpc.ServicerContext", Context())
Plan = dict[str, Devices]


class Node:
    """The agent's plugin for whole GPUs, beside the model of a kubelet."""

    def __init__(
        self, directory: Path, plans: Sequence[Grant], waiting: Sequence[ContainerDevices] = ()
    ) -> None:
        self._checkpoint, self.waiting = directory / checkpoint.NAME, tuple(waiting)
        self._checkpoint.unlink(missing_ok=True)
        self.state = AgentNode("node")
        self.state.set_topology(TOPOLOGY)
        self.state.set_intents(tuple(plans), 1)
        self.client = PodResources(directory / "pod-resources.sock")
        unlisted = UnlistedPods(directory, directory / "cgroup", directory / "proc")
        self.grants = ObservedGrants(self.state, self.client, unlisted)
        resource = WholeGpuResource(
            lambda _: (), Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)
        )
        self.plugin = DevicePlugin(resource, self.state, self.grants)

    def prefer(self, available: Devices, must: Devices, size: int) -> Devices:
        request = pb.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=sorted(available),
            must_include_deviceIDs=sorted(must),
            allocation_size=size,
        )
        (answer,) = self.plugin.GetPreferredAllocation(request, CONTEXT).container_responses
        return frozenset(answer.deviceIDs)

    def allocate(self, devices: Devices) -> None:
        request = pb.AllocateRequest()
        request.container_requests.add(devices_ids=sorted(devices))
        self.plugin.Allocate(request, CONTEXT)

    def admit(
        self, name: str, pod: Sequence[Container], pick: Callable[[Sequence[Devices]], Devices]
    ) -> Kubelet:
        kubelet = Kubelet(ALL, self.prefer, self.allocate, pick)
        kubelet.prefer = lambda *asked: self._prefer(name, pod, kubelet, asked)
        kubelet.admit(pod)
        self.records(name, pod, kubelet)
        return kubelet

    def _prefer(
        self,
        name: str,
        pod: Sequence[Container],
        kubelet: Kubelet,
        asked: tuple[Devices, Devices, int],
    ) -> Devices:
        self.records(name, pod, kubelet)
        return self.prefer(*asked)

    def records(self, name: str, pod: Sequence[Container], kubelet: Kubelet) -> None:
        """pod-resources and the checkpoint have what the kubelet has given so far."""
        rows = (
            ContainerDevices(
                "team",
                name,
                each.name,
                ((GPU, tuple(sorted(kubelet.kept[each.name]))),)
                if each.name in kubelet.kept
                else (),
            )
            for each in pod
            if not each.ends
        )
        self.client.rows = (*self.waiting, *rows)
        made = [
            {
                "PodUID": f"uid-{name}",
                "ContainerName": container,
                "ResourceName": GPU,
                "DeviceIDs": {"-1": sorted(ids)},
            }
            for container, ids in kubelet.held.items()
        ]
        self._checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": made}, "Checksum": 0}))


def shapes() -> Iterator[tuple[Container, ...]]:
    """Up to two init containers, each of which ends or stays, and up to two others."""
    kinds = [(size, ends) for size in (1, 2, 3, 4) for ends in (True, False)]
    for count, others in product((0, 1, 2), (1, 2)):
        for inits in product(kinds, repeat=count):
            for sizes in product((1, 2, 3), repeat=others):
                made = [Container(f"i{n}", size, ends) for n, (size, ends) in enumerate(inits)]
                yield (*made, *(Container(f"c{n}", size) for n, size in enumerate(sizes)))


def any_shapes(random: Random, count: int) -> Iterator[tuple[Container, ...]]:
    """Up to three init containers, and up to two others; any of them may have no GPU."""
    while count:
        inits = [
            Container(f"i{number}", random.choice((0, 1, 1, 2, 3, 4)), random.random() < 0.6)
            for number in range(random.choice((1, 1, 2, 3)))
        ]
        sizes = random.choice(((0,), (0,), (1,), (2,), (0, 2), (2, 1)))
        pod = (*inits, *(Container(f"c{n}", size) for n, size in enumerate(sizes)))
        if 0 < effective(pod) <= len(ALL):
            count -= 1
            yield pod


def planned(pod: Sequence[Container], random: Random) -> tuple[Plan, Devices]:
    """Any disjoint sets, and what only init containers use."""
    left = random.sample(sorted(ALL), len(ALL))
    plan = {}
    for each in pod:
        if not each.ends:
            plan[each.name] = frozenset(left[: each.size])
            left = left[each.size :]
    rest = effective(pod) - sum(map(len, plan.values()))
    return plan, frozenset(left[:rest])


@dataclass(slots=True)
class Game:
    directory: Path
    pod: Sequence[Container]
    plans: Sequence[Grant]

    def __call__(self, pick: Callable[[Sequence[Devices]], Devices]) -> None:
        self.node = Node(self.directory, self.plans)
        self.kubelet = self.node.admit("a", self.pod, pick)

    node: Node = field(init=False)  # of the last game
    kubelet: Kubelet = field(init=False)


def grants(name: str, plan: Plan, rest: Devices = frozenset()) -> list[Grant]:
    whole = {**plan, **({REST_OF_POD: rest} if rest else {})}
    return [
        Grant("team", name, each, GPU, tuple(sorted(ids)), uid=f"uid-{name}")
        for each, ids in whole.items()
        if ids
    ]


def number(devices: Devices) -> set[int]:
    return {int(each[4:12]) for each in devices}


def play(directory: Path, pod: Sequence[Container], random: Random, most: int) -> bool:
    """Whatever the kubelet picks, all GPUs of the pod's containers are those of its plan, and each container has
    its own if any plugin could reach that, which is returned."""
    plan, rest = planned(pod, random)
    mine = rest.union(*plan.values())
    theirs = sorted(ALL - mine)
    others = {"c0": frozenset(theirs)} if theirs else {}
    could = can_be_exact([each for each in pod if each.size], plan, ALL)
    game = Game(directory, pod, [*grants("a", plan, rest), *grants("other", others)])
    for _ in islice(every_choice(game), most):
        kept = game.kubelet.kept
        assert game.kubelet.allocated == mine, (pod, plan, rest, game.kubelet.held)
        if could:
            assert all(kept.get(each, frozenset()) == ids for each, ids in plan.items()), (
                pod,
                plan,
            )
        assert game.node.grants.refresh(1.0)
        reported = game.node.state.state.reported_grants()
        ids = [each for grant in reported for each in grant.device_ids]
        assert sorted(ids) == sorted(mine)  # each GPU once
        assert {grant.pod for grant in reported} <= {"a", "uid-a"}
    return could


def test_every_pod_gets_its_plan_as_far_as_any_plugin_could(tmp_path: Path) -> None:
    random = Random(1)
    pods = some([pod for pod in shapes() if effective(pod) <= len(ALL)])
    could = [play(tmp_path, pod, random, 10_000) for pod in pods]
    assert could.count(True) > len(pods) // 10
    assert could.count(False) > len(pods) // 10


def test_init_containers_anywhere_get_gpus_of_the_plan(tmp_path: Path) -> None:
    """Behind the last planned container, and in pods without other containers that have GPUs."""
    random, alone = Random(2), 0
    count = len(seeds(250))
    for pod in any_shapes(random, count):
        play(tmp_path, pod, random, 20)
        alone += not any(each.size for each in pod if not each.ends)
    assert alone > count // 10


@pytest.mark.parametrize(
    ("pod", "plan", "expected"),
    [
        ((Container("i", 1, True), Container("c0", 2), Container("c1", 2)), ([3, 5], [6, 0]), True),
        ((Container("i", 2, True), Container("c0", 2)), ([3, 5],), True),
        ((Container("i", 4, True), Container("c0", 2)), ([3, 5],), False),
        (
            (Container("i", 3, True), Container("c0", 2), Container("c1", 2)),
            ([3, 5], [6, 0]),
            False,
        ),
    ],
)
def test_which_pods_can_be_exact(
    pod: Sequence[Container], plan: Sequence[list[int]], expected: bool
) -> None:
    names = [each.name for each in pod if not each.ends]
    made = {name: frozenset(map(machines.uuid, ids)) for name, ids in zip(names, plan, strict=True)}
    assert can_be_exact(pod, made, ALL) == expected


@pytest.mark.parametrize("sizes", [(2,), (1, 2), (2, 1)])
def test_pods_of_init_containers_follow_each_other(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """The first one's plan is complete as soon as the checkpoint has it, so that the second is known."""
    plans = {"a": frozenset(map(machines.uuid, (3, 5))), "b": frozenset(map(machines.uuid, (0, 6)))}
    node = Node(tmp_path, [g for name, ids in plans.items() for g in grants(name, {}, ids)])
    pod = (*(Container(f"i{n}", size, True) for n, size in enumerate(sizes)), Container("c0", 0))
    for name, ids in plans.items():
        got = node.admit(name, pod, lambda options: options[0])
        assert got.allocated == ids
        node.waiting = node.client.rows or ()


def test_an_earlier_pod_that_was_not_admitted_does_not_confuse(tmp_path: Path) -> None:
    """It stays listed with its plan. The reused device tells that the pod is still the same."""
    stale = ContainerDevices("team", "failed", "c0")
    plans = [
        *grants("failed", {"c0": frozenset(map(machines.uuid, (1, 2)))}),
        *grants("a", {"c0": frozenset(map(machines.uuid, (3, 5)))}),
    ]
    node = Node(tmp_path, plans, [stale])
    node.client.rows = (stale,)
    node.prefer(ALL, frozenset(), 2)  # for the pod that failed then
    pod = (Container("i", 1, True), Container("c0", 2))
    got = node.admit("a", pod, lambda options: options[0])
    assert number(got.kept["c0"]) == {3, 5}
