"""A hollow kubelet: the kubelet's side of the device-plugin and pod-resources protocols over real unix sockets in
any directory, without containers and without root. Pods are admitted one at a time, in the real order. The result
says what their containers would get."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from central.standalone.device_manager import AdmissionError, DeviceCounts, DeviceManager
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from protos.stubs import podresources_pb2 as podresources
from protos.stubs import podresources_pb2_grpc as podresources_rpc


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    wants: tuple[tuple[str, int], ...] = ()  # resource, count
    sidecar: bool = False  # an init container that runs, and keeps its devices, as long as the pod


@dataclass(frozen=True, slots=True)
class KubeletPod:
    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()

    def listed_containers(self) -> tuple[Container, ...]:
        """Returns the containers that pod-resources lists: without the init containers that end."""
        return (*(each for each in self.init_containers if each.sidecar), *self.containers)

    @classmethod
    def from_object(cls, pod: Mapping[str, Any]) -> Self:
        """Reads a Pod object of the API server."""
        meta, spec = pod["metadata"], pod["spec"]
        return cls(
            meta["uid"],
            meta["namespace"],
            meta["name"],
            tuple(_container(item) for item in spec["containers"]),
            tuple(_container(item) for item in spec.get("initContainers") or ()),
        )


def _container(item: Mapping[str, Any]) -> Container:
    resources = item.get("resources") or {}
    limits = resources.get("limits") or resources.get("requests") or {}
    # Resources of device plugins always have a domain, unlike cpu and memory.
    wants = ((name, int(count)) for name, count in sorted(limits.items()) if "/" in name)
    sidecar = item.get("restartPolicy") == "Always"
    return Container(item["name"], tuple((name, count) for name, count in wants if count), sidecar)


@dataclass(frozen=True, slots=True)
class Granted:
    """The devices that the container runtime would get for one container."""

    container: str
    devices: Mapping[str, tuple[str, ...]]  # resource -> ids
    envs: Mapping[str, str]
    device_nodes: tuple[tuple[str, str, str], ...] = ()  # host path, container path, permissions
    mounts: tuple[tuple[str, str, bool], ...] = ()  # host path, container path, read only
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """reason: status.reason of the failed pod; empty for an admitted one."""

    reason: str = ""
    message: str = ""
    containers: tuple[Granted, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reason


SOCKET_PATH_BYTES = 107  # of sockaddr_un, without the closing zero
VERSION = "v1beta1"


def _ignore(capacity: DeviceCounts, allocatable: DeviceCounts) -> None:
    pass


class HollowKubelet:
    """on_change(capacity, allocatable) is called from any thread, whenever a plugin's devices change."""

    device_manager = DeviceManager

    def __init__(
        self, directory: Path, *, on_change: Callable[[DeviceCounts, DeviceCounts], None] = _ignore
    ) -> None:
        self.directory = directory
        self.plugins = directory / "device-plugins"
        self.socket = self.plugins / "kubelet.sock"
        self.resources_socket = directory / "pod-resources" / "kubelet.sock"
        for path in (self.plugins / "lockstep-gpu.00000000-1.sock", self.resources_socket):
            length = len(str(path).encode())
            if length > SOCKET_PATH_BYTES:
                raise ValueError(
                    f"{path} has {length} bytes; a unix socket's path may have {SOCKET_PATH_BYTES}: "
                    "choose a shorter directory"
                )
        self._lock = threading.Lock()  # of _pods, _ended and _results
        self._admission = threading.Lock()  # one pod at a time
        self._pods: dict[str, KubeletPod] = {}
        self._ended: set[str] = set()
        self._results: dict[str, Admission] = {}
        self._servers: list[grpc.Server] = []
        self._devices = self.device_manager(self.plugins, self._active, on_change)

    # --- the process

    def start(self) -> None:
        """Does what a starting kubelet does: clears the directory, reads the checkpoint, listens."""
        for folder in (self.plugins, self.resources_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for file in self.plugins.iterdir():
            if file.is_socket():
                file.unlink(missing_ok=True)
        self._devices.forget_plugins()
        registration, lister = (
            grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)]) for _ in range(2)
        )
        rpc.add_RegistrationServicer_to_server(_Registration(self._devices), registration)
        podresources_rpc.add_PodResourcesListerServicer_to_server(_Lister(self), lister)
        lister.add_insecure_port(f"unix:{self.resources_socket}")
        lister.start()
        registration.add_insecure_port(f"unix:{self.socket}")
        registration.start()
        self._servers = [registration, lister]

    def stop(self) -> None:
        """Stops the process; pods keep their devices."""
        with self._admission:
            for server in self._servers:
                server.stop(grace=None).wait()
            self._servers = []
            self._devices.forget_plugins()

    # --- pods

    def add_pod(self, pod: KubeletPod | Mapping[str, Any], *, start: bool = True) -> Admission:
        """Admits the pod and then starts its containers, outside the lock of admissions."""
        pod = pod if isinstance(pod, KubeletPod) else KubeletPod.from_object(pod)
        with self._admission:
            with self._lock:
                if pod.uid in self._results:
                    return self._results[pod.uid]
                self._pods[pod.uid] = pod  # before it is admitted: pod-resources lists it already
            life = self._devices.life
            result = self._admit(pod)
            if life != self._devices.life:
                return Admission("KubeletDied", "the kubelet died before the pod was admitted")
            with self._lock:
                self._results[pod.uid] = result
                if not result.ok:
                    self._ended.add(pod.uid)
        return self.start_pod(pod.uid) if start and result.ok else result

    def _admit(self, pod: KubeletPod) -> Admission:
        known, _ = self._devices.counts()
        containers = [(container, not container.sidecar) for container in pod.init_containers]
        containers += [(container, False) for container in pod.containers]
        for container, init in containers:
            for resource, count in container.wants:
                if resource not in known:
                    # A real kubelet admits a pod with a resource that its node never had, without any
                    # devices. Here that would only hide mistakes.
                    return Admission(
                        f"OutOf{resource}", f"the node has no {resource}, {count} wanted"
                    )
            try:
                self._devices.allocate(pod.uid, container.name, container.wants, init=init)
            except AdmissionError as error:
                return Admission("UnexpectedAdmissionError", str(error))
        return Admission(containers=tuple(self._granted(pod, c.name) for c, _ in containers))

    def _granted(self, pod: KubeletPod, container: str) -> Granted:
        envs: dict[str, str] = {}
        annotations: dict[str, str] = {}
        nodes: list[tuple[str, str, str]] = []
        mounts: list[tuple[str, str, bool]] = []
        cdi: list[str] = []
        for response in self._devices.responses(pod.uid, container):
            envs.update(response.envs)
            annotations.update(response.annotations)
            nodes += [(d.host_path, d.container_path, d.permissions) for d in response.devices]
            cdi += [device.name for device in response.cdi_devices]
            mounts += [(m.host_path, m.container_path, m.read_only) for m in response.mounts]
        held = self._devices.held(pod.uid, container)
        return Granted(container, held, envs, tuple(nodes), tuple(mounts), annotations, tuple(cdi))

    def start_pod(self, uid: str) -> Admission:
        """Calls PreStartContainer for each container. If it fails, the pod keeps its devices and may be started
        again, as a real kubelet does with backoff."""
        with self._lock:
            pod, result = self._pods[uid], self._results[uid]
        for container in (*pod.init_containers, *pod.containers):
            try:
                self._devices.pre_start(uid, container.name)
            except AdmissionError as error:
                return Admission("RunContainerError", str(error), result.containers)
        return result

    def end_pod(self, uid: str) -> None:
        """The pod has succeeded or failed; its object still exists."""
        with self._lock:
            self._ended.add(uid)

    def remove_pod(self, uid: str) -> None:
        """The pod's object was deleted."""
        with self._lock:
            self._pods.pop(uid, None)
            self._results.pop(uid, None)
            self._ended.discard(uid)

    def _active(self) -> set[str]:
        with self._lock:
            return set(self._pods) - self._ended

    # --- reports

    def list_pods(self) -> podresources.ListPodResourcesResponse:
        """All known pods, ended ones too. Frees the devices of inactive pods."""
        with self._lock:
            pods = list(self._pods.values())
        self._devices.prune()
        return podresources.ListPodResourcesResponse(
            pod_resources=[
                podresources.PodResources(
                    name=pod.name,
                    namespace=pod.namespace,
                    containers=[
                        podresources.ContainerResources(
                            name=container.name,
                            devices=[
                                podresources.ContainerDevices(
                                    resource_name=resource, device_ids=ids
                                )
                                for resource, ids in self._devices.held(
                                    pod.uid, container.name
                                ).items()
                            ],
                        )
                        for container in pod.listed_containers()
                    ],
                )
                for pod in pods
            ]
        )


class _Registration(rpc.RegistrationServicer):
    def __init__(self, devices: DeviceManager) -> None:
        self.devices = devices

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        if request.version != VERSION:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"version {request.version} is not {VERSION}"
            )
        domain, _, name = request.resource_name.partition("/")
        if not domain or not name or "/" in request.endpoint:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{request.resource_name} at {request.endpoint}: want domain/name and a file's name",
            )
        try:
            self.devices.register(request)  # dials the plugin before it answers, as newer ones do
        except AdmissionError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return pb.Empty()


class _Lister(podresources_rpc.PodResourcesListerServicer):
    def __init__(self, kubelet: HollowKubelet) -> None:
        self.kubelet = kubelet

    def List(
        self, request: podresources.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> podresources.ListPodResourcesResponse:
        return self.kubelet.list_pods()
