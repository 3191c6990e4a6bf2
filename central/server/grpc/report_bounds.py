"""Checks the values of an agent's report before they become a fact: what the scheduler's arithmetic and memory
can bear (central.model.limits), whatever a compromised node sends. Its sentences reach reasons, Events, logs and
terminals, so they are made printable; a name that is not printable is refused, since it stands for something.

One walk over the whole message looks each field up by its path, without indices and keys."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

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
_GBPS = 10**9
_SENTENCES = {"why", "share_why", "imex_why", "model", "pcie_source"}
_SENTENCES |= {f"{part}_version" for part in ("agent", "driver", "cuda")}
_GPU, _NIC, _CGROUP = "topology.gpus.", "topology.hcas.", "topology.rdma_cgroup."
_RDMA = ("hca_handle", "hca_object")
# Least and most of each number that its type does not bound enough.
_NUMBERS: dict[str, tuple[float, float]] = {
    "rdma_use.failures": (-1, _INT64),
    **{f"rdma_use.{part}.{each}": (-1, _INT64) for part in ("current", "limit") for each in _RDMA},
    "memory_over.gpu": (0, limits.GPUS - 1),
    "memory_over.used": (0, _INT64),
    "memory_over.cap": (0, _INT64),
    "gpu_use.memory": (-1, _INT64),
    "grants.limits": (-1, limits.POD_AMOUNT),
    "topology.memlock": (-1, _INT64),
    **{_GPU + each: (-1, _SMALL) for each in ("numa", "gpu_numa", "slot", "tray")},
    **{_GPU + each: (0, limits.GPU_MEMORY) for each in ("memory_bytes", "slices.memory_bytes")},
    **{_GPU + each: (0, _SMALL) for each in ("slices.gi", "slices.ci")},
    f"{_GPU}shares": (0, WHOLE),
    f"{_NIC}numa": (-1, _SMALL),
    f"{_NIC}shares": (0, NIC_SHARES),
    f"{_NIC}port": (0, _SMALL),
    f"{_NIC}rate_gbps": (0, _GBPS),
    **{f"{_CGROUP}devices.{each}": (-1, limits.NIC_AMOUNT) for each in _RDMA},
    **{f"{_CGROUP}default.{each}": (-1, limits.NIC_AMOUNT) for each in _RDMA},
    "topology.numa_nodes.id": (0, _SMALL),
    "topology.bandwidth.gb_per_s": (0, _GBPS),
}
_ENTRIES = {  # of lists and maps
    **dict.fromkeys(("grants", "rdma_use", "memory_over", "prepared"), limits.GRANTS),
    "prepared.devices": limits.CLAIM_DEVICES,
    "gpu_use": limits.GPU_USES,
    "grants.device_ids": limits.GRANT_DEVICES,
    "grants.limits": limits.OWNERS,
    "topology.gpus": limits.GPUS,
    f"{_GPU}slices": limits.SLICES,
    "topology.hcas": limits.NICS,
    f"{_CGROUP}devices": 2 * limits.NICS,
    "topology.islands.gpus": limits.GPUS,
    "topology.pcie_switches.gpus": limits.GPUS,
    "topology.numa_nodes": NUMA_NODES,
}


class MalformedReport(ValueError):
    """The message begins with the field's name."""


def check(report: pb.NodeReport) -> None:
    """Makes the sentences in the report printable. Raises MalformedReport."""
    topology, gpus = report.topology, len(report.topology.gpus)
    by_gpu = ("islands", "pcie_switches", "bandwidth", "bandwidth.gb_per_s")
    entries = {f"topology.{each}": gpus for each in by_gpu}
    entries |= {"topology.links": gpus + len(topology.hcas), "topology.weak": gpus * gpus}
    _walk(report, "", "", _ENTRIES | entries)
    for index, grant in enumerate(report.grants):
        _number(f"grants[{index}].limits[{SHARE}]", grant.limits.get(SHARE, 0), -1, WHOLE)
    for index, held in enumerate(report.gpu_use):
        if held.utilization != -1.0:
            _number(f"gpu_use[{index}].utilization", held.utilization, 0, 1)
    for index, gpu in enumerate(topology.gpus):
        _device(f"topology.gpus[{index}]", gpu.uuid, gpu.pci)
        for at, part in enumerate(gpu.slices):
            if not part.uuid or not part.profile:
                why = "a slice needs a uuid and a profile"
                raise MalformedReport(f"topology.gpus[{index}].slices[{at}]: {why}")
    for index, hca in enumerate(topology.hcas):
        _device(f"topology.hcas[{index}]", hca.name, hca.pci)
    _unique("topology.hcas", (hca.name for hca in topology.hcas))
    for index, weak in enumerate(topology.weak):
        _number(f"topology.weak[{index}]", max(weak.a, weak.b), 0, gpus - 1)


def _walk(message: Message, field: str, path: str, entries: Mapping[str, int]) -> None:
    """field, path: the place of the message with and without indices; both end in a dot, or are empty."""
    for descriptor, value in message.ListFields():
        name = descriptor.name
        here, key = field + name, path + name
        if isinstance(value, str):
            most = limits.TEXT if path else limits.NAME
            if name in _SENTENCES and len(value) <= most and not value.isprintable():
                setattr(message, name, brief(value, most))
            else:
                _text(here, value, most)
        elif isinstance(value, Message):
            _walk(value, f"{here}.", f"{key}.", entries)
        elif key in entries:
            _walk_entries(value, here, key, entries)
        elif key in _NUMBERS:
            _number(here, value, *_NUMBERS[key])


def _walk_entries(found: Any, field: str, path: str, entries: Mapping[str, int]) -> None:
    """found: a list, or a map by text."""
    if (count := len(found)) > entries[path]:
        most = entries[path]
        raise MalformedReport(f"{field}: {count} entries; at most {most} are accepted")
    for index, each in found.items() if hasattr(found, "items") else enumerate(found):
        if isinstance(index, str):
            _text(field, index, limits.NAME)
        inner = f"{field}[{index!s:.64}]"
        if isinstance(each, Message):
            _walk(each, f"{inner}.", f"{path}.", entries)
        elif isinstance(each, str):
            _text(field, each, limits.NAME)
        elif path in _NUMBERS:
            _number(inner, each, *_NUMBERS[path])


def _device(field: str, name: str, pci: str) -> None:
    if not name or len(name) > limits.NAME:
        raise MalformedReport(f"{field}: {name!r:.80} is not the name of a device")
    if pci and not _PCI.fullmatch(pci):
        raise MalformedReport(f"{field}.pci: {pci!r:.80} is not a PCI address")


def _number(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise MalformedReport(f"{field}: {value} is not from {least} to {most}")


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
