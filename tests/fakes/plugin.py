"""A minimal device plugin that records its calls."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from tests.fakes.hollow_kubelet import HollowKubelet

THING = "example.com/thing"


class Plugin(rpc.DevicePluginServicer):
    resource, endpoint = THING, "thing.sock"

    def __init__(self, count: int = 4, **options: bool) -> None:
        self.count, self.options = count, pb.DevicePluginOptions(**options)
        self.sick: set[int] = set()
        self.changed = threading.Condition()
        self.closed = False
        self.asked: list[tuple[list[str], list[str], int]] = []
        self.started: list[list[str]] = []
        self.refuse = ""
        self._server: grpc.Server | None = None

    def serve(self, kubelet: HollowKubelet, version: str = "v1beta1") -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        rpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{kubelet.plugins}/{self.endpoint}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{kubelet.socket}") as channel:
            request = pb.RegisterRequest(
                version=version, endpoint=self.endpoint, resource_name=self.resource
            )
            rpc.RegistrationStub(channel).Register(request, timeout=5)

    def names(self) -> list[str]:
        return [f"t{i}" for i in range(self.count)]

    def change(self, *sick: int) -> None:
        with self.changed:
            self.sick = set(sick)
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        if self._server:
            self._server.stop(grace=None).wait()

    def GetDevicePluginOptions(
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        return self.options

    def ListAndWatch(
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        while not self.closed:
            yield pb.ListAndWatchResponse(
                devices=[
                    pb.Device(ID=name, health="Unhealthy" if i in self.sick else "Healthy")
                    for i, name in enumerate(self.names())
                ]
            )
            with self.changed:
                self.changed.wait(timeout=5)

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        (one,) = request.container_requests
        must = list(one.must_include_deviceIDs)
        self.asked.append((list(one.available_deviceIDs), must, one.allocation_size))
        best = must + sorted(set(one.available_deviceIDs) - set(must), reverse=True)
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(
                    deviceIDs=["nonsense", *best][: one.allocation_size + 1]
                )
            ]
        )

    def Allocate(
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        if self.refuse:
            context.abort(grpc.StatusCode.INTERNAL, self.refuse)
        (one,) = request.container_requests
        return pb.AllocateResponse(container_responses=[self.answer(sorted(one.devices_ids))])

    def answer(self, ids: list[str]) -> pb.ContainerAllocateResponse:
        return pb.ContainerAllocateResponse(envs={"THINGS": ",".join(ids)})

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        if self.refuse:
            context.abort(grpc.StatusCode.INTERNAL, self.refuse)
        self.started.append(sorted(request.devices_ids))
        return pb.PreStartContainerResponse()


class SharedGpus(Plugin):
    """Another vendor's plugin for GPUs that several pods share. answer: from ids to the answer to Allocate."""

    def __init__(
        self,
        resource: str,
        ids: Iterable[str],
        answer: Callable[[list[str]], pb.ContainerAllocateResponse],
    ) -> None:
        super().__init__()
        self.resource, self.endpoint = resource, "nvidia-gpu.sock"
        self._ids, self._answer = list(ids), answer

    def names(self) -> list[str]:
        return self._ids

    def answer(self, ids: list[str]) -> pb.ContainerAllocateResponse:
        return self._answer(ids)
