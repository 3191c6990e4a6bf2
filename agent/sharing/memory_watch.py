"""Detection of pods that exceed their memory cap on a shared GPU. The memory of processes that the driver reports is
summed by pod (from the processes' cgroups) and compared with the caps in the scheduler's plans. The agent only
reports; the scheduler evicts."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent import cgroups
from agent.backoff import StateLogger
from agent.kubelet import checkpoint
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.nvml.processes import MemoryByPid
from protos.gpu_sharing import MEMORY
from protos.names import GPU_SHARE
from protos.nearest import device_of
from protos.topology import MemoryOver

log = logging.getLogger(__name__)

Read = Callable[[Sequence[str]], Mapping[str, MemoryByPid | None]]
Name = tuple[str, str]


def capped(state: NodeState) -> bool:
    """Returns whether a pod on this node has a cap."""
    return any(MEMORY in dict(plan.limits) for plan in state.intents)


class MemoryWatch:
    """read: memory by process; raises OSError or Unusable if the driver does not answer. watched:
    whether the container with these shares is watched."""

    def __init__(
        self,
        node: AgentNode,
        read: Read,
        proc_root: Path,
        plugins: Path,
        grace_s: float,
        *,
        watched: Callable[[tuple[str, ...]], bool] = lambda ids: True,
    ) -> None:
        self._node, self._read = node, read
        self._proc, self._plugins, self._grace_s = proc_root, plugins, grace_s
        self._watched = watched
        # pod UID and GPU: when it first exceeded the cap
        self._since: dict[tuple[str, str], float] = {}
        self._log = StateLogger(log)

    def measure(self, now: float) -> tuple[MemoryOver, ...]:
        state = self._node.state
        caps = {
            (plan.namespace, plan.pod): dict(plan.limits).get(MEMORY, 0)
            for plan in state.intents
            if plan.resource == GPU_SHARE
        }
        if not any(caps.values()):
            self._since.clear()
            return ()
        index = {gpu.uuid: gpu.index for gpu in state.topology.gpus}
        pods = self._pods(caps)
        gpus = sorted({gpu for _, gpu in pods.values() if gpu in index})
        try:
            usage = self._read(gpus)
        except Exception as error:  # noqa: BLE001  a driver may fail in any way
            self._log.failed(f"cannot read the memory of processes: {error}")
            return ()
        used: dict[str, int] = {}
        for gpu in gpus:
            for pid, size in (usage.get(gpu) or {}).items():
                uid = cgroups.pod_of(self._proc, pid)
                if uid in pods and pods[uid][1] == gpu:
                    used[uid] = used.get(uid, 0) + size
        over = {uid: size for uid, size in used.items() if size > caps[pods[uid][0]] > 0}
        self._since = {
            (uid, pods[uid][1]): self._since.get((uid, pods[uid][1]), now) for uid in over
        }
        found = []
        for uid, size in sorted(over.items()):
            name, gpu = pods[uid]
            late = now - self._since[uid, gpu] >= self._grace_s
            found.append(MemoryOver(*name, uid, index[gpu], size, caps[name], late))
        self._log.ok(f"{len(found)} pods exceed their GPU memory cap")
        return tuple(found)

    def _pods(self, caps: Mapping[Name, int]) -> dict[str, tuple[Name, str]]:
        """The watched pods with a cap, by UID: name and the GPU that they share."""
        holders = {
            (grant.container, grant.device_ids): (grant.namespace, grant.pod)
            for grant in self._node.state.grants
            if grant.resource == GPU_SHARE
            and caps.get((grant.namespace, grant.pod))
            and self._watched(grant.device_ids)
        }
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            self._log.failed(str(error))
            return {}
        return {
            entry.uid: (holders[entry.container, entry.device_ids], device_of(entry.device_ids[0]))
            for entry in entries
            if (entry.container, entry.device_ids) in holders
        }
