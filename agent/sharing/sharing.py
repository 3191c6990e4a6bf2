"""GPUs in shares, as the agent serves them: in which way each GPU is offered, what a container with a share
is told, and what must hold before its first process runs."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from agent.kubelet import checkpoint
from agent.machine.facts import GpuFacts, Unusable
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.nvml.processes import MemoryByPid
from agent.resources.device_resource import ContainerKey, Refused
from agent.settings import Settings
from agent.sharing import caps, kernel_caps
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
    """processes: see agent.nvml.processes; raises Unusable or TimedOut."""

    def __init__(self, settings: Settings, node: AgentNode, processes: Processes) -> None:
        self._settings, self._node, self._processes = settings, node, processes
        self._plugins = settings.kubelet_dir / "device-plugins"
        self._policy = SharePolicy(settings.share_config, node.name, settings.share_gpus)
        self._responses = AllocateResponses(self._plugins)
        self._setup = GpuSetupClient(settings.sharing_dir)
        self._kernel = KernelCaps(
            Nvml(settings.driver_root), settings.cgroup_root, settings.proc_root
        )
        self._seen: dict[str, str] = {}  # by uuid: why it was not offered, as it was told last
        self._driver_tells = False
        self._lock = threading.Lock()  # of what is wanted of GPUs
        self._ways: dict[str, SharingMode] = {}  # by uuid
        self.used: dict[tuple[str, ...], int] = {}  # bytes, by shares: where the kernel tells

    # What is offered

    def with_sharing(self, topology: NodeTopology, facts: Sequence[GpuFacts]) -> NodeTopology:
        """The same topology; its GPUs say how shares of them are offered."""
        ways = self._policy.current()
        self._ways = {gpu.uuid: ways.of(gpu.index) for gpu in topology.gpus}
        said = by_gpu(self._responses.current(self._node.state))
        running = {
            # Whose level is not known is disturbed least where MPS does not come.
            uuid: MPS if any(each.level == MPS for each in rows) else rows[0].level or "none"
            for uuid, rows in said.items()
        }
        troubles = self._setup.troubles({gpu.uuid: gpu.capability for gpu in facts})
        made = with_sharing(topology, ways, self._capabilities(topology), running, troubles)
        for gpu in made.gpus:
            if gpu.share_why != self._seen.get(gpu.uuid, ""):
                log.warning("GPU %d: %s", gpu.index, gpu.share_why or "it is shared again")
                self._seen[gpu.uuid] = gpu.share_why
        return made

    def _capabilities(self, topology: NodeTopology) -> Capabilities:
        s = self._settings
        if s.capture:
            return Capabilities(CAPTURED, self._setup.why_not(), CAPTURED)
        well = [gpu.uuid for gpu in topology.gpus if gpu.healthy and not gpu.mig]
        if not well:
            why = "no GPU is fit"
            return Capabilities(why, why, why)
        limits = self._kernel.why_not(well[0]) if s.gpu_memory == "auto" else _off(s.gpu_memory)
        watch = self._unwatched(well) if s.gpu_memory != "none" else _off(s.gpu_memory)
        return Capabilities(limits, self._setup.why_not(), watch)

    def _unwatched(self, uuids: Sequence[str]) -> str:
        """Why processes can't be watched; empty: they can."""
        numbers = kernel_caps.status(self._settings.proc_root).get("NSpid", "").split()
        if len(numbers) != 1:
            # Drivers leave out processes that have no number where the one who asks is.
            return "the agent does not see the host's processes (hostPID)"
        if self._driver_tells:
            return ""
        try:
            told = self._processes(uuids)
        except (Unusable, TimedOut) as error:
            return str(error)
        self._driver_tells = bool(told) and all(used is not None for used in told.values())
        return "" if self._driver_tells else "the driver tells nothing of processes"

    # What a container is told

    def response(
        self, ids: tuple[str, ...], state: NodeState, meant: Collection[ContainerKey]
    ) -> tuple[dict[str, str], Mounts]:
        """Variables and mounts for who gets these shares of one GPU. meant: who it may be. Raises
        ValueError where its cap can't be known, or would not hold as surely as it must."""
        uuid, part = device_of(ids[0]), len(ids)
        gpu = next((gpu for gpu in state.topology.gpus if gpu.uuid == uuid), None)
        level = gpu.enforcement if gpu else "none"
        served = {
            (g.namespace, g.pod, g.container) for g in state.grants if g.resource == GPU_SHARE
        }
        asked = caps.asked(state.intents, uuid, part, meant, served)
        if level == MPS and len(asked) > 1:
            raise ValueError(
                f"{len(asked)} pods with unlike caps of GPU memory wait for such a share"
            )
        wish = next(iter(asked)) if len(asked) == 1 else caps.NO_CAP
        if RANKS[level] < wish.least:
            raise ValueError(
                f"its GPU enforces caps of memory by {level}, which is less than it must"
            )
        said = ShareSettings(level, wish.cap, self._ways.get(uuid, SharingMode()).time_slice)
        with self._lock:
            self._responses.record(ids, said)
            everyone = by_gpu(self._responses.current(self._node.state)).get(uuid, [])
            if level == MPS and len(everyone) > CLIENTS:
                raise ValueError(
                    f"MPS serves {CLIENTS} clients of a GPU: it has as many containers"
                )
            self._setup.request(uuid, everyone, gpu.memory_bytes if gpu else 0)
        envs = {LEVEL: level}
        if wish.cap:
            envs[CAP] = str(wish.cap)
        if said.time_slice:
            envs[TIME_SLICE] = said.time_slice
        if level != MPS:
            return envs, ()
        more, mounts = self._setup.client_access(uuid, part, said)
        return envs | more, mounts

    # What must hold

    def pre_start(self, ids: tuple[str, ...], holder: ContainerKey | None) -> None:
        """Before the first process of a container with these shares. Raises Refused."""
        uuid, said = device_of(ids[0]), self._responses.get(ids)
        plan = caps.of(self._node.state.intents, holder) if holder else None
        wish = plan or caps.MemoryCap(said.cap)
        if said.level and RANKS.get(said.level, 0) < wish.least:
            raise Refused(
                f"its GPU enforces caps of memory by {said.level}, which is less than it must"
            )
        if said.level == MPS:
            if wish.cap != said.cap:
                raise Refused(
                    f"it was given a cap of {said.cap} bytes of GPU memory and is to have {wish.cap}: "
                    "delete the pod, and it is given the right one"
                )
            self._setup.wait(uuid)
        if said.level == "kernel" and wish.cap:
            self._kernel.set(uuid, self._pod(ids), wish.cap)

    def _pod(self, ids: tuple[str, ...]) -> str:
        """Whose these are, by uid. Raises Refused."""
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            raise Refused(str(error)) from None
        for entry in entries:
            if (entry.resource, entry.device_ids) == (GPU_SHARE, ids):
                return entry.uid
        raise Refused("the kubelet's checkpoint does not say whose these shares are")

    # While pods run

    def keep(self) -> None:
        """What is wanted of GPUs follows who has shares of them; caps that were lost are set again."""
        with self._lock:
            state = self._node.state
            if not state.grants_known:
                return  # nobody is known to have left
            said = self._responses.current(state)
            rows = by_gpu(said)
            sizes = {gpu.uuid: gpu.memory_bytes for gpu in state.topology.gpus}
            for uuid, each in rows.items():
                self._setup.request(uuid, each, sizes.get(uuid, 0))
            self._setup.release_others(rows)
        self._keep_caps(state, said)

    def _keep_caps(self, state: NodeState, said: Mapping[tuple[str, ...], ShareSettings]) -> None:
        holders = {
            tuple(sorted(g.device_ids)): (g.namespace, g.pod, g.container)
            for g in state.grants
            if g.resource == GPU_SHARE
        }
        used: dict[tuple[str, ...], int] = {}
        for ids in [ids for ids, each in said.items() if each.level == "kernel"]:
            wish = caps.of(state.intents, holders[ids]) if ids in holders else None
            cap = wish.cap if wish else said[ids].cap
            try:
                pod = self._pod(ids) if cap else ""
            except Refused:
                continue
            uuid = device_of(ids[0])
            if pod and (found := self._kernel.keep(uuid, pod, cap)) is not None:
                used[ids] = found
        self.used = used

    def settings(self) -> dict[tuple[str, ...], ShareSettings]:
        """What those who have shares were told."""
        return self._responses.current(self._node.state)

    def watched(self, ids: tuple[str, ...]) -> bool:
        """Whether who has these shares is to be watched: not, who was told that caps do not hold."""
        return self._responses.get(tuple(sorted(ids))).level != "none"


def _off(word: str) -> str:
    return f"--gpu-memory is {word}"
