"""The kubelet's side of resource claims: finds a driver by its socket in plugins_registry, and calls it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from protos.claim_devices import device_name
from protos.names import DRA_DRIVER
from protos.stubs import dra_pb2 as dra
from protos.stubs import pluginregistration_pb2 as pb
from protos.stubs import pluginregistration_pb2_grpc as rpc
from protos.topology import ClaimDevice, ClaimPlan
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box

TIMEOUT_S = 20.0


def planned(name: str, *uuids: str, request: str = "main") -> ClaimPlan:
    devices = tuple(ClaimDevice(request, device_name(uuid)) for uuid in uuids)
    return ClaimPlan("team", name, f"uid-of-{name}", devices)


def named(name: str) -> dra.Claim:
    return dra.Claim(namespace="team", name=name, uid=f"uid-of-{name}")


class ClaimKubelet:
    def __init__(self, folder: Path, version: str = "v1") -> None:
        self.registry, self.version = folder / "plugins_registry", version
        for each in (self.registry, folder / "plugins"):
            each.mkdir(exist_ok=True)

    def register(self, error: str = "") -> pb.PluginInfo:
        """Returns what the driver at the socket says, and answers as the kubelet does."""
        eventually(lambda: [*self.registry.iterdir()])
        (path,) = self.registry.iterdir()
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = rpc.RegistrationStub(channel)
            info = stub.GetInfo(pb.InfoRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
            status = pb.RegistrationStatus(plugin_registered=not error, error=error)
            stub.NotifyRegistrationStatus(status, timeout=TIMEOUT_S)
        return info

    def call(self, method: str, claims: Sequence[dra.Claim]) -> Mapping[str, Any]:
        info = self.register()
        assert (info.type, info.name) == ("DRAPlugin", DRA_DRIVER)
        assert f"{self.version}.DRAPlugin" in info.supported_versions
        request = getattr(dra, f"{method}Request")(claims=claims)
        with grpc.insecure_channel(f"unix:{info.endpoint}") as channel:
            name = f"/k8s.io.kubelet.pkg.apis.dra.{self.version}.DRAPlugin/{method}"
            call = channel.unary_unary(
                name,
                request_serializer=type(request).SerializeToString,
                response_deserializer=getattr(dra, f"{method}Response").FromString,
            )
            answer = call(request, timeout=TIMEOUT_S)
        assert set(answer.claims) == {claim.uid for claim in claims}
        found: Mapping[str, Any] = answer.claims
        return found

    def prepare(self, name: str) -> dra.NodePrepareResourceResponse:
        (answer,) = self.call("NodePrepareResources", [named(name)]).values()
        return answer  # type: ignore[no-any-return]

    def unprepare(self, name: str) -> str:
        (answer,) = self.call("NodeUnprepareResources", [named(name)]).values()
        return str(answer.error)


def plan_claims(box: NodeBox, *claims: ClaimPlan) -> None:
    state = box.agent.node.state
    box.agent.node.set_intents(state.intents, state.intents_version + 1, claims)


@contextmanager
def claim_box(*arguments: Any, **settings: object) -> Iterator[tuple[NodeBox, ClaimKubelet]]:
    """A node whose agent serves claims beside its device plugin."""
    with node_box(*arguments) as box:
        kubelet = ClaimKubelet(box.directory)
        made = {"device_claims": "beside", "cdi_dir": box.directory / "cdi", **settings}
        box.configure(**made)
        yield box, kubelet
