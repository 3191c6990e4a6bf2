"""Sharing of GPUs as the agent serves it: the enforcement on each GPU, what a container with shares
gets, and what must hold before its first process runs."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from agent import cgroups
from agent.kubelet import checkpoint
from agent.machine.facts import GpuFacts, Unusable
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.nvml.processes import MemoryByPid
from agent.resources.device_resource import ContainerKey, Refused
from agent.settings import Settings
from agent.sharing import caps
from agent.sharing.enforcement import MPS, Capabilities, with_sharing
from agent.sharing.kernel_caps import KernelCaps, Nvml
from agent.sharing.mps_client import CLIENTS, GpuSetupClient
from agent.sharing.responses import CAP, LEVEL, TIME_SLICE, AllocateResponses, ShareSettings, by_gpu
from agent.sharing.share_policy import SharePolicy
from agent.sharing.sharing_mode import SharingMode
from agent.timeout_call import TimedOut
from protos.gpu_sharing import RANKS
from protos.names import GPU_SHARE
from protos.nearest import device_of
from protos.topology import NodeTopology

log = logging.getLogger(__name__)

Processes = Callable[[Sequence[str]], Mapping[str, MemoryByPid | None]]
Mounts = tuple[tuple[str, str, bool], ...]
CAPTURED = "the machine is a capture"


class Sharing:
    """processes: memory by process (agent.nvml.processes); raises Unusable or TimedOut."""

    def __init__(self, settings: Settings, node: AgentNode, processes: Processes) -> None:
        self._settings, self._node, self._processes = settings, node, processes
        self._plugins = settings.kubelet_dir / "device-plugins"
        self._policy = SharePolicy(settings.share_config, node.name, settings.share_gpus)
        self._responses = AllocateResponses(self._plugins)
        self._setup = GpuSetupClient(settings.sharing_dir)
        self._kernel = KernelCaps(
            Nvml(settings.driver_root), settings.cgroup_root, settings.proc_root
        )
        self._logged: dict[str, str] = {}  # by UUID: why it was not shared, as last logged
        self._driver_reports = False
        self._lock = threading.Lock()  # of the setup requests
        self._modes: dict[str, SharingMode] = {}  # by UUID
        self.used: dict[tuple[str, ...], int] = {}  # bytes by share ids, if the kernel counts them

    # Enforcement

    def with_sharing(self, topology: NodeTopology, facts: Sequence[GpuFacts]) -> NodeTopology:
        """The topology with each GPU's shares and enforcement."""
        modes = self._policy.current()
        self._modes = {gpu.uuid: modes.of(gpu.index) for gpu in topology.gpus}
        settings = by_gpu(self._responses.current(self._node.state))
        running = {
            # Holders of unknown enforcement are disturbed least if MPS is not started.
            uuid: MPS if any(each.level == MPS for each in rows) else rows[0].level or "none"
            for uuid, rows in settings.items()
        }
        troubles = self._setup.troubles({gpu.uuid: gpu.capability for gpu in facts})
        made = with_sharing(topology, modes, self._capabilities(topology), running, troubles)
        for gpu in made.gpus:
            if gpu.share_why != self._logged.get(gpu.uuid, ""):
                log.warning("GPU %d: %s", gpu.index, gpu.share_why or "shared again")
                self._logged[gpu.uuid] = gpu.share_why
        return made

    def _capabilities(self, topology: NodeTopology) -> Capabilities:
        s = self._settings
        if s.capture:
            return Capabilities(CAPTURED, self._setup.why_not(), CAPTURED)
        healthy = [gpu.uuid for gpu in topology.gpus if gpu.healthy and not gpu.mig]
        if not healthy:
            why = "no GPU is healthy"
            return Capabilities(why, why, why)
        limits = self._kernel.why_not(healthy[0]) if s.gpu_memory == "auto" else _off(s.gpu_memory)
        watch = self._why_not_watch(healthy) if s.gpu_memory != "none" else _off(s.gpu_memory)
        return Capabilities(limits, self._setup.why_not(), watch)

    def _why_not_watch(self, uuids: Sequence[str]) -> str:
        """Returns why the memory of processes cannot be watched; "" if it can."""
        if not cgroups.sees_host(self._settings.proc_root):
            return "the agent does not see the host's processes (hostPID is not set)"
        if self._driver_reports:
            return ""
        try:
            usage = self._processes(uuids)
        except (Unusable, TimedOut) as error:
            return str(error)
        self._driver_reports = bool(usage) and all(used is not None for used in usage.values())
        return "" if self._driver_reports else "the driver does not report the memory of processes"

    # Allocate

    def response(
        self, ids: tuple[str, ...], state: NodeState, meant: Collection[ContainerKey]
    ) -> tuple[dict[str, str], Mounts]:
        """Environment variables and mounts for the container that gets these shares of one GPU.
        meant: the containers that it may be. Raises ValueError if its cap is ambiguous, or if the
        GPU's enforcement is weaker than required."""
        uuid, count = device_of(ids[0]), len(ids)
        gpu = next((gpu for gpu in state.topology.gpus if gpu.uuid == uuid), None)
        level = gpu.enforcement if gpu else "none"
        served = {
            (g.namespace, g.pod, g.container) for g in state.grants if g.resource == GPU_SHARE
        }
        found = caps.candidates(state.intents, uuid, count, meant, served)
        if level == MPS and len(found) > 1:
            raise ValueError(
                f"{len(found)} pods with different GPU memory caps are waiting for such a share"
            )
        wanted = next(iter(found)) if len(found) == 1 else caps.NO_CAP
        if RANKS[level] < wanted.least:
            raise ValueError(
                f"the GPU enforces memory caps by {level}, which is weaker than the pod requires"
            )
        settings = ShareSettings(level, wanted.cap, self._modes.get(uuid, SharingMode()).time_slice)
        with self._lock:
            self._responses.record(ids, settings)
            everyone = by_gpu(self._responses.current(self._node.state)).get(uuid, [])
            if level == MPS and len(everyone) > CLIENTS:
                raise ValueError(
                    f"an MPS server has at most {CLIENTS} clients; the GPU has as many containers"
                )
            self._setup.request(uuid, everyone, gpu.memory_bytes if gpu else 0)
        envs = {LEVEL: level}
        if wanted.cap:
            envs[CAP] = str(wanted.cap)
        if settings.time_slice:
            envs[TIME_SLICE] = settings.time_slice
        if level != MPS:
            return envs, ()
        more, mounts = self._setup.client_access(uuid, count, settings)
        return envs | more, mounts

    # PreStartContainer

    def pre_start(self, ids: tuple[str, ...], holder: ContainerKey | None) -> None:
        """Runs before the first process of the container with these shares. Raises Refused."""
        uuid, settings = device_of(ids[0]), self._responses.get(ids)
        plan = caps.for_container(self._node.state.intents, holder) if holder else None
        wanted = plan or caps.MemoryCap(settings.cap)
        if settings.level and RANKS.get(settings.level, 0) < wanted.least:
            raise Refused(
                f"the GPU enforces memory caps by {settings.level}, which is weaker than the "
                f"pod requires"
            )
        if settings.level == MPS:
            if wanted.cap != settings.cap:
                raise Refused(
                    f"it got a GPU memory cap of {settings.cap} bytes, but its plan has "
                    f"{wanted.cap}: delete "
                    "the pod so that a new one gets the planned cap"
                )
            self._setup.wait(uuid)
        if settings.level == "kernel" and wanted.cap:
            self._kernel.set(uuid, self._pod(ids), wanted.cap)

    def _pod(self, ids: tuple[str, ...]) -> str:
        """UID of the pod that holds the shares. Raises Refused."""
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            raise Refused(str(error)) from None
        for entry in entries:
            if (entry.resource, entry.device_ids) == (GPU_SHARE, ids):
                return entry.uid
        raise Refused("the kubelet's checkpoint does not list these shares")

    # While pods run

    def keep(self) -> None:
        """Updates the setup requests for the allocated shares, and restores lost caps."""
        with self._lock:
            state = self._node.state
            if not state.grants_known:
                return  # which shares are released is unknown
            settings = self._responses.current(state)
            rows = by_gpu(settings)
            sizes = {gpu.uuid: gpu.memory_bytes for gpu in state.topology.gpus}
            for uuid, each in rows.items():
                self._setup.request(uuid, each, sizes.get(uuid, 0))
            self._setup.release_others(rows)
        self._keep_caps(state, settings)

    def _keep_caps(
        self, state: NodeState, settings: Mapping[tuple[str, ...], ShareSettings]
    ) -> None:
        holders = {
            tuple(sorted(g.device_ids)): (g.namespace, g.pod, g.container)
            for g in state.grants
            if g.resource == GPU_SHARE
        }
        used: dict[tuple[str, ...], int] = {}
        for ids in [ids for ids, each in settings.items() if each.level == "kernel"]:
            plan = caps.for_container(state.intents, holders[ids]) if ids in holders else None
            cap = plan.cap if plan else settings[ids].cap
            try:
                pod = self._pod(ids) if cap else ""
            except Refused:
                continue
            uuid = device_of(ids[0])
            if pod and (found := self._kernel.keep(uuid, pod, cap)) is not None:
                used[ids] = found
        self.used = used

    def settings(self) -> dict[tuple[str, ...], ShareSettings]:
        """Settings of all allocated shares."""
        return self._responses.current(self._node.state)

    def watched(self, ids: tuple[str, ...]) -> bool:
        """Returns whether the container with these shares is watched: not if its enforcement is none."""
        return self._responses.get(tuple(sorted(ids))).level != "none"


def _off(word: str) -> str:
    return f"--gpu-memory={word}"
