"""Hollow kubelets that take several plugins of one resource as the real ones do: of 1.37, and of the versions
before."""

import threading
from pathlib import Path

from central.standalone.device_manager import AdmissionError, Endpoint
from protos.stubs import deviceplugin_pb2 as pb
from tests.fakes.hollow_kubelet import DeviceManager, HollowKubelet


class SeveralPlugins(DeviceManager):
    """The plugin that registered last is called; the last list counts, whichever plugin sends it."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]  # as they come
        self._connected: dict[tuple[str, Path], Endpoint] = {}
        self._lost: list[Endpoint] = []  # whose end is not noticed any more

    def register(self, request: pb.RegisterRequest) -> None:
        key = (request.resource_name, self.directory / request.endpoint)
        self._check(key)
        endpoint = Endpoint(key[1], key[0])
        with self._mutex:
            self._connected[key] = self._endpoints[key[0]] = endpoint
        arguments = (self._replace, self._ended)
        threading.Thread(target=endpoint.watch, args=arguments, daemon=True).start()

    def _check(self, key: tuple[str, Path]) -> None:
        """Raises AdmissionError."""

    def _replace(self, endpoint: Endpoint, devices: list[pb.Device]) -> None:
        with self._mutex:
            if (
                endpoint not in self._connected.values()
            ):  # it was on its way when the kubelet hung up
                return
            healthy = {device.ID for device in devices if device.health == "Healthy"}
            self._state.healthy[endpoint.resource] = healthy
            self._state.unhealthy[endpoint.resource] = {d.ID for d in devices} - healthy
        self._notify_change()

    def _disconnect(self, endpoint: Endpoint) -> list[Endpoint]:
        """Returns the other plugins of the resource."""
        known = [key for key, each in self._connected.items() if each is endpoint]
        for key in known:
            del self._connected[key]
        return [each for (name, _), each in self._connected.items() if name == endpoint.resource]

    def _all_unhealthy(self, resource: str) -> None:
        """The caller has the mutex."""
        gone = self._state.healthy.get(resource, set())
        self._state.healthy[resource] = set()
        self._state.unhealthy.setdefault(resource, set()).update(gone)

    def forget_plugins(self) -> None:
        with self._mutex:
            connected, self._connected = self._connected, {}
        super().forget_plugins()
        for endpoint in connected.values():
            endpoint.close()


class DeviceManager137(SeveralPlugins):
    """A device manager that calls any other plugin of a resource when one ends. A path that is connected is refused;
    the end of its plugin is no longer noticed."""

    def _check(self, key: tuple[str, Path]) -> None:
        if (known := self._connected.get(key)) is not None:
            self._lost.append(known)
            raise AdmissionError(f"device plugin already connected: {key[1]}")

    def _ended(self, endpoint: Endpoint) -> None:
        with self._mutex:
            if endpoint in self._lost or endpoint not in self._connected.values():
                return
            left = self._disconnect(endpoint)
            if left:
                self._endpoints[endpoint.resource] = self._random.choice(left)
                return
            self._all_unhealthy(endpoint.resource)
        self._notify_change()


class OlderDeviceManager(SeveralPlugins):
    """A device manager that hangs up on the last registered plugin when any plugin of the resource ends."""

    def _ended(self, endpoint: Endpoint) -> None:
        with self._mutex:
            if endpoint not in self._connected.values():
                return
            self._disconnect(endpoint)
            current = self._endpoints.pop(endpoint.resource, None)
            if current is None:
                return
            self._disconnect(current)
            self._all_unhealthy(endpoint.resource)
        current.close()
        self._notify_change()


class Kubelet137(HollowKubelet):
    device_manager = DeviceManager137


class OlderKubelet(HollowKubelet):
    device_manager = OlderDeviceManager
