"""How surely a cap of memory holds on each GPU that may be shared: as it is configured, as the node is
able to, and as long as nobody who is on the GPU would be disturbed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.sharing.sharing_mode import AUTO, WHOLE, SharingMode, SharingModes
from protos import gpu_sharing
from protos.topology import Gpu, NodeTopology

MPS = "mps"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Why caps of memory can't be made to hold so on this node; empty: they can."""

    kernel: str
    mps: str
    watch: str

    def why_not(self, level: str) -> str:
        return {"kernel": self.kernel, MPS: self.mps, "watch": self.watch}.get(level, "")

    def best(self) -> str:
        """Without a change to the GPU that others would notice: MPS is for those who ask for it."""
        return next((level for level in ("kernel", "watch") if not self.why_not(level)), "none")


def with_sharing(
    topology: NodeTopology,
    ways: SharingModes,
    able: Capabilities,
    running: Mapping[str, str],
    troubles: Mapping[str, str],
) -> NodeTopology:
    """The same topology; its GPUs say whether shares of them are offered, how caps hold there, and why
    not. running: how those hold that have shares of it now; troubles: of MPS; both by uuid."""
    gpus = tuple(
        gpu
        if gpu.mig
        else _with_sharing(
            gpu,
            ways.of(gpu.index),
            able,
            running.get(gpu.uuid, ""),
            troubles.get(gpu.uuid, ""),
        )
        for gpu in topology.gpus
    )
    return replace(topology, gpus=gpus)


def _with_sharing(
    gpu: Gpu, way: SharingMode, able: Capabilities, running: str, trouble: str
) -> Gpu:
    wanted = able.best() if way.mode == AUTO else way.mode
    if running and (running == MPS) != (wanted == MPS):
        # One GPU serves clients of MPS or others, never both.
        then = "whole again" if wanted == WHOLE else f"shared by {wanted}"
        return _shut(gpu, running, f"shared by {running}; {then} when the pods there have ended")
    if wanted == WHOLE:
        return _shut(gpu, running or "none", "")
    if why := able.why_not(wanted):
        return _shut(gpu, running or "none", f"not shared by {wanted}: {why}")
    if wanted == MPS and trouble:
        return _shut(gpu, MPS, trouble)
    return replace(gpu, shares=gpu_sharing.WHOLE, enforcement=wanted, share_why="")


def _shut(gpu: Gpu, level: str, why: str) -> Gpu:
    """No more of it is given; who has a share of it keeps it."""
    return replace(gpu, shares=0, enforcement=level, share_why=why)
