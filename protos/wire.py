"""Converts topologies, grants and usage to and from the messages of fleet.proto. A value and its message
have fields of the same names; only those whose types differ are named here."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from google.protobuf.message import Message

from protos.common.picked import picked
from protos.gpu_sharing import RANKS
from protos.stubs import fleet_pb2 as pb
from protos.topology import Gpu, Grant, NodeTopology, RdmaLimit

T = TypeVar("T")
_PLAIN = "rdma_exclusive memlock driver_version cuda_version pcie_source imex_why"


_names: Callable[[Any], tuple[str, ...]] = cache(lambda kind: tuple(f.name for f in fields(kind)))


def _classes(kind: Any) -> dict[str, Any]:
    """Returns the class of each field that holds a value with fields of its own, or a tuple of such."""
    hints = get_type_hints(kind).items()
    classes = {name: next(iter(get_args(hint)), hint) for name, hint in hints}
    return {name: each for name, each in classes.items() if is_dataclass(each)}


_inner: Callable[[Any], dict[str, Any]] = cache(_classes)


def _fields(value: Any, converted: Collection[str] = ()) -> dict[str, Any]:
    inner, found = _inner(type(value)), {}
    for name in _names(type(value)):
        if name not in converted:
            each = found[name] = getattr(value, name)
            if name in inner:
                found[name] = [*map(_fields, each)] if type(each) is tuple else _fields(each)
    return found


def _message(kind: type[T], value: Any, **converted: Any) -> T:
    """converted: the fields that are not copied as they are."""
    return kind(**_fields(value, converted), **converted)


def messages(kind: type[T], found: Iterable[Any]) -> list[T]:
    return [_message(kind, value) for value in found]


def _value(kind: type[T], message: Any, **converted: Any) -> T:
    inner, found = _inner(kind), dict(converted)
    for name in _names(kind):
        if name not in converted:
            each = found[name] = getattr(message, name)
            if name in inner:
                alone = isinstance(each, Message)
                found[name] = _value(inner[name], each) if alone else values(inner[name], each)
    return kind(**found)


def values(kind: type[T], found: Iterable[Any]) -> tuple[T, ...]:
    return tuple(_value(kind, message) for message in found)


def to_topology(topology: NodeTopology) -> pb.Topology:
    message = pb.Topology(
        gpus=messages(pb.Gpu, topology.gpus),
        hcas=messages(pb.Hca, topology.hcas),
        links=[pb.LinkRow(cells=row) for row in topology.links],
        islands=[pb.Island(gpus=island) for island in topology.islands],
        numa_nodes=messages(pb.NumaNode, topology.numa_nodes),
        **picked(topology, _PLAIN),
        bandwidth=[pb.PairRow(gb_per_s=row) for row in topology.bandwidth],
        weak=messages(pb.Weak, topology.weak),
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
                # An unknown level of a newer agent counts as none.
                enforcement=gpu.enforcement if gpu.enforcement in RANKS else "none",
            )
            for gpu in message.gpus
        ),
        links=tuple(tuple(row.cells) for row in message.links),
        islands=tuple(tuple(island.gpus) for island in message.islands),
        rdma_cgroup=(
            tuple((name, _value(RdmaLimit, each)) for name, each in sorted(rdma.devices.items()))
            if message.HasField("rdma_cgroup") and rdma.available
            else None
        ),
        rdma_settable=rdma.settable,
        rdma_default=_value(RdmaLimit, rdma.default) if rdma.HasField("default") else RdmaLimit(),
        bandwidth=tuple(tuple(row.gb_per_s) for row in message.bandwidth),
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
