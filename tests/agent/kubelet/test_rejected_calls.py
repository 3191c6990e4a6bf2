"""pod-resources beside other clients: what the kubelet rejects is asked again, and no devices are chosen without
knowing the pod meanwhile."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import NoReturn, cast

import grpc
import pytest

from agent.kubelet.plugin import DevicePlugin
from agent.kubelet.pod_resources import ObservedGrants, PodResourcesClient, Rejected
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.cdi import Injection
from agent.resources.whole_gpu import WholeGpuResource
from protos.stubs import deviceplugin_pb2 as pb
from tests.fakes import machines
from tests.fakes.busy_pod_resources import REJECTED, Answer, Lister, serving
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import intent

TOPOLOGY = survey(machines.machine(bridged=True))
PASSING = [
    code
    for code in grpc.StatusCode
    if code
    not in (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED)
]
TOO_LARGE = grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)"


class Aborted(Exception):
    pass


class Context:
    """A call of a kubelet that sets this timeout."""

    def __init__(self, left_s: float) -> None:
        self._left_s = left_s

    def time_remaining(self) -> float:
        return self._left_s

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Aborted(f"{code.name}: {details}")


class Node:
    def __init__(self, socket: Path) -> None:
        self.node = AgentNode("node")
        self.node.set_topology(TOPOLOGY)
        self.client = PodResourcesClient(socket)
        unlisted = UnlistedPods(socket.parent, socket.parent / "cgroup", socket.parent / "proc")
        self.grants = ObservedGrants(self.node, self.client, unlisted)
        injection = Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)
        self.plugin = DevicePlugin(
            WholeGpuResource(lambda _: (), injection), self.node, self.grants
        )
        self._version = count(1)

    def plan(self, **pods: tuple[int, ...]) -> None:
        plans = tuple(intent(name, gpus) for name, gpus in pods.items())
        self.node.set_intents(plans, next(self._version))

    def prefer(self, size: int, left_s: float = inf) -> set[int]:
        request = pb.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=[gpu.uuid for gpu in TOPOLOGY.gpus], allocation_size=size
        )
        context = cast("grpc.ServicerContext", Context(left_s))
        answer = self.plugin.GetPreferredAllocation(request, context)
        return {int(each[4:12]) for each in answer.container_responses[0].deviceIDs}

    def allocates(self, *gpus: int) -> None:
        request = pb.AllocateRequest()
        request.container_requests.add(devices_ids=map(machines.uuid, gpus))
        self.plugin.Allocate(request, cast("grpc.ServicerContext", Context(2.5)))

    def starts(self, left_s: float) -> None:
        request = pb.PreStartContainerRequest(devices_ids=[machines.uuid(0)])
        self.plugin.PreStartContainer(request, cast("grpc.ServicerContext", Context(left_s)))


@contextmanager
def node(lister: Lister) -> Iterator[Node]:
    with serving(lister) as socket:
        made = Node(socket)
        try:
            yield made
        finally:
            made.client.close()


def listing(*names: str) -> Answer:
    answer = Answer()
    for name in names:
        answer.pod_resources.add(name=name, namespace="team").containers.add(name="c0")
    return answer


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
def test_a_call_is_repeated_after_an_error_that_may_pass(code: grpc.StatusCode) -> None:
    lister = Lister(lambda: listing("a"))
    lister.errors = [(code, "why")] * 3
    with node(lister) as made:
        assert [row.pod for row in made.client.list(60)] == ["a"]
    assert lister.calls == 4


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
def test_an_error_that_does_not_pass_is_told_in_the_end(code: grpc.StatusCode) -> None:
    lister = Lister()
    lister.errors = [(code, "why")] * 10_000
    with node(lister) as made, pytest.raises(ConnectionError, match="why") as caught:
        made.client.list(0.5)
    assert isinstance(caught.value, Rejected) == (code == grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert lister.calls > 1


@pytest.mark.parametrize(
    "error",
    [
        TOO_LARGE,
        *((code, "why") for code in grpc.StatusCode if code not in (*PASSING, grpc.StatusCode.OK)),
    ],
    ids=lambda error: error[0].name,
)
def test_a_call_is_not_repeated_where_that_cannot_help(error: tuple[grpc.StatusCode, str]) -> None:
    lister = Lister()
    lister.errors = [error] * 2
    with node(lister) as made, pytest.raises(OSError, match=r"does not answer: \w") as caught:
        made.client.list(60)
    assert not isinstance(caught.value, ConnectionError)
    assert lister.calls == 1


def test_rejected_calls_have_more_time_than_failed_ones() -> None:
    lister = Lister(lambda: listing("a"))
    with node(lister) as made:
        lister.errors = [REJECTED] * 250  # for more than ANSWER_S
        assert made.client.list(60)
        lister.calls, lister.errors = 0, [(grpc.StatusCode.UNAVAILABLE, "why")] * 10_000
        with pytest.raises(ConnectionError):
            made.client.list(600)
        assert 2 < lister.calls < 60


def test_a_rejected_call_keeps_the_connection() -> None:
    lister = Lister()
    lister.errors = [REJECTED] * 20
    with node(lister) as made:
        made.client.list(60)
        channel = made.client._channel  # the test's own
        lister.errors = [REJECTED] * 20
        made.client.list(60)
        assert made.client._channel is channel


def test_every_plan_is_kept_however_often_calls_are_rejected() -> None:
    """Two pods have plans at any time; pod-resources alone tells which one asks."""
    random, now = Random(1), [""]
    lister = Lister(lambda: listing(*now))
    with node(lister) as made:
        for number in range(37):
            mine, others = ((3, 5), (0, 6)) if number % 2 else ((0, 6), (3, 5))
            made.plan(**{f"p{number}": mine, f"next-p{number}": others})
            now[:] = [f"p{number}"]
            lister.errors = [REJECTED] * random.choice((0, 1, 5, 40))
            assert made.prefer(2) == set(mine), number


def test_no_devices_are_chosen_for_an_unknown_pod_while_calls_are_rejected() -> None:
    lister = Lister(lambda: listing("a"))
    lister.errors = [REJECTED] * 100_000
    with node(lister) as made:
        made.plan(a=(3, 5), b=(0, 6))
        with pytest.raises(
            Aborted, match=r"FAILED_PRECONDITION: cannot tell which pod asks: .*rejected"
        ):
            made.prefer(2, left_s=2.5)
        assert 5 < lister.calls < 150  # in half a second
        with pytest.raises(
            Aborted, match=r"FAILED_PRECONDITION: .*answers too many other calls: .*rejected"
        ):
            made.starts(left_s=2.5)
        lister.errors = []
        assert made.prefer(2) == {3, 5}
        lister.errors = [REJECTED] * 100_000
        made.node.set_grants((intent("ended", (3, 5)),))
        with pytest.raises(Aborted, match=r"INVALID_ARGUMENT: .* answers too many other calls"):
            made.allocates(3, 5)


def test_without_plans_no_pod_needs_to_be_known() -> None:
    lister = Lister()
    lister.errors = [REJECTED] * 100_000
    with node(lister) as made:
        assert len(made.prefer(2, left_s=2.5)) == 2


def test_one_call_serves_all_that_wait_for_it() -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> Answer:
        begun.set()
        assert go.wait(60)
        return listing("a")

    lister = Lister(slow)
    with node(lister) as made, ThreadPoolExecutor(20) as threads:
        first = threads.submit(made.grants.list_now, 60)
        assert begun.wait(60)
        waiting = [threads.submit(made.grants.list_now, 60) for _ in range(19)]
        eventually(lambda: all(each.running() for each in waiting), 60)
        go.set()
        rows = [each.result(60) for each in (first, *waiting)]
    assert [[row.pod for row in each or ()] for each in rows] == [["a"]] * 20
    assert lister.answered == 2  # the first one began before the others asked


def test_a_call_that_waits_too_long_for_another_one_is_rejected() -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> Answer:
        begun.set()
        assert go.wait(60)
        return listing("a")

    with node(Lister(slow)) as made, ThreadPoolExecutor(1) as threads:
        first = threads.submit(made.grants.list_now, 60)
        assert begun.wait(60)
        with pytest.raises(Rejected, match="has not answered the call before"):
            made.grants.list_now(0.1)
        assert not made.grants.refresh(0.1)
        go.set()
        assert first.result(60)


def test_an_allocate_is_listed_once_whoever_asks() -> None:
    lister = Lister(lambda: listing("a"))
    with node(lister) as made:
        made.plan(a=(3, 5))
        assert made.prefer(2) == {3, 5}
        made.allocates(3, 5)
        assert made.prefer(1)  # for the next container
        assert lister.answered == 2
        stop = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            ended = threads.submit(made.grants.run, 600.0, stop)
            eventually(lambda: lister.answered == 3, 60)  # at its start
            made.allocates(3, 5)
            eventually(lambda: lister.answered == 4, 60)
            stop.set()
            made.grants.stop()
            ended.result(60)
        assert lister.answered == 4
