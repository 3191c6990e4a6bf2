"""One hollow node: its Node object, its hollow kubelet, and the thread that handles its pods as a kubelet would:
admits, runs, ends and deletes them."""

import functools
import heapq
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from central.kube.transport.http_client import MERGE, Client, StatusError, Unreachable
from central.model.json_types import Json
from central.model.timestamps import stamp
from central.standalone import pod_status
from central.standalone.device_manager import DeviceCounts
from central.standalone.hollow_kubelet import HollowKubelet

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after a failed start of a container, or an API that does not answer


@dataclass(frozen=True, slots=True)
class HollowNode:
    """capture: the machine's hardware, for its agent."""

    name: str
    labels: Mapping[str, str]
    capture: Path
    capacity: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "96", "memory": "1024Gi", "pods": "110"}
    )

    def object(self, address: str) -> Json:
        labels = {"kubernetes.io/hostname": self.name, **self.labels}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "status": pod_status.node(address, dict(self.capacity), stamp(time.time())),
        }


class Worker:
    """A thread with a queue of tasks, some of them delayed. Tasks are retried until the API answers."""

    def __init__(
        self,
        number: int,
        client: Client,
        kubelet: HollowKubelet,
        run_s: Callable[[Json], float | None] = pod_status.runs_for_s,
    ) -> None:
        """run_s: how long a pod runs; None: until it is deleted. It raises ValueError for a wrong annotation."""
        self._run_s = run_s
        self._number = number
        self._client = client
        self._kubelet = kubelet
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._known: dict[str, str] = {}  # state by uid: started, ended, leaving
        self._addresses = 0
        self._thread = threading.Thread(target=self._run, name=f"hollow-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    # --- from any thread

    def pod_seen(self, pod: Json) -> None:
        self._queue.put(functools.partial(self._on_pod, pod))

    def pod_gone(self, uid: str) -> None:
        self._queue.put(functools.partial(self._on_pod_gone, uid))

    def devices(self, node: str, capacity: DeviceCounts, allocatable: DeviceCounts) -> None:
        self._queue.put(functools.partial(self._devices, node, dict(capacity), dict(allocatable)))

    # --- in the thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Unreachable as error:
                log.debug("%s; again", error)
                self._after(RETRY_S, job)
            except StatusError as error:
                log.warning("refused: %s", error)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                log.warning("a pod is not well formed: %r", error)  # the others of the node run

    def _next(self) -> Callable[[], None] | None:
        while True:
            wait_s = self._later[0][0] - time.monotonic() if self._later else None
            if wait_s is not None and wait_s <= 0:
                return heapq.heappop(self._later)[2]
            try:
                return self._queue.get(timeout=wait_s)
            except queue.Empty:
                continue

    def _after(self, wait_s: float, job: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._later, (time.monotonic() + wait_s, self._count, job))

    def _on_pod(self, pod: Json) -> None:
        uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase")
        if "deletionTimestamp" in pod["metadata"]:
            self._terminate(pod)
        elif phase in ("Succeeded", "Failed"):
            self._end(uid)
        elif uid not in self._known:
            self._known[uid] = "started"
            admission = self._kubelet.add_pod(pod, start=False)
            if admission.ok:
                self._start_pod(pod)
            else:
                self._known[uid] = "ended"
                now = stamp(time.time())
                self._set_status(pod, pod_status.failed(admission.reason, admission.message, now))

    def _start_pod(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if self._known.get(uid) != "started":
            return
        admission = self._kubelet.start_pod(uid)
        if not admission.ok:
            self._set_status(pod, pod_status.waiting(pod, admission.reason, admission.message))
            self._after(RETRY_S, functools.partial(self._start_pod, pod))
            return
        self._addresses += 1
        net = f"10.{128 + self._number // 256 % 128}.{self._number % 256}"
        address = f"{net}.{self._addresses % 253 + 1}"
        now = stamp(time.time())
        self._set_status(pod, pod_status.running(pod, address, "127.0.0.1", now))
        try:
            lasts_s = self._run_s(pod)
        except ValueError as error:
            log.warning("pod %s runs for ever: %s", pod["metadata"]["name"], error)
            lasts_s = None
        if lasts_s is not None:
            self._after(lasts_s, functools.partial(self._succeed, pod, now))

    def _succeed(self, pod: Json, began: str) -> None:
        uid = pod["metadata"]["uid"]
        if self._known.get(uid) == "started":
            self._end(uid)
            pod = {**pod, "status": {**(pod.get("status") or {}), "startTime": began}}
            self._set_status(pod, pod_status.succeeded(pod, stamp(time.time())))

    def _end(self, uid: str) -> None:
        if self._known.get(uid) == "started":
            self._known[uid] = "ended"
            self._kubelet.end_pod(uid)

    def _terminate(self, pod: Json) -> None:
        """Ends the containers at once, then deletes the object."""
        uid = pod["metadata"]["uid"]
        self._end(uid)
        self._known[uid] = "leaving"
        body = orjson.dumps({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        self._client.request("DELETE", _path(pod), body).accepted(404, 409)

    def _on_pod_gone(self, uid: str) -> None:
        self._end(uid)
        if self._known.pop(uid, None) is not None:
            self._kubelet.remove_pod(uid)

    def _set_status(self, pod: Json, status: Json) -> None:
        patch = orjson.dumps({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status})
        self._patch(f"{_path(pod)}/status", patch)

    def _devices(self, node: str, capacity: DeviceCounts, allocatable: DeviceCounts) -> None:
        status = {
            "capacity": {name: str(count) for name, count in capacity.items()},
            "allocatable": {name: str(count) for name, count in allocatable.items()},
        }
        self._patch(f"/api/v1/nodes/{node}/status", orjson.dumps({"status": status}))

    def _patch(self, path: str, patch: bytes) -> None:
        try:  # 404, 409: the object was deleted meanwhile
            self._client.request("PATCH", path, patch, MERGE).accepted(404, 409)
        except Unreachable as error:
            log.debug("%s; again", error)
            self._after(RETRY_S, functools.partial(self._patch, path, patch))


def _path(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
