"""Converts topologies, grants and usage to and from the messages of fleet.proto."""

from collections.abc import Iterable

from protos.gpu_sharing import RANKS
from protos.stubs import fleet_pb2 as pb
from protos.topology import (
    Gpu,
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


def to_topology(topology: NodeTopology) -> pb.Topology:
    message = pb.Topology(
        gpus=[
            pb.Gpu(
                index=gpu.index,
                uuid=gpu.uuid,
                model=gpu.model,
                memory_bytes=gpu.memory_bytes,
                pci=gpu.pci,
                numa=gpu.numa,
                healthy=gpu.healthy,
                why=gpu.why,
                cpu_affinity=gpu.cpu_affinity,
                gpu_numa=gpu.gpu_numa,
                numa_affinity=gpu.numa_affinity,
                shares=gpu.shares,
                mig=gpu.mig,
                mig_change=gpu.mig_change,
                slices=_to_slices(gpu.slices),
                enforcement=gpu.enforcement,
                share_why=gpu.share_why,
                clique=gpu.clique,
                chassis=gpu.chassis,
                slot=gpu.slot,
                tray=gpu.tray,
            )
            for gpu in topology.gpus
        ],
        hcas=[
            pb.Hca(
                name=hca.name,
                pci=hca.pci,
                numa=hca.numa,
                link_layer=hca.link_layer,
                rate_gbps=hca.rate_gbps,
                port=hca.port,
                uverbs=hca.uverbs,
                why=hca.why,
                shares=hca.shares,
                vendor=hca.vendor,
                device=hca.device,
                driver=hca.driver,
                net=hca.net,
                physical=hca.physical,
            )
            for hca in topology.hcas
        ],
        links=[pb.LinkRow(cells=row) for row in topology.links],
        islands=[pb.Island(gpus=island) for island in topology.islands],
        numa_nodes=[pb.NumaNode(id=numa.id, cpus=numa.cpus) for numa in topology.numa_nodes],
        rdma_exclusive=topology.rdma_exclusive,
        memlock=topology.memlock,
        driver_version=topology.driver_version,
        bandwidth=[pb.PairRow(gb_per_s=row) for row in topology.bandwidth],
        weak=[pb.Weak(a=pair.a, b=pair.b, why=pair.why) for pair in topology.weak],
    )
    if topology.rdma_cgroup is not None:
        message.rdma_cgroup.available = True
        message.rdma_cgroup.settable = topology.rdma_settable
        message.rdma_cgroup.default.CopyFrom(_to_limit(topology.rdma_default))
        for name, limit in topology.rdma_cgroup:
            message.rdma_cgroup.devices[name].hca_handle = limit.hca_handle
            message.rdma_cgroup.devices[name].hca_object = limit.hca_object
    return message


def from_topology(message: pb.Topology) -> NodeTopology:
    """Raises ValueError if the message is inconsistent."""
    topology = NodeTopology(
        gpus=tuple(
            Gpu(
                index=gpu.index,
                uuid=gpu.uuid,
                model=gpu.model,
                memory_bytes=gpu.memory_bytes,
                pci=gpu.pci,
                numa=gpu.numa,
                healthy=gpu.healthy,
                why=gpu.why,
                cpu_affinity=gpu.cpu_affinity,
                gpu_numa=gpu.gpu_numa,
                numa_affinity=gpu.numa_affinity,
                shares=gpu.shares,
                mig=gpu.mig,
                mig_change=gpu.mig_change,
                slices=_from_slices(gpu.slices),
                # An unknown level of a newer agent counts as none.
                enforcement=gpu.enforcement if gpu.enforcement in RANKS else "none",
                share_why=gpu.share_why,
                clique=gpu.clique,
                chassis=gpu.chassis,
                slot=gpu.slot,
                tray=gpu.tray,
            )
            for gpu in message.gpus
        ),
        hcas=tuple(
            Hca(
                name=hca.name,
                pci=hca.pci,
                numa=hca.numa,
                link_layer=hca.link_layer,
                rate_gbps=hca.rate_gbps,
                port=hca.port,
                uverbs=hca.uverbs,
                why=hca.why,
                shares=hca.shares,
                vendor=hca.vendor,
                device=hca.device,
                driver=hca.driver,
                net=hca.net,
                physical=hca.physical,
            )
            for hca in message.hcas
        ),
        links=tuple(tuple(row.cells) for row in message.links),
        islands=tuple(tuple(island.gpus) for island in message.islands),
        numa_nodes=tuple(NumaNode(id=numa.id, cpus=numa.cpus) for numa in message.numa_nodes),
        rdma_cgroup=(
            tuple(
                (name, RdmaLimit(limit.hca_handle, limit.hca_object))
                for name, limit in sorted(message.rdma_cgroup.devices.items())
            )
            if message.HasField("rdma_cgroup") and message.rdma_cgroup.available
            else None
        ),
        rdma_settable=message.rdma_cgroup.settable,
        rdma_default=(
            _from_limit(message.rdma_cgroup.default)
            if message.rdma_cgroup.HasField("default")
            else RdmaLimit()
        ),
        rdma_exclusive=message.rdma_exclusive,
        memlock=message.memlock,
        driver_version=message.driver_version,
        bandwidth=tuple(tuple(row.gb_per_s) for row in message.bandwidth),
        weak=tuple(Weak(pair.a, pair.b, pair.why) for pair in message.weak),
    )
    _check(topology)
    return topology


def _to_slices(slices: Iterable[Slice]) -> list[pb.Slice]:
    return [
        pb.Slice(
            uuid=part.uuid,
            profile=part.profile,
            gi=part.gi,
            ci=part.ci,
            memory_bytes=part.memory_bytes,
            healthy=part.healthy,
            why=part.why,
        )
        for part in slices
    ]


def _from_slices(messages: Iterable[pb.Slice]) -> tuple[Slice, ...]:
    return tuple(
        Slice(m.uuid, m.profile, m.gi, m.ci, m.memory_bytes, m.healthy, m.why) for m in messages
    )


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


def to_grants(grants: Iterable[Grant]) -> list[pb.Grant]:
    return [
        pb.Grant(
            namespace=grant.namespace,
            pod=grant.pod,
            container=grant.container,
            resource=grant.resource,
            device_ids=grant.device_ids,
            limits=dict(grant.limits),
        )
        for grant in grants
    ]


def from_grants(messages: Iterable[pb.Grant]) -> tuple[Grant, ...]:
    return tuple(
        Grant(
            m.namespace,
            m.pod,
            m.container,
            m.resource,
            tuple(m.device_ids),
            tuple(sorted(m.limits.items())),
        )
        for m in messages
    )


def to_memory_over(found: Iterable[MemoryOver]) -> list[pb.MemoryOver]:
    return [
        pb.MemoryOver(
            namespace=over.namespace,
            pod=over.pod,
            uid=over.uid,
            gpu=over.gpu,
            used=over.used,
            cap=over.cap,
            final=over.final,
        )
        for over in found
    ]


def from_memory_over(messages: Iterable[pb.MemoryOver]) -> tuple[MemoryOver, ...]:
    return tuple(
        MemoryOver(m.namespace, m.pod, m.uid, m.gpu, m.used, m.cap, m.final) for m in messages
    )


def to_rdma_use(used: Iterable[RdmaUse]) -> list[pb.RdmaUse]:
    return [
        pb.RdmaUse(
            namespace=use.namespace,
            pod=use.pod,
            card=use.card,
            current=_to_limit(use.current),
            limit=_to_limit(use.limit),
            failures=use.failures,
        )
        for use in used
    ]


def from_rdma_use(messages: Iterable[pb.RdmaUse]) -> tuple[RdmaUse, ...]:
    return tuple(
        RdmaUse(
            m.namespace, m.pod, m.card, _from_limit(m.current), _from_limit(m.limit), m.failures
        )
        for m in messages
    )


def _from_limit(limit: pb.RdmaLimit) -> RdmaLimit:
    return RdmaLimit(limit.hca_handle, limit.hca_object)


def _to_limit(limit: RdmaLimit) -> pb.RdmaLimit:
    return pb.RdmaLimit(hca_handle=limit.hca_handle, hca_object=limit.hca_object)
