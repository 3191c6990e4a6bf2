"""The enforcement of memory caps on each GPU that may be shared. It follows from the configuration and from the
node's capabilities, and does not change while a pod that it would affect runs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.sharing.sharing_mode import AUTO, WHOLE, SharingMode, SharingModes
from protos import gpu_sharing
from protos.topology import Gpu, NodeTopology

MPS = "mps"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Reasons why this node does not support an enforcement; "" if it does."""

    kernel: str
    mps: str
    watch: str

    def why_not(self, level: str) -> str:
        return {"kernel": self.kernel, MPS: self.mps, "watch": self.watch}.get(level, "")

    def best(self) -> str:
        """The strongest one that does not change the GPU for others; MPS has to be configured."""
        return next((level for level in ("kernel", "watch") if not self.why_not(level)), "none")


def with_sharing(
    topology: NodeTopology,
    modes: SharingModes,
    capabilities: Capabilities,
    running: Mapping[str, str],
    troubles: Mapping[str, str],
) -> NodeTopology:
    """The topology with the GPUs' shares, enforcement and reasons. running: enforcement of the
    allocated shares; troubles: failures of MPS; both by the GPU's UUID."""
    gpus = tuple(
        _closed(gpu, "none", "")
        if gpu.mig
        else _with_sharing(
            gpu,
            modes.of(gpu.index),
            capabilities,
            running.get(gpu.uuid, ""),
            troubles.get(gpu.uuid, ""),
        )
        for gpu in topology.gpus
    )
    return replace(topology, gpus=gpus)


def _with_sharing(
    gpu: Gpu, mode: SharingMode, capabilities: Capabilities, running: str, trouble: str
) -> Gpu:
    wanted = capabilities.best() if mode.by == AUTO else mode.by
    if running and (running == MPS) != (wanted == MPS):
        # A GPU serves either MPS clients or other processes, never both.
        then = "whole" if wanted == WHOLE else f"shared by {wanted}"
        return _closed(
            gpu, running, f"shared by {running}; will be {then} when its pods have ended"
        )
    if wanted == WHOLE:
        return _closed(gpu, running or "none", "")
    if why := capabilities.why_not(wanted):
        return _closed(gpu, running or "none", f"not shared by {wanted}: {why}")
    if wanted == MPS and trouble:
        return _closed(gpu, MPS, trouble)
    return replace(gpu, shares=gpu_sharing.WHOLE, enforcement=wanted, share_why="")


def _closed(gpu: Gpu, level: str, why: str) -> Gpu:
    """Returns the GPU without free shares; allocated ones stay."""
    return replace(gpu, shares=0, enforcement=level, share_why=why)
