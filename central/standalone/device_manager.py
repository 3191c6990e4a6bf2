"""A hollow kubelet's device manager: the devices of its plugins, and which container holds which device.

It works in the order of the real one: reusable devices of init containers first (any of them, if there are
more than needed), then the plugin's preferred ones, then any; one Allocate per container and resource, recorded after
the plugin's answer. As in the real one, the mutex is not held during RPCs. The checkpoint on disk has the real one's
format.
"""

import base64
import json
import random
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc


@dataclass(slots=True)
class HeldDevices:
    ids: tuple[str, ...]
    response: pb.ContainerAllocateResponse


@dataclass(slots=True)
class DeviceState:
    """Devices per resource, and held devices per pod uid, container and resource."""

    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    held: dict[str, dict[str, dict[str, HeldDevices]]] = field(default_factory=dict)

    def recount(self) -> None:
        """Recomputes allocated from held. Devices of an unfinished Allocate become free."""
        self.allocated = {}
        for containers in self.held.values():
            for resources in containers.values():
                for resource, held in resources.items():
                    self.allocated.setdefault(resource, set()).update(held.ids)

    def save(self, file: Path) -> None:
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {"0": list(held.ids)},
                "AllocResp": base64.b64encode(held.response.SerializeToString()).decode(),
            }
            for uid, containers in sorted(self.held.items())
            for container, resources in sorted(containers.items())
            for resource, held in sorted(resources.items())
        ]
        registered = {name: sorted(ids) for name, ids in sorted(self.healthy.items())}
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        checksum = zlib.crc32(json.dumps(data).encode())
        new = file.with_name(f".{file.name}")  # atomically, as the real one
        new.write_text(json.dumps({"Data": data, "Checksum": checksum}))
        new.replace(file)


CHECKPOINT = "kubelet_internal_checkpoint"
# otherwise a new socket at an old path would not be dialled
LOCAL = (("grpc.use_local_subchannel_pool", 1),)
DIAL_S, PRE_START_S = 10.0, 30.0

DeviceCounts = dict[str, int]


class AdmissionError(Exception):
    """Raised with a sentence why the container cannot get its devices."""


class Endpoint:
    """A registered plugin: its channel, options and stream of devices."""

    def __init__(self, socket: Path, resource: str) -> None:
        self.resource = resource
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=LOCAL)
        self.stub = rpc.DevicePluginStub(self.channel)
        try:
            grpc.channel_ready_future(self.channel).result(timeout=DIAL_S)
            self.options = self.stub.GetDevicePluginOptions(pb.Empty(), timeout=DIAL_S)
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            self.channel.close()
            raise AdmissionError(f"the plugin at {socket} does not answer: {error!r}") from None

    def watch(
        self,
        on_devices: Callable[["Endpoint", list[pb.Device]], None],
        on_end: Callable[["Endpoint"], None],
    ) -> None:
        try:
            for response in self.stub.ListAndWatch(pb.Empty()):
                on_devices(self, list(response.devices))
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed before the call
            pass
        finally:
            on_end(self)

    def close(self) -> None:
        self.channel.close()


class DeviceManager:
    def __init__(
        self,
        directory: Path,
        active: Callable[[], set[str]],
        on_change: Callable[[DeviceCounts, DeviceCounts], None],
    ) -> None:
        self.directory = directory
        self._active = active
        self._on_change = on_change
        self._random = random.Random(0)
        self._mutex = threading.Lock()
        self._state = DeviceState()
        self._endpoints: dict[str, Endpoint] = {}
        self._reuse: tuple[str, dict[str, set[str]]] = ("", {})  # uid, what its init containers had
        self.life = 0  # grows when the process dies; operations of a former life are not recorded

    # --- plugins

    def register(self, request: pb.RegisterRequest) -> None:
        endpoint = Endpoint(self.directory / request.endpoint, request.resource_name)
        with self._mutex:
            old = self._endpoints.get(endpoint.resource)
            self._endpoints[endpoint.resource] = endpoint
        if old:
            old.close()
        threading.Thread(
            target=endpoint.watch, args=(self._replace, self._ended), daemon=True
        ).start()

    def _replace(self, endpoint: Endpoint, devices: list[pb.Device]) -> None:
        with self._mutex:
            if self._endpoints.get(endpoint.resource) is not endpoint:
                return
            healthy = {device.ID for device in devices if device.health == "Healthy"}
            self._state.healthy[endpoint.resource] = healthy
            self._state.unhealthy[endpoint.resource] = {d.ID for d in devices} - healthy
        self._notify_change()

    def _ended(self, endpoint: Endpoint) -> None:
        with self._mutex:
            if self._endpoints.get(endpoint.resource) is not endpoint:
                return
            gone = self._state.healthy.get(endpoint.resource, set())
            self._state.healthy[endpoint.resource] = set()
            self._state.unhealthy.setdefault(endpoint.resource, set()).update(gone)
        self._notify_change()

    def forget_plugins(self) -> None:
        """The effect of a start: plugins are unknown."""
        with self._mutex:
            self.life += 1
            endpoints, self._endpoints = self._endpoints, {}
            self._state = self._restored()
        for endpoint in endpoints.values():
            endpoint.close()
        self._notify_change()

    def _restored(self) -> DeviceState:
        """Returns what the kubelet knows when it starts. That of the demo starts once."""
        return DeviceState()

    def counts(self) -> tuple[DeviceCounts, DeviceCounts]:
        """capacity, allocatable"""
        with self._mutex:
            allocatable = {name: len(ids) for name, ids in sorted(self._state.healthy.items())}
            unhealthy = {name: len(ids) for name, ids in self._state.unhealthy.items()}
        capacity = {name: count + unhealthy.get(name, 0) for name, count in allocatable.items()}
        return capacity, allocatable

    def _notify_change(self) -> None:
        self._on_change(*self.counts())

    # --- containers

    def allocate(
        self, uid: str, container: str, wants: Iterable[tuple[str, int]], *, init: bool
    ) -> None:
        if self._reuse[0] != uid:
            self._reuse = (uid, {})
        reuse = self._reuse[1]
        for resource, size in wants:
            self.prune()
            ids = self._choose(uid, container, resource, size, reuse.get(resource, set()))
            if ids:
                self._allocate(uid, container, resource, ids)
            held = set(self.held(uid, container).get(resource, ()))
            reuse[resource] = (
                reuse.get(resource, set()) | held if init else reuse.get(resource, set()) - held
            )

    def _choose(
        self, uid: str, container: str, resource: str, size: int, reusable: set[str]
    ) -> set[str]:
        with self._mutex:
            if resource in self._state.held.get(uid, {}).get(container, {}):
                return set()  # after a restart of the kubelet the container keeps its devices
            endpoint = self._endpoints.get(resource)
            if resource not in self._state.healthy:
                raise AdmissionError(f"no plugin has registered {resource}")
            taken = self._state.allocated.setdefault(resource, set())
            chosen = set(self._random.sample(sorted(reusable), min(size, len(reusable))))
            if len(chosen) < size:
                available = self._state.healthy[resource] - taken
                if len(available) < size - len(chosen):
                    raise AdmissionError(
                        f"{size - len(chosen)} {resource} wanted, {len(available)} available"
                    )
                if endpoint is None:
                    raise AdmissionError(f"the plugin of {resource} is gone")
                life = self.life
                self._mutex.release()
                try:
                    preferred = _preferred(endpoint, available | chosen, chosen, size)
                finally:
                    self._mutex.acquire()
                self._check_life(life)
                for pool in (preferred & available, available):
                    rest = sorted(pool - chosen)
                    self._random.shuffle(rest)
                    chosen.update(rest[: size - len(chosen)])
            self._state.allocated.setdefault(resource, set()).update(chosen)
            return chosen

    def _allocate(self, uid: str, container: str, resource: str, ids: set[str]) -> None:
        with self._mutex:
            endpoint, life = self._endpoints.get(resource), self.life
        response = self._answer(endpoint, resource, ids)
        with self._mutex:
            self._check_life(life)
            self._state.held.setdefault(uid, {}).setdefault(container, {})[resource] = HeldDevices(
                tuple(sorted(ids)), response
            )
            self._state.save(self.directory / CHECKPOINT)

    def _answer(
        self, endpoint: Endpoint | None, resource: str, ids: set[str]
    ) -> pb.ContainerAllocateResponse:
        """Returns what the plugin answers to Allocate."""
        order = sorted(ids)
        self._random.shuffle(order)
        try:
            if endpoint is None:
                raise AdmissionError(f"the plugin of {resource} is gone")
            request = pb.AllocateRequest(
                container_requests=[pb.ContainerAllocateRequest(devices_ids=order)]
            )
            response = endpoint.stub.Allocate(request)
        except (grpc.RpcError, ValueError) as error:
            with self._mutex:
                self._state.recount()
            raise AdmissionError(f"Allocate of {resource} failed: {_describe(error)}") from None
        if not response.container_responses:
            raise AdmissionError(f"Allocate of {resource} returned no container")
        return response.container_responses[0]

    def _check_life(self, life: int) -> None:
        if life != self.life:
            raise AdmissionError("the kubelet died during the operation")

    def pre_start(self, uid: str, container: str) -> None:
        for resource, ids in self.held(uid, container).items():
            with self._mutex:
                endpoint = self._endpoints.get(resource)
            if endpoint is None:
                raise AdmissionError(f"the plugin of {resource} is gone")
            if not endpoint.options.pre_start_required:
                continue
            order = [*ids]
            self._random.shuffle(order)  # as from a set of Go
            try:
                endpoint.stub.PreStartContainer(
                    pb.PreStartContainerRequest(devices_ids=order), timeout=PRE_START_S
                )
            except (grpc.RpcError, ValueError) as error:
                raise AdmissionError(f"PreStartContainer failed: {_describe(error)}") from None

    def held(self, uid: str, container: str) -> dict[str, tuple[str, ...]]:
        with self._mutex:
            resources = self._state.held.get(uid, {}).get(container, {})
            return {resource: held.ids for resource, held in sorted(resources.items())}

    def responses(self, uid: str, container: str) -> list[pb.ContainerAllocateResponse]:
        with self._mutex:
            resources = self._state.held.get(uid, {}).get(container, {})
            return [held.response for _, held in sorted(resources.items())]

    def prune(self) -> None:
        """Frees the devices of pods that are no longer active."""
        active = self._active()
        with self._mutex:
            gone = [uid for uid in self._state.held if uid not in active]
            for uid in gone:
                del self._state.held[uid]
            if gone:
                self._state.recount()


def _preferred(endpoint: Endpoint, available: set[str], must: set[str], size: int) -> set[str]:
    if not endpoint.options.get_preferred_allocation_available:
        return set()
    request = pb.PreferredAllocationRequest(
        container_requests=[
            pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=sorted(available),
                must_include_deviceIDs=sorted(must),
                allocation_size=size,
            )
        ]
    )
    try:
        response = endpoint.stub.GetPreferredAllocation(request)
    except (grpc.RpcError, ValueError) as error:
        raise AdmissionError(f"GetPreferredAllocation failed: {_describe(error)}") from None
    if not response.container_responses:
        return set()
    return set(response.container_responses[0].deviceIDs)


def _describe(error: Exception) -> str:
    return str(error.details()) if isinstance(error, grpc.Call) else str(error)
