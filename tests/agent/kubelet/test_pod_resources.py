"""The client of pod-resources at a real socket, and when the grants are listed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from agent.kubelet.pod_resources import ObservedGrants, PodResourcesClient
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.node import AgentNode
from agent.resources.device_resource import ContainerDevices
from protos.names import GPU, GPU_SHARE
from protos.stubs import podresources_pb2 as pb
from protos.stubs import podresources_pb2_grpc as rpc
from tests.fakes.eventually import eventually


class Lister(rpc.PodResourcesListerServicer):
    def List(  # noqa: N802  # gRPC's name
        self, request: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        answer = pb.ListPodResourcesResponse()
        pod = answer.pod_resources.add(name="a", namespace="team")
        first, second = pod.containers.add(name="c0"), pod.containers.add(name="c1")
        for resource, ids in (
            (GPU, ["GPU-3"]),
            (GPU_SHARE, []),
            ("example.com/fpga", ["f0"]),
            (GPU, ["GPU-2", "GPU-1"]),  # of another NUMA node
        ):
            first.devices.add(resource_name=resource, device_ids=ids)
        second.devices.add(resource_name="example.com/fpga", device_ids=["f1"])
        return answer


@contextmanager
def serving(socket: Path) -> Iterator[None]:
    server = grpc.server(ThreadPoolExecutor(1))
    rpc.add_PodResourcesListerServicer_to_server(Lister(), server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()


@pytest.fixture
def client() -> Iterator[PodResourcesClient]:
    with TemporaryDirectory(prefix="ls-") as name:  # a unix socket's path must be short
        made = PodResourcesClient(Path(name) / "kubelet.sock")
        yield made
        made.close()


LISTED = (
    ContainerDevices("team", "a", "c0", ((GPU, ("GPU-1", "GPU-2", "GPU-3")),)),
    ContainerDevices("team", "a", "c1"),
)


def test_the_entries_of_all_numa_nodes_count_and_those_of_other_plugins_do_not(
    client: PodResourcesClient,
) -> None:
    with serving(client.socket):
        assert client.list(20) == LISTED
        assert client.list(20) == LISTED


def test_a_restarted_kubelet_is_listed_again(client: PodResourcesClient) -> None:
    for _ in range(2):
        with serving(client.socket):
            assert client.list(20) == LISTED
        client.socket.unlink(missing_ok=True)
        with pytest.raises(OSError, match=r"does not exist; is the directory mounted"):
            client.list(1)


def test_a_socket_that_nobody_serves_does_not_answer(client: PodResourcesClient) -> None:
    client.socket.touch()
    with pytest.raises(OSError, match=r"kubelet.sock does not answer: \w"):
        client.list(1)


class Counted(PodResourcesClient):
    """answers: whether it does."""

    calls, answers = 0, True

    def list(self, time_s: float) -> tuple[ContainerDevices, ...]:
        self.calls += 1
        if not self.answers:
            raise OSError("no answer")
        return ()


@contextmanager
def listing(directory: Path, every_s: float, *, answers: bool = True) -> Iterator[ObservedGrants]:
    client = Counted(directory / "kubelet.sock")
    client.answers = answers
    unlisted = UnlistedPods(directory, directory / "cgroup")
    grants = ObservedGrants(AgentNode("a"), client, unlisted)
    stop = threading.Event()
    thread = threading.Thread(target=grants.run, args=(every_s, stop))
    thread.start()
    try:
        eventually(lambda: client.calls > 0, 60)
        yield grants
    finally:
        stop.set()
        grants.stop()
        thread.join(60)
    assert not thread.is_alive()


def calls(grants: ObservedGrants) -> int:
    client = grants._client  # the test's own
    assert isinstance(client, Counted)
    return client.calls


def _called(grants: ObservedGrants, times: int) -> bool:
    return calls(grants) >= times


def test_an_allocate_is_listed_at_once_and_else_nothing_is(tmp_path: Path) -> None:
    with listing(tmp_path, every_s=600) as grants:
        for number in range(2, 5):
            grants.stale()
            eventually(partial(_called, grants, number), 60)
        assert not threading.Event().wait(0.7)
        assert calls(grants) == 4


def test_without_an_answer_it_is_listed_again_soon(tmp_path: Path) -> None:
    with listing(tmp_path, every_s=600, answers=False) as grants:
        eventually(partial(_called, grants, 3), 60)


def test_the_end_of_a_pod_is_noticed_without_a_word_of_the_kubelet(tmp_path: Path) -> None:
    with listing(tmp_path, every_s=0.01) as grants:
        eventually(partial(_called, grants, 12), 60)


def test_the_end_of_a_pod_is_noticed_after_an_allocate_too(tmp_path: Path) -> None:
    with listing(tmp_path, every_s=0.01) as grants:
        grants.stale()
        eventually(partial(_called, grants, calls(grants) + 6), 60)
