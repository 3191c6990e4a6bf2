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
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
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
from protos.gpu_sharing import key_of
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of
from protos.stubs import podresources_pb2 as pb
from protos.topology import Grant

log = logging.getLogger(__name__)

CALM = 6  # List calls without a change, after which the interval grows
SELDOM = 6  # factor of the longer interval
POLL_S = 0.01
LIST = "/v1.PodResourcesLister/List"
SETTLE_S = 0.5  # longest wait for the kubelet's record; nothing relies on it
ANSWER_S = 2.0  # for an answer, on busy nodes too, and for attempts after errors that may pass
# Pauses before a call is repeated: the first and the longest. A rejected call costs no other client anything.
REJECTED_S, FAILED_S = (0.004, 0.02), (0.05, 0.5)
LASTING = re.compile(
    "UNIMPLEMENTED|PERMISSION_DENIED|larger than max|Permission denied|No such file"
)


class Rejected(ConnectionError):
    """The kubelet answers too many other calls."""


class PodResourcesClient:
    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def list(self, time_s: float) -> tuple[ContainerDevices, ...]:
        """Lists containers in the kubelet's order, with the devices that this agent serves. Raises
        OSError with a sentence: Rejected after time_s, others after ANSWER_S at most."""
        began, answer_s = time.monotonic(), min(time_s, ANSWER_S)
        pauses = Backoff(*FAILED_S), Backoff(*REJECTED_S)
        while True:
            try:
                return self._list(answer_s)
            except ConnectionError as error:
                rejected = isinstance(error, Rejected)
                pause_s = pauses[rejected].pause_s()
                if time.monotonic() + pause_s > began + (time_s if rejected else answer_s):
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
            text = f"{error.code().name}: {details(error)}" if isinstance(error, grpc.Call) else ""
            lasting = LASTING.search(text)
            if text.startswith("RESOURCE_EXHAUSTED") and not lasting:
                raise Rejected(f"{self.socket} answers too many other calls: {text}") from None
            with self._lock:
                if self._channel is channel:
                    self._channel = None
            channel.close()
            raise (OSError if lasting else ConnectionError)(_why_not(self.socket, error)) from None
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
    """Devices that this agent serves, and those that may be another plugin's. A resource may have an entry per NUMA
    node."""
    held: dict[str, list[str]] = {}
    for devices in container.devices:
        held.setdefault(devices.resource_name, []).extend(devices.device_ids)
    found = [(name, tuple(sorted(ids))) for name, ids in sorted(held.items()) if ids]
    own = tuple(each for each in found if table.is_own(*each))
    return own, tuple(each for each in found if not other_plugins.is_certain(*each))


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

    def __init__(self, node: AgentNode, client: PodResourcesClient, unlisted: UnlistedPods) -> None:
        self._node, self._client, self._unlisted = node, client, unlisted
        self._log, self._held_back = StateLogger(log), StateLogger(log)
        self._refreshing = threading.Lock()
        self._wake = threading.Event()
        self._allocated_at = inf  # monotonic time of the last Allocate of this run
        self._listed: tuple[tuple[ContainerDevices, ...], float] = (), -inf  # at: monotonic

    def stale(self) -> None:
        """Call after Allocate: the known grants are out of date."""
        self._allocated_at = time.monotonic()
        self._wake.set()

    def refresh(self, time_s: float, since: float = inf) -> bool:
        """Returns whether list_now() has an answer in time."""
        with suppress(Rejected):
            return self.list_now(time_s, since=since) is not None
        return False

    def _settle(self, timeout_s: float) -> None:
        """Waits until the kubelet has recorded what was allocated."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not all(
            self._unlisted.recorded(each) for each in self._node.state.allocations
        ):
            time.sleep(POLL_S)

    def list_now(
        self, time_s: float, offered: Collection[str] = (), since: float = inf
    ) -> tuple[ContainerDevices, ...] | None:
        """The containers as pod-resources lists them at this moment, or listed them to another caller
        after the monotonic time `since`; None if it does not answer. Raises Rejected after time_s.
        offered: devices that the kubelet takes for free."""
        since = min(since, time.monotonic())
        if not self._refreshing.acquire(timeout=time_s):
            raise Rejected(f"{self._client.socket} has not answered the call before")
        try:
            listed, began = self._listed
            if began < since:
                began = time.monotonic()
                listed = self._client.list(time_s)
                self._listed = listed, began
            self._apply(listed, began, offered)
            return listed
        except OSError as error:
            self._log.failed(f"pod-resources unavailable: {error}")
            state, unlisted = self._node.state, self._unlisted.allocations(None)
            forgotten, others = self._unlisted.forgotten(None), None
            if state.grants_known:
                unlisted = state.unlisted
            else:
                others = self._unlisted.others(None)
            self._node.set_unlisted(unlisted, forgotten, others)
            self._tell(self._node.state.forgotten)
            if isinstance(error, Rejected):
                raise
            return None
        finally:
            self._refreshing.release()

    def _apply(
        self, listed: tuple[ContainerDevices, ...], began: float, offered: Collection[str]
    ) -> None:
        self._log.ok(f"connected to pod-resources at {self._client.socket}")
        grants = tuple(
            Grant(row.namespace, row.pod, row.container, resource, ids)
            for row in listed
            for resource, ids in row.devices
        )
        pods = {row.key[:2] for row in listed}
        planned = {plan.uid for plan in self._node.state.intents if key_of(plan)[:2] in pods}
        unlisted = self._unlisted.allocations(grants, planned)
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
                self.refresh(0.5)
                return

    def holder(
        self, resource: str, device_ids: tuple[str, ...], time_s: float
    ) -> ContainerKey | None:
        """The container that holds exactly these devices; None if unknown. Raises Rejected after time_s."""
        wanted = resource, tuple(sorted(device_ids))
        # A kubelet on a busy node may record the answer late.
        for since in (self._allocated_at, inf):
            self._settle(SETTLE_S)
            if self.list_now(time_s, since=since) is None:
                return None
            for grant in self._node.state.grants:
                if (grant.resource, grant.device_ids) == wanted:
                    return grant.namespace, grant.pod, grant.container
        return None

    def run(self, every_s: float, stop: threading.Event) -> None:
        """Lists after every Allocate and periodically, because the kubelet does not report the end
        of pods; less often after CALM calls without a change."""
        same, since = 0, inf
        while not stop.is_set():
            self._wake.clear()
            before = self._node.state.grants
            self._settle(SETTLE_S)
            done = self.refresh(ANSWER_S, since)
            same = same + 1 if done and self._node.state.grants == before else 0
            pause_s = every_s * (SELDOM if same > CALM and not self._must_return_soon() else 1)
            since = inf
            if self._wake.wait(pause_s if done else min(every_s, 0.5)):
                same, since = 0, self._allocated_at

    def _must_return_soon(self) -> bool:
        """Returns whether a GPU is withheld from one of the kubelet's lists because it is allocated in another way.
        It must return soon after its pod ends."""
        state = self._node.state
        shared = any(gpu.shares for gpu in state.topology.gpus)
        held = any(grant.resource in (GPU, GPU_SHARE) for grant in state.grants)
        return bool(state.orphaned) or (shared and held)

    def stop(self) -> None:
        self._wake.set()
