"""The kubelet's pod-resources API: which container holds which devices.

A kubelet that prunes ended pods while it answers List forgets the devices of an Allocate that it has
not recorded yet, and offers them again. So after an Allocate nothing calls List until the kubelet's
checkpoint has it, for a while; and whatever the kubelet offers, devices are not allocated again that
pod-resources lists, that the checkpoint has for a running pod, or that were just allocated.

An allocation that is not listed yet ends when pod-resources lists it, or when the kubelet has given
it up: it offers the devices again although it admits one pod at a time, and neither pod-resources
nor the checkpoint has them, or the pod of the checkpoint's entry has no process.

The kubelet answers 100 calls a second, for all clients of the node together, and rejects the others.
A rejected call is repeated after a short random pause, and callers share each answer.

Design: docs/design/kubelet.md
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from pathlib import Path

import grpc
from google.protobuf.message import DecodeError

from agent import other_plugins
from agent.allocations import Allocation, Forgotten
from agent.backoff import Backoff, StateLogger
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.node import AgentNode
from agent.resources import table
from agent.resources.device_resource import ContainerDevices, ContainerKey, Held
from agent.sockets import CHANNEL, details
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of
from protos.stubs import podresources_pb2 as pb
from protos.topology import Grant

log = logging.getLogger(__name__)

CALM = 6  # List calls without a change, after which the interval grows
SELDOM = 6  # factor of the longer interval
POLL_S = 0.01
LIST_S = 1.0  # timeout of calls that wait for nothing
LIST = "/v1.PodResourcesLister/List"
SETTLE_S = 0.5  # longest wait for the kubelet's record; nothing relies on it
# Pauses before a call is repeated: the first and the longest. Rejected calls cost the other clients
# nothing, and the more of them, the sooner one is answered.
REJECTED_S = (0.004, 0.02)
FAILED_S = (0.05, 0.5)
LASTING = (
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT,
)


class Failed(OSError):
    """pod-resources does not answer, and may do so soon."""


class Rejected(Failed):
    """The kubelet answers too many other calls."""


class PodResourcesClient:
    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def list(self, timeout_s: float, rejected_s: float = 0.0) -> tuple[ContainerDevices, ...]:
        """Lists containers in the kubelet's order, with the devices that this agent serves. Raises
        OSError with a sentence: Rejected, Failed, or another one if no attempt can help.

        timeout_s: for an answer, and for further attempts after errors that may pass
        rejected_s: the same while the kubelet rejects calls, if longer
        """
        began = time.monotonic()
        rejections, failures = Backoff(*REJECTED_S), Backoff(*FAILED_S)
        while True:
            try:
                return self._list(timeout_s)
            except Failed as error:
                rejected = isinstance(error, Rejected)
                pause_s = (rejections if rejected else failures).pause_s()
                most_s = max(timeout_s, rejected_s) if rejected else timeout_s
                if time.monotonic() + pause_s > began + most_s:
                    raise
            time.sleep(pause_s)

    def _list(self, timeout_s: float) -> tuple[ContainerDevices, ...]:
        with self._lock:
            if self._channel is None:
                self._channel = grpc.insecure_channel(f"unix:{self.socket}", options=CHANNEL)
            channel = self._channel
        # Read here: the stub logs a traceback for each answer that is no message.
        call: Callable[..., bytes] = channel.unary_unary(
            LIST, pb.ListPodResourcesRequest.SerializeToString
        )
        try:
            answer = pb.ListPodResourcesResponse.FromString(
                call(pb.ListPodResourcesRequest(), timeout=timeout_s)
            )
        except DecodeError as error:
            raise OSError(f"{self.socket} answers with what is no message: {error}") from None
        except (grpc.RpcError, ValueError) as error:
            code, why = getattr(error, "code", lambda: None)(), details(error)
            if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" not in why:
                raise Rejected(
                    f"{self.socket} answers too many calls of other clients on this node ({why})"
                ) from None
            with self._lock:
                if self._channel is channel:
                    self._channel = None
            channel.close()
            raise _failure(self.socket, code, why) from None
        return tuple(
            ContainerDevices(pod.namespace, pod.name, container.name, *_devices(container))
            for pod in answer.pod_resources
            for container in pod.containers
        )

    def close(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
        if channel:
            channel.close()


def _devices(container: pb.ContainerResources) -> tuple[Held, Held]:
    """Devices that this agent serves, and those that may be another plugin's. A resource may have an entry per NUMA node."""
    held: dict[str, list[str]] = {}
    for devices in container.devices:
        held.setdefault(devices.resource_name, []).extend(devices.device_ids)
    found = [(name, tuple(sorted(ids))) for name, ids in sorted(held.items()) if ids]
    own = tuple(each for each in found if table.is_own(*each))
    return own, tuple(each for each in found if not other_plugins.is_certain(*each))


def _failure(socket: Path, code: grpc.StatusCode | None, why: str) -> OSError:
    try:
        mounted, there = socket.parent.exists(), socket.exists()
    except PermissionError:
        mounted = there = True
    if not there:
        kind = Failed if mounted else OSError
        return kind(
            f"{socket} does not exist; is the directory mounted, and is the kubelet running?"
        )
    if "Permission denied" in why:
        return OSError(f"no permission for {socket}; the agent must run as root")
    lasting = code in LASTING or code == grpc.StatusCode.RESOURCE_EXHAUSTED
    return (OSError if lasting else Failed)(f"{socket} does not answer: {why}")


class ObservedGrants:
    """Keeps the node's grants as pod-resources lists them."""

    def __init__(self, node: AgentNode, client: PodResourcesClient, unlisted: UnlistedPods) -> None:
        self._node, self._client, self._unlisted = node, client, unlisted
        self._log, self._held_back = StateLogger(log), StateLogger(log)
        self._refreshing = threading.Lock()
        self._wake = threading.Event()
        self._allocated_at = inf  # monotonic time of the last Allocate of this run
        # the last answer, and the monotonic time of its call
        self._listed: tuple[tuple[ContainerDevices, ...], float] = (), -inf

    def stale(self) -> None:
        """Call after Allocate: the known grants are out of date."""
        self._allocated_at = time.monotonic()
        self._wake.set()

    def refresh(self, timeout_s: float, rejected_s: float = 0.0, *, again: bool = False) -> bool:
        """Returns True if the grants include the last Allocate before this call; with again, if they
        are newer than this call. Raises Rejected if rejected_s is not 0."""
        if not again and self._listed[1] > self._allocated_at:
            return True
        self._settle(min(timeout_s, SETTLE_S))
        since = time.monotonic() if again else self._allocated_at
        return self._list(since, timeout_s, rejected_s) is not None

    def list_now(
        self, timeout_s: float, offered: Collection[str] = (), rejected_s: float = 0.0
    ) -> tuple[ContainerDevices, ...] | None:
        """The containers as pod-resources lists them at this moment; None if it does not answer.
        Raises Rejected if rejected_s is not 0.

        offered: devices that the kubelet takes for free
        timeout_s, rejected_s: see PodResourcesClient.list
        """
        return self._list(time.monotonic(), timeout_s, rejected_s, offered)

    def _settle(self, timeout_s: float) -> None:
        """Waits until the kubelet has recorded what was allocated."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not all(
            self._unlisted.recorded(each) for each in self._node.state.allocations
        ):
            time.sleep(POLL_S)

    def _list(
        self, since: float, timeout_s: float, rejected_s: float = 0.0, offered: Collection[str] = ()
    ) -> tuple[ContainerDevices, ...] | None:
        """Lists unless the last answer is to a call after that monotonic time: one call serves all
        that wait for it."""
        if not self._refreshing.acquire(timeout=max(timeout_s, rejected_s)):
            if rejected_s:
                raise Rejected(f"{self._client.socket} has not answered another call")
            return None
        try:
            listed, began = self._listed
            if began < since:
                began = time.monotonic()
                listed = self._client.list(timeout_s, rejected_s)
                self._listed = listed, began
            self._apply(listed, began, offered)
        except OSError as error:
            self._unavailable(error)
            if rejected_s and isinstance(error, Rejected):
                raise
            return None
        finally:
            self._refreshing.release()
        return listed

    def _unavailable(self, error: OSError) -> None:
        self._log.failed(f"pod-resources unavailable: {error}")
        state = self._node.state
        unlisted = self._unlisted.allocations(None)
        forgotten, others = self._unlisted.forgotten(None), None
        if not state.grants_known:
            others = self._unlisted.others(None)
        self._node.set_unlisted(
            state.unlisted if state.grants_known else unlisted, forgotten, others
        )
        self._tell(self._node.state.forgotten)

    def _apply(
        self, listed: tuple[ContainerDevices, ...], began: float, offered: Collection[str]
    ) -> None:
        self._log.ok(f"connected to pod-resources at {self._client.socket}")
        grants = tuple(
            Grant(row.namespace, row.pod, row.container, resource, ids)
            for row in listed
            for resource, ids in row.devices
        )
        unlisted = self._unlisted.allocations(grants)
        forgotten = self._unlisted.forgotten(grants)
        unplaced = self._node.state.unplaced(grants)
        orphaned = self._unlisted.addresses(unplaced) if unplaced else {}
        given_up = partial(self._given_up, offered)
        others = self._unlisted.others(listed)
        self._node.set_grants(
            *(grants, unlisted, began),
            orphaned=orphaned,
            forgotten=forgotten,
            others=others,
            given_up=given_up,
        )
        self._tell(self._node.state.forgotten)

    def _given_up(self, offered: Collection[str], allocation: Allocation) -> bool:
        if set(offered).isdisjoint(allocation.device_ids):
            return False
        entry = self._unlisted.recorded(allocation)
        return entry is None or not self._unlisted.runs(entry)

    def _tell(self, forgotten: tuple[Forgotten, ...]) -> None:
        index = {gpu.uuid: gpu.index for gpu in self._node.state.topology.gpus}
        parts = []
        for one in forgotten:
            gpus = sorted({str(index.get(uuid, uuid)) for uuid in map(device_of, one.device_ids)})
            parts.append(f"GPU {','.join(gpus)}: {one.why}")
        if parts:
            self._held_back.failed(f"held back: {'; '.join(parts)}")
        else:
            self._held_back.ok("no GPU is held back")

    def look_for(self, plans: tuple[Grant, ...]) -> None:
        """Call when plans arrive. Lists at once if a plan needs a GPU that is allocated in another
        way: the scheduler may know earlier than the agent that its pod has ended."""
        allocated = self._node.state.allocated()
        for plan in plans:
            other = allocated.shared.keys() if plan.resource == GPU else allocated.whole
            if plan.resource in (GPU, GPU_SHARE) and not other.isdisjoint(plan.device_ids):
                self.refresh(0.5, again=True)
                return

    def holder(
        self, resource: str, device_ids: tuple[str, ...], timeout_s: float, rejected_s: float = 0.0
    ) -> ContainerKey | None:
        """The container that holds exactly these devices; None if unknown. Raises Rejected if
        rejected_s is not 0."""
        wanted = resource, tuple(sorted(device_ids))
        for again in (False, True):  # a kubelet on a busy node may record the answer late
            if not self.refresh(timeout_s, rejected_s, again=again):
                return None
            for grant in self._node.state.grants:
                if (grant.resource, grant.device_ids) == wanted:
                    return grant.namespace, grant.pod, grant.container
        return None

    def run(self, every_s: float, stop: threading.Event) -> None:
        """Lists after every Allocate and periodically, because the kubelet does not report the end
        of pods; less often after CALM calls without a change."""
        same, woken = 0, False
        while not stop.is_set():
            self._wake.clear()
            before = self._node.state.grants
            self._settle(SETTLE_S)
            since = self._allocated_at if woken else time.monotonic()
            done = self._list(since, LIST_S) is not None
            same = same + 1 if done and self._node.state.grants == before else 0
            pause_s = every_s * (SELDOM if same > CALM and not self._must_return_soon() else 1)
            woken = self._wake.wait(pause_s if done else min(every_s, 0.5))
            if woken:
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
