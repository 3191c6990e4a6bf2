"""Pods with init containers and sidecars, against a model of the kubelet that makes every choice
that a real one could make at random."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from random import Random
from typing import cast

import grpc
import pytest

from agent.kubelet.plugin import DevicePlugin
from agent.kubelet.pod_resources import ObservedGrants
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.cdi import Injection
from agent.resources.device_resource import ContainerDevices
from agent.resources.whole_gpu import WholeGpuResource
from protos.names import GPU, REST_OF_POD
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant
from tests.agent.resources.kubelet_reuse import (
    Container,
    Devices,
    Kubelet,
    can_be_exact,
    effective,
    every_choice,
)
from tests.fakes import machines

TOPOLOGY = survey(machines.machine(bridged=True))
ALL = frozenset(gpu.uuid for gpu in TOPOLOGY.gpus)


class Context:
    """A call of a kubelet that sets no timeout."""

    def time_remaining(self) -> float:
        return inf


CONTEXT = cast("grpc.ServicerContext", Context())
Plan = dict[str, Devices]


class Listing:
    """pod-resources, in the place of ObservedGrants."""

    rows: tuple[ContainerDevices, ...] = ()

    def list_now(
        self, timeout_s: float, offered: object = (), rejected_s: float = 0.0
    ) -> tuple[ContainerDevices, ...]:
        return self.rows

    def stale(self) -> None: ...


class Node:
    """The agent's plugin for whole GPUs, beside the model of a kubelet."""

    def __init__(self, plans: Sequence[Grant], waiting: Sequence[ContainerDevices] = ()) -> None:
        self.state = AgentNode("node")
        self.state.set_topology(TOPOLOGY)
        self.state.set_intents(tuple(plans), 1)
        self.listing, self.waiting = Listing(), tuple(waiting)
        resource = WholeGpuResource(
            lambda _: (), Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)
        )
        self.plugin = DevicePlugin(resource, self.state, cast("ObservedGrants", self.listing))

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
    ) -> Plan:
        """What each container of the pod holds in the end."""
        kubelet = Kubelet(ALL, self.prefer, self.allocate, pick)
        kept: Plan = kubelet.kept

        def listed() -> tuple[ContainerDevices, ...]:
            rows = (
                ContainerDevices(
                    "team",
                    name,
                    each.name,
                    ((GPU, tuple(sorted(kept[each.name]))),) if each.name in kept else (),
                )
                for each in pod
                if not each.ends
            )
            return (*self.waiting, *rows)

        listing = self.listing
        kubelet.prefer = lambda *asked: _with_rows(listing, listed(), lambda: self.prefer(*asked))
        kubelet.admit(pod)
        return kept


def _with_rows(
    listing: Listing, rows: tuple[ContainerDevices, ...], then: Callable[[], Devices]
) -> Devices:
    listing.rows = rows
    return then()


def shapes() -> Iterator[tuple[Container, ...]]:
    """Up to two init containers, each of which ends or stays, and up to two others."""
    kinds = [(size, ends) for size in (1, 2, 3, 4) for ends in (True, False)]
    for count, others in product((0, 1, 2), (1, 2)):
        for inits in product(kinds, repeat=count):
            for sizes in product((1, 2, 3), repeat=others):
                made = [Container(f"i{n}", size, ends) for n, (size, ends) in enumerate(inits)]
                yield (*made, *(Container(f"c{n}", size) for n, size in enumerate(sizes)))


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
    pod: Sequence[Container]
    plans: Sequence[Grant]
    kept: Plan = field(default_factory=dict)  # at the end of the last game

    def __call__(self, pick: Callable[[Sequence[Devices]], Devices]) -> None:
        self.kept = Node(self.plans).admit("a", self.pod, pick)


def grants(name: str, plan: Plan, rest: Devices = frozenset()) -> list[Grant]:
    whole = {**plan, **({REST_OF_POD: rest} if rest else {})}
    return [Grant("team", name, each, GPU, tuple(sorted(ids))) for each, ids in whole.items()]


def number(devices: Devices) -> set[int]:
    return {int(each[4:12]) for each in devices}


def test_every_pod_gets_its_plan_as_far_as_any_plugin_could() -> None:
    random, exact, swapped = Random(1), 0, 0
    for pod in shapes():
        if effective(pod) > len(ALL):
            continue
        plan, rest = planned(pod, random)
        theirs = sorted(ALL - rest - frozenset().union(*plan.values()))
        others = {"c0": frozenset(theirs)} if theirs else {}
        could = can_be_exact(pod, plan, ALL)
        game = Game(pod, [*grants("a", plan, rest), *grants("other", others)])
        for _ in every_choice(game):
            got = game.kept
            mine = rest.union(*plan.values())
            assert frozenset().union(*got.values()) <= mine, (pod, plan, got)
            if not rest:
                assert frozenset().union(*got.values()) == mine
            if could:
                assert got == plan, (pod, plan, got)
        exact += could
        swapped += not could
    assert exact > 100
    assert swapped > 100


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


def test_an_earlier_pod_that_was_not_admitted_does_not_confuse() -> None:
    """It stays listed with its plan. The reused device tells that the pod is still the same."""
    stale = ContainerDevices("team", "failed", "c0")
    plans = [
        *grants("failed", {"c0": frozenset(map(machines.uuid, (1, 2)))}),
        *grants("a", {"c0": frozenset(map(machines.uuid, (3, 5)))}),
    ]
    node = Node(plans, [stale])
    node.listing.rows = (stale,)
    node.prefer(ALL, frozenset(), 2)  # for the pod that failed then
    pod = (Container("i", 1, True), Container("c0", 2))
    got = node.admit("a", pod, lambda options: options[0])
    assert number(got["c0"]) == {3, 5}
