"""Device files of GPUs, MIG slices and RDMA NICs.

NVIDIA's container runtime adds the files of GPUs by itself; without it a container reaches its GPUs
only through the files that the agent passes. The agent always passes the files of RDMA NICs. A MIG
slice needs its GPU's file and one capability file for each of its instances."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from agent.bounded_files import exists, number, text_or_empty
from agent.machine import imex
from agent.node import AgentNode
from protos import slicing
from protos.topology import Gpu, Hca, Slice

SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
NEEDED = SHARED[:2]
CAPABILITIES = "driver/nvidia/capabilities"
MINORS = "driver/nvidia-caps/mig-minors"  # lists all possible capability files: path, minor number
MINORS_BYTES = 1 << 20  # of that file: a line for each possible instance of each GPU
T = TypeVar("T")


class DeviceFiles:
    """minors: minor numbers of the GPUs' files by UUID; they are not the indices. policy is the
    value of --pass-device-nodes: auto passes the files that exist, always raises ValueError if one
    is missing, never passes none."""

    def __init__(
        self,
        node: AgentNode,
        minors: Mapping[str, int],
        policy: str,
        dev_root: Path,
        proc_root: Path,
        *,
        imex_channel: int = -1,
    ) -> None:
        self._channel = imex_channel
        self._node, self._minors = node, minors
        self._policy, self._dev, self._proc = policy, dev_root, proc_root

    def of(self, uuids: Sequence[str]) -> tuple[str, ...]:
        """Files of GPUs or of MIG slices. Raises ValueError (policy always)."""
        topology = self._node.state.topology
        if parts := [each for each in slicing.of(topology) if each[1].uuid in uuids]:
            return slice_files(parts, self._minors, self._policy, self._dev, self._proc)
        return gpu_files(uuids, self._minors, self._policy, self._dev)

    def imex(self) -> tuple[int, tuple[str, ...]]:
        """The IMEX channel (-1: none) and its file. Raises ValueError (policy always)."""
        name = imex.channel_file(self._channel)
        there = self._channel >= 0 and exists(self._dev / name)
        if self._channel >= 0 and not there and self._policy == "always":
            raise ValueError(f"{name} is missing below {self._dev} (--pass-device-nodes=always)")
        if not there:
            return -1, ()
        return self._channel, () if self._policy == "never" else (f"/dev/{name}",)

    def of_nics(self, nics: Sequence[Hca]) -> tuple[str, ...]:
        names = [nic.uverbs for nic in nics if nic.uverbs]
        return nic_files(names, self._policy, self._dev)

    def gpus(self) -> dict[str, tuple[str, ...]]:
        """Files of each GPU and MIG slice by UUID, for CDI. Leaves out devices without a file and
        UUIDs that cannot be part of a CDI name."""
        topology = self._node.state.topology
        uuids = [gpu.uuid for gpu in topology.gpus if not gpu.mig]
        uuids += [part.uuid for _, part in slicing.of(topology) if "/" not in part.uuid]
        return {uuid: files for uuid in uuids if (files := _or_none(self.of, uuid))}

    def nics(self) -> dict[str, tuple[str, ...]]:
        """Files of each served RDMA NIC by name, for CDI."""
        nics = [nic for nic in self._node.state.topology.hcas if nic.shares]
        found = ((nic.name, _or_none(self.of_nics, nic)) for nic in nics)
        return {name: files for name, files in found if files}


def _or_none(files: Callable[[Sequence[T]], tuple[str, ...]], one: T) -> tuple[str, ...]:
    try:
        return files([one])
    except ValueError:  # --pass-device-nodes=always, and a file is missing
        return ()


def gpu_files(
    uuids: Iterable[str], minors: Mapping[str, int], policy: str, dev_root: Path
) -> tuple[str, ...]:
    uuids = tuple(uuids)
    if policy == "never" or not uuids:
        return ()
    own = [f"nvidia{minors[uuid]}" for uuid in uuids if minors.get(uuid, -1) >= 0]
    own = [name for name in own if exists(dev_root / name)]
    shared = [name for name in SHARED if exists(dev_root / name)]
    complete = len(own) == len(uuids) and all(name in shared for name in NEEDED)
    if not complete and policy == "always":
        raise ValueError(
            f"device files of GPU {', '.join(uuids)} are missing below {dev_root} "
            "(--pass-device-nodes=always)"
        )
    return tuple(f"/dev/{name}" for name in (*own, *shared)) if own else ()


def nic_files(uverbs: Iterable[str], policy: str, dev_root: Path) -> tuple[str, ...]:
    """The NICs' uverbs files, and rdma_cm for connection management."""
    names = [f"infiniband/{name}" for name in (*sorted(uverbs), "rdma_cm")]
    missing = [name for name in names if not exists(dev_root / name)]
    if policy == "always" and missing:
        raise ValueError(
            f"{', '.join(missing)} missing below {dev_root} (--pass-device-nodes=always)"
        )
    if policy == "never" or set(names[:-1]) <= set(missing):
        return ()
    return tuple(f"/dev/{name}" for name in names if name not in missing)


def slice_files(
    parts: Iterable[tuple[Gpu, Slice]],
    minors: Mapping[str, int],
    policy: str,
    dev_root: Path,
    proc_root: Path,
) -> tuple[str, ...]:
    """All files of a slice or none of them: a slice cannot be opened if one is missing."""
    if policy == "never":
        return ()
    shared = [name for name in SHARED if exists(dev_root / name)]
    found: list[str] = []
    for gpu, part in parts:
        names = _own(gpu, part, minors, proc_root)
        complete = bool(names) and all(exists(dev_root / name) for name in names)
        if policy == "always" and not (complete and set(NEEDED) <= set(shared)):
            raise ValueError(
                f"device files of {slicing.words(gpu, part)} are missing below {dev_root} "
                "(--pass-device-nodes=always)"
            )
        found += names if complete else ()
    return tuple(f"/dev/{name}" for name in dict.fromkeys((*found, *shared))) if found else ()


def _own(gpu: Gpu, part: Slice, minors: Mapping[str, int], proc_root: Path) -> list[str]:
    """Empty if a minor number is unknown."""
    minor = minors.get(gpu.uuid, -1)
    if minor < 0:
        return []
    instance = f"gi{part.gi}"
    numbers = [
        _capability_minor(proc_root, minor, f"{path}/access")
        for path in (instance, f"{instance}/ci{part.ci}")
    ]
    if min(numbers) < 0:
        return []
    return [f"nvidia{minor}", *(f"nvidia-caps/nvidia-cap{number}" for number in numbers)]


def _capability_minor(proc_root: Path, minor: int, path: str) -> int:
    """The minor number of a capability file (4 for nvidia-cap4); -1 if unknown."""
    text = text_or_empty(proc_root / CAPABILITIES / f"gpu{minor}/mig/{path}")
    fields = {key: value.strip() for key, _, value in (x.partition(":") for x in text.split("\n"))}
    if (found := number(fields.get("DeviceFileMinor", ""))) >= 0:
        return found
    lines = text_or_empty(proc_root / MINORS, MINORS_BYTES).splitlines()
    known = dict(line.split(" ", 1) for line in lines if " " in line)
    return number(known.get(f"gpu{minor}/{path}", ""))
