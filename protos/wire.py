"""Converts topologies, grants and usage to and from the messages of fleet.proto. A value and its message
have fields of the same names; only those whose types differ are named here."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from protos.common.picked import picked
from protos.gpu_sharing import RANKS
from protos.stubs import fleet_pb2 as pb
from protos.topology import (
    Gpu,
    GpuUse,
    Grant,
    Hca,
    MemoryOver,
    NodeTopology,
    NumaNode,
    RdmaLimit,
    RdmaUse,
    Slice,
    Weak,
)

T = TypeVar("T")
_PLAIN = "rdma_exclusive memlock driver_version cuda_version pcie_source imex_why"


_names: Callable[[Any], tuple[str, ...]] = cache(lambda kind: tuple(f.name for f in fields(kind)))


def _message(kind: type[T], value: Any, **converted: Any) -> T:
    """converted: the fields that are not copied as they are."""
    copied = {n: getattr(value, n) for n in _names(type(value)) if n not in converted}
    return kind(**copied, **converted)


def _messages(kind: type[T], values: Iterable[Any]) -> list[T]:
    return [_message(kind, value) for value in values]


def _value(kind: type[T], message: Any, **converted: Any) -> T:
    copied = {n: getattr(message, n) for n in _names(kind) if n not in converted}
    return kind(**copied, **converted)


def _values(kind: type[T], messages: Iterable[Any]) -> tuple[T, ...]:
    return tuple(_value(kind, message) for message in messages)


def to_topology(topology: NodeTopology) -> pb.Topology:
    message = pb.Topology(
        gpus=[_message(pb.Gpu, g, slices=_messages(pb.Slice, g.slices)) for g in topology.gpus],
        hcas=_messages(pb.Hca, topology.hcas),
        links=[pb.LinkRow(cells=row) for row in topology.links],
        islands=[pb.Island(gpus=island) for island in topology.islands],
        numa_nodes=_messages(pb.NumaNode, topology.numa_nodes),
        **picked(topology, _PLAIN),
        bandwidth=[pb.PairRow(gb_per_s=row) for row in topology.bandwidth],
        weak=_messages(pb.Weak, topology.weak),
        pcie_switches=[pb.Island(gpus=switch) for switch in topology.pcie_switches],
    )
    if topology.rdma_cgroup is not None:
        message.rdma_cgroup.available = True
        message.rdma_cgroup.settable = topology.rdma_settable
        message.rdma_cgroup.default.CopyFrom(_message(pb.RdmaLimit, topology.rdma_default))
        for name, limit in topology.rdma_cgroup:
            message.rdma_cgroup.devices[name].CopyFrom(_message(pb.RdmaLimit, limit))
    return message


def from_topology(message: pb.Topology) -> NodeTopology:
    """Raises ValueError if the message is inconsistent."""
    rdma = message.rdma_cgroup
    topology = _value(
        NodeTopology,
        message,
        gpus=tuple(
            _value(
                Gpu,
                gpu,
                slices=_values(Slice, gpu.slices),
                # An unknown level of a newer agent counts as none.
                enforcement=gpu.enforcement if gpu.enforcement in RANKS else "none",
            )
            for gpu in message.gpus
        ),
        hcas=_values(Hca, message.hcas),
        links=tuple(tuple(row.cells) for row in message.links),
        islands=tuple(tuple(island.gpus) for island in message.islands),
        numa_nodes=_values(NumaNode, message.numa_nodes),
        rdma_cgroup=(
            tuple((name, _value(RdmaLimit, each)) for name, each in sorted(rdma.devices.items()))
            if message.HasField("rdma_cgroup") and rdma.available
            else None
        ),
        rdma_settable=rdma.settable,
        rdma_default=_value(RdmaLimit, rdma.default) if rdma.HasField("default") else RdmaLimit(),
        bandwidth=tuple(tuple(row.gb_per_s) for row in message.bandwidth),
        weak=_values(Weak, message.weak),
        pcie_switches=tuple(tuple(switch.gpus) for switch in message.pcie_switches),
    )
    _check(topology)
    return topology


def _check(topology: NodeTopology) -> None:
    if [gpu.index for gpu in topology.gpus] != list(range(len(topology.gpus))):
        raise ValueError("GPU indices are not 0, 1, 2, ...")
    if len({gpu.uuid for gpu in topology.gpus}) != len(topology.gpus):
        raise ValueError("two GPUs have the same uuid")
    slices = [part.uuid for gpu in topology.gpus for part in gpu.slices]
    if len(set(slices)) != len(slices):
        raise ValueError("two MIG slices have the same uuid")
    side = len(topology.gpus) + len(topology.hcas)
    if len(topology.links) != side or any(len(row) != side for row in topology.links):
        raise ValueError(f"links is not a square matrix of {side} (GPUs and HCAs)")
    gpus = len(topology.gpus)
    if topology.bandwidth and [len(row) for row in topology.bandwidth] != [gpus] * gpus:
        raise ValueError(f"bandwidth is not a square matrix of {gpus} (GPUs)")
    if any(gpu >= len(topology.gpus) for island in topology.islands for gpu in island):
        raise ValueError("an island has an unknown GPU")
    if any(gpu >= len(topology.gpus) for switch in topology.pcie_switches for gpu in switch):
        raise ValueError("a PCIe switch has an unknown GPU")


def to_grants(grants: Iterable[Grant]) -> list[pb.Grant]:
    return [_message(pb.Grant, grant, limits=dict(grant.limits)) for grant in grants]


def from_grants(messages: Iterable[pb.Grant]) -> tuple[Grant, ...]:
    return tuple(
        _value(Grant, m, device_ids=tuple(m.device_ids), limits=tuple(sorted(m.limits.items())))
        for m in messages
    )


def to_memory_over(found: Iterable[MemoryOver]) -> list[pb.MemoryOver]:
    return _messages(pb.MemoryOver, found)


def from_memory_over(messages: Iterable[pb.MemoryOver]) -> tuple[MemoryOver, ...]:
    return _values(MemoryOver, messages)


def to_gpu_use(found: Iterable[GpuUse]) -> list[pb.GpuUse]:
    return _messages(pb.GpuUse, found)


def from_gpu_use(messages: Iterable[pb.GpuUse]) -> tuple[GpuUse, ...]:
    return _values(GpuUse, messages)


def to_rdma_use(used: Iterable[RdmaUse]) -> list[pb.RdmaUse]:
    return [
        _message(
            pb.RdmaUse,
            use,
            current=_message(pb.RdmaLimit, use.current),
            limit=_message(pb.RdmaLimit, use.limit),
        )
        for use in used
    ]


def from_rdma_use(messages: Iterable[pb.RdmaUse]) -> tuple[RdmaUse, ...]:
    return tuple(
        _value(RdmaUse, m, current=_value(RdmaLimit, m.current), limit=_value(RdmaLimit, m.limit))
        for m in messages
    )
