"""Serves the kubelet's DRA API at a socket of the driver, and registers it by a second socket, where the kubelet looks
for plugins. A restarted kubelet finds both again; what others remove is made again.

Design: docs/design/kubelet.md
"""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from agent.backoff import Backoff, StateLogger
from agent.claims.claim_driver import ClaimDriver
from agent.claims.claim_health import ClaimHealth
from agent.kubelet.registration import KubeletUnavailable, listen
from agent.sockets import identity
from protos.names import DRA_DRIVER
from protos.stubs import dra_pb2 as dra
from protos.stubs import drahealth_pb2 as health
from protos.stubs import pluginregistration_pb2 as pb
from protos.stubs import pluginregistration_pb2_grpc as rpc

log = logging.getLogger(__name__)

VERSIONS = ("v1", "v1beta1")  # of the service DRAPlugin, whose messages are the same
HEALTH_VERSIONS = ("v1", "v1alpha1")  # of DRAResourceHealth
PACKAGE = "k8s.io.kubelet.pkg.apis.dra"
CHECK_S = 1.0  # between looks at the sockets
THREADS = 32  # calls that wait for plans


class ClaimService(rpc.RegistrationServicer):
    def __init__(self, kubelet: Path, driver: ClaimDriver, watched: ClaimHealth) -> None:
        """kubelet: its directory, at the path that it has on the host. watched: the health of devices."""
        self._driver, self._health, self._log = driver, watched, StateLogger(log)
        self.socket = kubelet / "plugins" / DRA_DRIVER / "dra.sock"
        self.registration = kubelet / "plugins_registry" / f"{DRA_DRIVER}-reg.sock"

    def run(self, stop: threading.Event) -> None:
        """Serves until stop."""
        self._driver.begin()
        backoff = Backoff()
        while not stop.is_set():
            try:
                self._serve(stop)
                backoff.reset()
            except KubeletUnavailable as error:
                self._log.failed(f"cannot serve resource claims: {error}")
                stop.wait(backoff.pause_s())

    def _serve(self, stop: threading.Event) -> None:
        """Serves until stop, or until a socket is gone."""
        paths = (self.socket, self.registration)
        workers = ThreadPoolExecutor(THREADS, thread_name_prefix="claims")
        server = grpc.server(workers)
        server.add_generic_rpc_handlers(tuple(map(self._handlers, VERSIONS)))
        server.add_generic_rpc_handlers(tuple(map(self._health_handlers, HEALTH_VERSIONS)))
        rpc.add_RegistrationServicer_to_server(self, server)
        try:
            self.socket.parent.mkdir(exist_ok=True)
            for path in paths:  # the kubelet calls when it sees the second
                listen(server, path)
            server.start()
            ours = [*map(identity, paths)]
            while not stop.wait(CHECK_S) and ours == [*map(identity, paths)]:
                pass
        except OSError as error:
            why = f"cannot make {self.socket.parent}: {error.strerror}"
            raise KubeletUnavailable(f"{why}; mount the kubelet's plugins directory") from None
        finally:
            server.stop(grace=0.2).wait(timeout=1.0)
            workers.shutdown(wait=False)
            for path in paths:
                path.unlink(missing_ok=True)

    def _handlers(self, version: str) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                self._driver.prepare,
                request_deserializer=dra.NodePrepareResourcesRequest.FromString,
                response_serializer=dra.NodePrepareResourcesResponse.SerializeToString,
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                self._driver.unprepare,
                request_deserializer=dra.NodeUnprepareResourcesRequest.FromString,
                response_serializer=dra.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(f"{PACKAGE}.{version}.DRAPlugin", methods)

    def _health_handlers(self, version: str) -> grpc.GenericRpcHandler:
        watch: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
            self._health.watch,
            request_deserializer=health.NodeWatchResourcesRequest.FromString,
            response_serializer=health.NodeWatchResourcesResponse.SerializeToString,
        )
        name = f"{version}.DRAResourceHealth"
        return grpc.method_handlers_generic_handler(name, {"NodeWatchResources": watch})

    def GetInfo(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:
        return pb.PluginInfo(
            type="DRAPlugin",
            name=DRA_DRIVER,
            endpoint=str(self.socket),
            supported_versions=[
                *(f"{version}.DRAPlugin" for version in VERSIONS),
                *(f"{version}.DRAResourceHealth" for version in HEALTH_VERSIONS),
            ],
        )

    def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        if request.plugin_registered:
            self._log.ok(f"registered {DRA_DRIVER} with the kubelet for resource claims")
        else:
            self._log.failed(f"the kubelet refuses resource claims: {request.error:.700}")
        return pb.RegistrationStatusResponse()
