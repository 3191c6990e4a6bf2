"""pod-resources at a real socket, which refuses the calls that a test names."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from protos.stubs import podresources_pb2 as pb
from protos.stubs import podresources_pb2_grpc as rpc

Answer = pb.ListPodResourcesResponse
REJECTED = grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"


class Lister(rpc.PodResourcesListerServicer):
    """answer: makes each answer; errors: status and details of the next calls, which get no answer."""

    def __init__(self, answer: Callable[[], Answer] = Answer) -> None:
        self.answer = answer
        self.errors: list[tuple[grpc.StatusCode, str]] = []
        self.calls = self.answered = 0
        self._lock = threading.Lock()

    def List(
        self, request: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> Answer:  # gRPC's name
        with self._lock:
            self.calls += 1
            error = self.errors.pop(0) if self.errors else None
        if error:
            context.abort(*error)
        with self._lock:
            self.answered += 1
        return self.answer()


@contextmanager
def serving(lister: Lister) -> Iterator[Path]:
    """The socket."""
    with tempfile.TemporaryDirectory(prefix="ls-") as name:  # a unix socket's path must be short
        socket = Path(name) / "kubelet.sock"
        server = grpc.server(ThreadPoolExecutor(8))
        rpc.add_PodResourcesListerServicer_to_server(lister, server)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield socket
        finally:
            server.stop(0).wait()
