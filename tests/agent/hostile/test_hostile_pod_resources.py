"""A kubelet whose pod-resources answers have hostile fields, over its real socket: the agent goes on, the scheduler
accepts its reports, and the other pods' devices are known."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from agent.kubelet.pod_resources import ObservedGrants, PodResourcesClient
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.survey import survey
from agent.node import AgentNode
from protos.names import GPU, GPU_SHARE
from protos.stubs import podresources_pb2 as pb
from tests.agent.hostile.reported import accepted, report
from tests.central.poison.by_field.message_walk import changed, kinds_below, messages
from tests.fakes import machines

LIST_S = 20.0  # of processor time
METHOD = "v1.PodResourcesLister"


def rich() -> pb.ListPodResourcesResponse:
    answer = pb.ListPodResourcesResponse()
    for name, resource, ids in (
        ("odd", GPU, [machines.uuid(0)]),
        ("odd-share", GPU_SHARE, [f"{machines.uuid(1)}::0"]),
    ):
        container = answer.pod_resources.add(name=name, namespace="team").containers.add(name="c0")
        container.devices.add(resource_name=resource, device_ids=ids)
        container.cpu_ids.append(1)
    return answer


def good() -> bytes:
    """Another pod, as the last of the list."""
    answer = pb.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="good", namespace="team").containers.add(name="c0")
    container.devices.add(resource_name=GPU, device_ids=[machines.uuid(7)])
    return answer.SerializeToString()


class Kubelet:
    """Answers with these bytes."""

    def __init__(self, socket: Path) -> None:
        self.answer = b""
        handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: self.answer)
        self._server = grpc.server(ThreadPoolExecutor(1))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(METHOD, {"List": handler}),)
        )
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="ls-") as name:  # a unix socket's path must be short
        yield Path(name)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Kubelet]:
    made = Kubelet(folder / "s")
    yield made
    made.stop()


@pytest.fixture
def observed(folder: Path, kubelet: Kubelet) -> Iterator[tuple[AgentNode, ObservedGrants]]:
    node, client = AgentNode("n"), PodResourcesClient(folder / "s")
    node.set_topology(survey(machines.machine()))
    yield node, ObservedGrants(node, client, UnlistedPods(folder, folder / "cgroup"))
    client.close()


def test_every_field_of_a_list(
    kubelet: Kubelet, observed: tuple[AgentNode, ObservedGrants]
) -> None:
    node, grants = observed
    seen = unread = 0
    for one in changed(rich):
        kubelet.answer = one.data + good()  # the list goes on
        began = time.process_time()
        listed = grants.list_now(20)
        assert time.process_time() - began < LIST_S, one.where
        unread += listed is None
        accepted(node, one.where)
        if listed is not None:
            assert "good" in {each.pod for each in report(node).grants}, one.where
        seen += 1
    kubelet.answer = rich().SerializeToString() + good()
    assert grants.list_now(20) is not None
    assert [each.pod for each in report(node).grants] == ["good", "odd", "odd-share"]
    assert seen > 100
    assert unread <= 10, "an answer is dropped whole only where it is no message"


def test_the_rich_list_has_every_kind_of_message() -> None:
    named = {part.DESCRIPTOR.name for part in messages(rich())}
    assert named == kinds_below(pb.ListPodResourcesResponse.DESCRIPTOR)


@pytest.mark.parametrize(
    "answer",
    [b"\xff" * 1000, b"", good() * 100_000, b"\x0a\xff\xff\xff\xff\x07"],
    ids=["no message", "nothing", "one pod 100,000 times", "cut off"],
)
def test_an_answer_as_a_whole(
    answer: bytes, kubelet: Kubelet, observed: tuple[AgentNode, ObservedGrants]
) -> None:
    node, grants = observed
    kubelet.answer = answer
    grants.list_now(60)
    accepted(node, "the whole answer")


def test_more_shares_than_a_gpu_has(
    kubelet: Kubelet, observed: tuple[AgentNode, ObservedGrants]
) -> None:
    node, grants = observed
    answer = rich()
    ids = [f"{machines.uuid(1)}::{n}" for n in range(20_000)]
    answer.pod_resources[1].containers[0].devices[0].device_ids.extend(ids)
    kubelet.answer = answer.SerializeToString() + good()
    grants.list_now(20)
    accepted(node, "20,000 shares")
    assert {each.pod for each in report(node).grants} == {"good", "odd"}


def test_grants_that_cannot_be_right_are_named(
    kubelet: Kubelet, observed: tuple[AgentNode, ObservedGrants], caplog: pytest.LogCaptureFixture
) -> None:
    node, grants = observed
    answer = rich()
    answer.pod_resources[0].name = "a\x1b[31m"
    kubelet.answer = answer.SerializeToString() + good()
    grants.list_now(20)
    assert len(report(node).grants) == 2
    told = (
        "1 grants of the kubelet's list are not reported: pod team/a\\x1b[31m: its pod has a name"
    )
    assert told in caplog.text
