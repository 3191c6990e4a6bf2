"""The kubelet's pod-resources API: which container holds which devices.

A kubelet that prunes ended pods while it answers List forgets the devices of an Allocate in
progress, which it records only after the answer, and would allocate them twice. So List and
Allocate exclude each other here: from GetPreferredAllocation until shortly after Allocate nothing
calls List, except GetPreferredAllocation itself, when no devices are pending yet."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from agent.backoff import StateLogger
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.node import AgentNode
from agent.resources import table
from agent.resources.device_resource import ContainerDevices, ContainerKey
from agent.sockets import CHANNEL, details
from protos.names import GPU, GPU_SHARE
from protos.stubs import podresources_pb2 as pb
from protos.stubs import podresources_pb2_grpc as rpc
from protos.topology import Grant

log = logging.getLogger(__name__)

RECORD_S = 0.05  # from the answer to Allocate until the kubelet has recorded it
CALM = 6  # List calls without a change, after which the interval grows
SELDOM = 6  # factor of the longer interval
ALLOCATE_S = (
    1.0  # longest time from GetPreferredAllocation to Allocate; later, the pod was not admitted
)


class AdmissionGate:
    """Keeps List and Allocate apart."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._listing = 0
        self._allocating = 0
        self._busy_until = 0.0

    def begin(self) -> None:
        """Call on GetPreferredAllocation: the admission of a pod has begun."""
        with self._changed:
            self._busy_until = time.monotonic() + ALLOCATE_S
            self._changed.wait_for(lambda: not self._listing, timeout=ALLOCATE_S)

    @contextmanager
    def allocating(self) -> Iterator[None]:
        with self._changed:
            self._allocating += 1
            self._changed.wait_for(lambda: not self._listing, timeout=ALLOCATE_S)
        try:
            yield
        finally:
            with self._changed:
                self._allocating -= 1
                self._busy_until = time.monotonic() + RECORD_S
                self._changed.notify_all()

    @contextmanager
    def quiet(self, timeout_s: float) -> Iterator[bool]:
        """Yields True if no admission is in progress within the timeout; then none starts inside
        the block."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._allocating or time.monotonic() < self._busy_until:
                if time.monotonic() >= deadline:
                    break
                self._changed.wait(min(deadline, self._wake_at()) - time.monotonic())
            ready = not self._allocating and time.monotonic() >= self._busy_until
            self._listing += ready
        try:
            yield ready
        finally:
            with self._changed:
                self._listing -= ready
                self._changed.notify_all()

    def _wake_at(self) -> float:
        return float("inf") if self._allocating else self._busy_until


class PodResourcesClient:
    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def list(self, timeout_s: float) -> tuple[ContainerDevices, ...]:
        """Containers in the kubelet's order, with the devices that this agent serves. Raises
        OSError with a sentence."""
        with self._lock:
            if self._channel is None:
                self._channel = grpc.insecure_channel(f"unix:{self.socket}", options=CHANNEL)
            channel = self._channel
        try:
            answer = rpc.PodResourcesListerStub(channel).List(
                pb.ListPodResourcesRequest(), timeout=timeout_s
            )
        except (grpc.RpcError, ValueError) as error:
            with self._lock:
                if self._channel is channel:
                    self._channel = None
            channel.close()
            raise OSError(_why_not(self.socket, error)) from None
        return tuple(
            ContainerDevices(pod.namespace, pod.name, container.name, _served(container))
            for pod in answer.pod_resources
            for container in pod.containers
        )

    def close(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
        if channel:
            channel.close()


def _served(container: pb.ContainerResources) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A resource may have several entries, one per NUMA node."""
    held: dict[str, list[str]] = {}
    for devices in container.devices:
        if table.served(devices.resource_name):
            held.setdefault(devices.resource_name, []).extend(devices.device_ids)
    return tuple((name, tuple(sorted(ids))) for name, ids in sorted(held.items()) if ids)


def _why_not(socket: Path, error: Exception) -> str:
    try:
        there = socket.exists()
    except PermissionError:
        there = True
    if not there:
        return f"{socket} does not exist; is the directory mounted, and is the kubelet running?"
    why = details(error)
    if "Permission denied" in why:
        return f"no permission for {socket}; the agent must run as root"
    return f"{socket} does not answer: {why}"


class ObservedGrants:
    """Keeps the node's grants as pod-resources lists them."""

    def __init__(
        self,
        node: AgentNode,
        client: PodResourcesClient,
        admissions: AdmissionGate,
        unlisted: UnlistedPods | None = None,
    ) -> None:
        self._node, self._client, self._admissions = node, client, admissions
        self._unlisted = unlisted
        self._log = StateLogger(log)
        self._refreshing = threading.Lock()
        self._wake = threading.Event()
        self._allocated = 0  # Allocate calls so far
        self._confirmed = 0  # Allocate calls that the last List has certainly seen

    def stale(self) -> None:
        """Call after Allocate: the known grants are out of date."""
        self._allocated += 1
        self._wake.set()

    def refresh(self, timeout_s: float) -> bool:
        """Returns True if the grants include the last Allocate before this call."""
        target = self._allocated
        with self._refreshing:
            if 0 < target <= self._confirmed:
                return True
            with self._admissions.quiet(timeout_s) as ready:
                return ready and self._list()

    def _list(self) -> bool:
        seen, began = self._allocated, time.monotonic()
        try:
            listed = self._client.list(timeout_s=1.0)
        except OSError as error:
            self._log.failed(f"pod-resources unavailable: {error}")
            if self._unlisted and not self._node.state.grants_known:
                self._node.set_unlisted(self._unlisted.allocations(None))
            return False
        self._log.ok(f"connected to pod-resources at {self._client.socket}")
        self._confirmed = seen
        grants = tuple(
            Grant(row.namespace, row.pod, row.container, resource, ids)
            for row in listed
            for resource, ids in row.devices
        )
        unlisted = self._unlisted.allocations(grants) if self._unlisted else ()
        unplaced = self._node.state.unplaced(grants)
        orphaned = self._unlisted.addresses(unplaced) if self._unlisted and unplaced else {}
        self._node.set_grants(grants, unlisted, began, orphaned)
        return True

    def look_for(self, plans: tuple[Grant, ...]) -> None:
        """Call when plans arrive. Lists at once if a plan needs a GPU that is allocated in another
        way: the scheduler may know earlier than the agent that its pod has ended."""
        allocated = self._node.state.allocated()
        for plan in plans:
            other = allocated.shared.keys() if plan.resource == GPU else allocated.whole
            if plan.resource in (GPU, GPU_SHARE) and not other.isdisjoint(plan.device_ids):
                self._confirmed = -1
                self.refresh(0.5)
                return

    def holder(
        self, resource: str, device_ids: tuple[str, ...], timeout_s: float
    ) -> ContainerKey | None:
        """The container that holds exactly these devices; None if unknown."""
        wanted = resource, tuple(sorted(device_ids))
        for _ in range(2):
            if not self.refresh(timeout_s):
                return None
            for grant in self._node.state.grants:
                if (grant.resource, grant.device_ids) == wanted:
                    return grant.namespace, grant.pod, grant.container
            self._confirmed = -1  # a kubelet on a busy node may record the answer late: list again
        return None

    def run(self, every_s: float, stop: threading.Event) -> None:
        """Lists after every Allocate and periodically, because the kubelet does not report the end
        of pods; less often after CALM calls without a change."""
        same = 0
        while not stop.is_set():
            self._wake.clear()
            before = self._node.state.grants
            with self._refreshing, self._admissions.quiet(0.5) as ready:
                done = ready and self._list()
            same = same + 1 if done and self._node.state.grants == before else 0
            pause_s = every_s * (SELDOM if same > CALM and not self._must_return_soon() else 1)
            if self._wake.wait(pause_s if done else min(every_s, 0.5)):
                same = 0

    def _must_return_soon(self) -> bool:
        """Whether a GPU is withheld from one of the kubelet's lists because it is allocated in
        another way. It must return soon after its pod ends."""
        state = self._node.state
        shared = any(gpu.shares for gpu in state.topology.gpus)
        held = any(grant.resource in (GPU, GPU_SHARE) for grant in state.grants)
        return bool(state.orphaned) or (shared and held)

    def stop(self) -> None:
        self._wake.set()
