"""The hollow kubelet of the local cluster, which tests also kill, restart and question."""

import base64
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from central.standalone import device_manager, hollow_kubelet
from central.standalone.device_manager import DeviceCounts, DeviceState, Endpoint, HeldDevices
from protos.stubs import deviceplugin_pb2 as pb


class DeviceManager(device_manager.DeviceManager):
    """before_record: called in the moment between a plugin's answer to Allocate and its record."""

    before_record: Callable[[], None] | None = None

    def _restored(self) -> DeviceState:
        """Reads the checkpoint; empty if there is none."""
        books, file = DeviceState(), self.directory / device_manager.CHECKPOINT
        if file.exists():
            data = json.loads(file.read_text())["Data"]
            for entry in data["PodDeviceEntries"]:
                ids = tuple(sorted(i for ids in entry["DeviceIDs"].values() for i in ids))
                answer = base64.b64decode(entry["AllocResp"])
                response = pb.ContainerAllocateResponse.FromString(answer)
                containers = books.held.setdefault(entry["PodUID"], {})
                resources = containers.setdefault(entry["ContainerName"], {})
                resources[entry["ResourceName"]] = HeldDevices(ids, response)
            # Known but empty until the plugin registers again.
            books.healthy = {name: set() for name in data["RegisteredDevices"]}
            books.unhealthy = {name: set() for name in data["RegisteredDevices"]}
        books.recount()
        return books

    def _answer(
        self, endpoint: Endpoint | None, resource: str, ids: set[str]
    ) -> pb.ContainerAllocateResponse:
        answer = super()._answer(endpoint, resource, ids)
        if self.before_record is not None:
            self.before_record()
        return answer


class HollowKubelet(hollow_kubelet.HollowKubelet):
    device_manager: type[DeviceManager] = DeviceManager
    _devices: DeviceManager

    def __init__(
        self,
        directory: Path,
        *,
        on_change: Callable[[DeviceCounts, DeviceCounts], None] = lambda capacity, free: None,
        seed: int = 0,
        before_record: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(directory, on_change=on_change)
        self._devices._random = random.Random(seed)
        self._devices.before_record = before_record

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """Stops the process at once. Pods whose admission was in progress may be added again."""
        for server in self._servers:
            server.stop(grace=None).wait()
        self._servers = []
        self._devices.forget_plugins()

    def restart(self, down_s: float = 0.0) -> None:
        self.stop()
        time.sleep(down_s)
        self.start()

    @property
    def capacity(self) -> DeviceCounts:
        return self._devices.counts()[0]

    @property
    def allocatable(self) -> DeviceCounts:
        return self._devices.counts()[1]

    def held(self) -> dict[tuple[str, str, str], dict[str, tuple[str, ...]]]:
        """(namespace, pod, container) -> resource -> ids, without the pod-resources API."""
        with self._lock:
            pods = [pod for uid, pod in self._pods.items() if uid not in self._ended]
        rows = {
            (pod.namespace, pod.name, container.name): self._devices.held(pod.uid, container.name)
            for pod in pods
            for container in pod.listed_containers()
        }
        return {key: held for key, held in rows.items() if held}
