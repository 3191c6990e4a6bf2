"""Checks the values of an agent's report before they become a fact: what the scheduler's arithmetic and memory
can bear (central.model.limits), whatever a compromised node sends. Its sentences reach reasons, Events, logs and
terminals, so they are made printable; a name that is not printable is refused, since it stands for something."""

import math
import re
from collections.abc import Iterable

from google.protobuf.message import Message

from central.model import limits
from protos.gpu_sharing import SHARE, WHOLE
from protos.printing import brief
from protos.stubs import fleet_pb2 as pb

NIC_SHARES = 1024
NUMA_NODES = 4096
_SMALL = 2**16  # ports, slots, NUMA nodes, instance ids
_PCI = re.compile(r"[0-9a-fA-F]{1,8}(:[0-9a-fA-F]{1,4}){0,2}(\.[0-9a-fA-F]{1,2})?", re.ASCII)
_INT64 = 2**63 - 1
_SENTENCES = {
    "why",
    "share_why",
    "model",
    "agent_version",
    "driver_version",
    "cuda_version",
    "pcie_source",
    "imex_why",
}


class MalformedReport(ValueError):
    """The message begins with the field's name."""


def check(report: pb.NodeReport) -> None:
    """Makes the sentences in the report printable. Raises MalformedReport."""
    _texts("", report, limits.NAME)
    _count("grants", report.grants, limits.GRANTS)
    for index, grant in enumerate(report.grants):
        _grant(f"grants[{index}]", grant)
    _count("rdma_use", report.rdma_use, limits.GRANTS)
    for index, use in enumerate(report.rdma_use):
        field = f"rdma_use[{index}]"
        _texts(field, use)
        _number(f"{field}.failures", use.failures, -1, _INT64)
        _limit(f"{field}.current", use.current, _INT64)
        _limit(f"{field}.limit", use.limit, _INT64)
    _count("memory_over", report.memory_over, limits.GRANTS)
    for index, over in enumerate(report.memory_over):
        field = f"memory_over[{index}]"
        _texts(field, over)
        _number(f"{field}.gpu", over.gpu, 0, limits.GPUS - 1)
        _number(f"{field}.used", over.used, 0, _INT64)
        _number(f"{field}.cap", over.cap, 0, _INT64)
    _count("gpu_use", report.gpu_use, limits.GPU_USES)
    for index, held in enumerate(report.gpu_use):
        field = f"gpu_use[{index}]"
        _texts(field, held)
        if not (held.utilization == -1.0 or 0.0 <= held.utilization <= 1.0):
            raise MalformedReport(f"{field}.utilization: {held.utilization} is not from 0 to 1")
        _number(f"{field}.memory", held.memory, -1, _INT64)
    if report.HasField("topology"):
        _topology(report.topology)


def _topology(topology: pb.Topology) -> None:
    _texts("topology", topology)
    _number("topology.memlock", topology.memlock, -1, _INT64)
    _count("topology.gpus", topology.gpus, limits.GPUS)
    for index, gpu in enumerate(topology.gpus):
        _gpu(f"topology.gpus[{index}]", gpu)
    _count("topology.hcas", topology.hcas, limits.NICS)
    for index, hca in enumerate(topology.hcas):
        _hca(f"topology.hcas[{index}]", hca)
    _unique("topology.hcas", (hca.name for hca in topology.hcas))
    _lists(topology)
    devices = topology.rdma_cgroup.devices
    _count("topology.rdma_cgroup.devices", devices, 2 * limits.NICS)
    for name, limit in devices.items():
        _text("topology.rdma_cgroup.devices", name, limits.NAME)
        field = f"topology.rdma_cgroup.devices[{name:.64}]"
        _limit(field, limit, limits.NIC_AMOUNT)
    _limit("topology.rdma_cgroup.default", topology.rdma_cgroup.default, limits.NIC_AMOUNT)


def _gpu(field: str, gpu: pb.Gpu) -> None:
    _texts(field, gpu)
    _device(field, gpu.uuid, gpu.pci, gpu.numa)
    _number(f"{field}.gpu_numa", gpu.gpu_numa, -1, _SMALL)
    _number(f"{field}.slot", gpu.slot, -1, _SMALL)
    _number(f"{field}.tray", gpu.tray, -1, _SMALL)
    _number(f"{field}.memory_bytes", gpu.memory_bytes, 0, limits.GPU_MEMORY)
    _number(f"{field}.shares", gpu.shares, 0, WHOLE)
    _count(f"{field}.slices", gpu.slices, limits.SLICES)
    for index, part in enumerate(gpu.slices):
        inner = f"{field}.slices[{index}]"
        _texts(inner, part)
        if not part.uuid or not part.profile:
            raise MalformedReport(f"{inner}: a slice needs a uuid and a profile")
        _number(f"{inner}.memory_bytes", part.memory_bytes, 0, limits.GPU_MEMORY)
        _number(f"{inner}.gi", part.gi, 0, _SMALL)
        _number(f"{inner}.ci", part.ci, 0, _SMALL)


def _hca(field: str, hca: pb.Hca) -> None:
    _texts(field, hca)
    _device(field, hca.name, hca.pci, hca.numa)
    _number(f"{field}.shares", hca.shares, 0, NIC_SHARES)
    _number(f"{field}.port", hca.port, 0, _SMALL)
    _rate(f"{field}.rate_gbps", hca.rate_gbps)


def _lists(topology: pb.Topology) -> None:
    gpus = len(topology.gpus)
    _count("topology.links", topology.links, gpus + len(topology.hcas))
    _count("topology.islands", topology.islands, gpus)
    for index, island in enumerate(topology.islands):
        _count(f"topology.islands[{index}]", island.gpus, limits.GPUS)
    _count("topology.pcie_switches", topology.pcie_switches, gpus)
    for index, switch in enumerate(topology.pcie_switches):
        _count(f"topology.pcie_switches[{index}]", switch.gpus, limits.GPUS)
    _count("topology.numa_nodes", topology.numa_nodes, NUMA_NODES)
    for index, numa in enumerate(topology.numa_nodes):
        _texts(f"topology.numa_nodes[{index}]", numa)
        _number(f"topology.numa_nodes[{index}].id", numa.id, 0, _SMALL)
    _count("topology.bandwidth", topology.bandwidth, gpus)
    for index, row in enumerate(topology.bandwidth):
        _count(f"topology.bandwidth[{index}]", row.gb_per_s, gpus)
        for rate in row.gb_per_s:
            _rate(f"topology.bandwidth[{index}]", rate)
    _count("topology.weak", topology.weak, gpus * gpus)
    for index, weak in enumerate(topology.weak):
        field = f"topology.weak[{index}]"
        _texts(field, weak)
        _number(field, max(weak.a, weak.b), 0, gpus - 1)


def _grant(field: str, grant: pb.Grant) -> None:
    _texts(field, grant)
    _count(f"{field}.device_ids", grant.device_ids, limits.GRANT_DEVICES)
    for device in grant.device_ids:
        _text(f"{field}.device_ids", device, limits.NAME)
    _count(f"{field}.limits", grant.limits, limits.OWNERS)
    for key, value in grant.limits.items():
        _text(f"{field}.limits", key, limits.NAME)
        _number(f"{field}.limits[{key}]", value, -1, WHOLE if key == SHARE else limits.POD_AMOUNT)


def _device(field: str, name: str, pci: str, numa: int) -> None:
    if not name or len(name) > limits.NAME:
        raise MalformedReport(f"{field}: {name!r:.80} is not the name of a device")
    if pci and not _PCI.fullmatch(pci):
        raise MalformedReport(f"{field}.pci: {pci!r:.80} is not a PCI address")
    _number(f"{field}.numa", numa, -1, _SMALL)


def _limit(field: str, limit: pb.RdmaLimit, most: int) -> None:
    _number(f"{field}.hca_handle", limit.hca_handle, -1, most)
    _number(f"{field}.hca_object", limit.hca_object, -1, most)


def _rate(field: str, rate: float) -> None:
    if not math.isfinite(rate) or not 0 <= rate <= 1e9:
        raise MalformedReport(f"{field}: {rate} is not a data rate")


def _number(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise MalformedReport(f"{field}: {value} is not from {least} to {most}")


def _count(field: str, values: Iterable[object], most: int) -> None:
    if (count := len(values)) > most:  # type: ignore[arg-type]  # a repeated field
        raise MalformedReport(f"{field}: {count} entries; at most {most} are accepted")


def _texts(field: str, message: Message, most: int = limits.TEXT) -> None:
    """All texts of the message itself, not of those in it."""
    for descriptor, value in message.ListFields():
        if not isinstance(value, str):
            continue
        name = descriptor.name
        if name in _SENTENCES and len(value) <= most and not value.isprintable():
            setattr(message, name, brief(value, most))
        else:
            _text(f"{field}.{name}" if field else name, value, most)


def _text(field: str, value: str, most: int) -> None:
    if len(value) > most:
        raise MalformedReport(f"{field}: {len(value)} characters; at most {most} are accepted")
    if not value.isprintable():
        raise MalformedReport(f"{field}: {brief(value, 80)} is not printable")


def _unique(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise MalformedReport(f"{field}: two are called {name:.80}")
        seen.add(name)
