"""What each field of an agent's report may be, written down by hand: the tests hold the service to it, and every field
of the messages has a row."""

from typing import NamedTuple

TEXT, NAME = 1024, 253
SMALL, AMOUNT, INT64 = 65_536, 2**31 - 1, 2**63 - 1


class Numbers(NamedTuple):
    least: int
    most: int


class Rate(NamedTuple):
    most: float
    unknown: float | None = None  # a value below 0 that is accepted


class Text(NamedTuple):
    most: int = TEXT
    sentence: bool = False  # made printable; other texts must be


class Count(NamedTuple):
    most: int


class Free(NamedTuple):
    """Any value of the type, or checked against other fields of the report."""

    why: str


FLAG = Free("true or false")
SENTENCE = Text(sentence=True)
DEVICE = Free("checked with the other devices")
SIDES = Free("as many rows as devices")
FIELDS = {
    "NodeReport.node": Free("the caller's own node"),
    "NodeReport.boot_id": Text(NAME),
    "NodeReport.generation": Numbers(1, 2**64 - 1),
    "NodeReport.heartbeat": FLAG,
    "NodeReport.topology": Free("a message"),
    "NodeReport.grants": Count(16_384),
    "NodeReport.agent_version": Text(NAME, sentence=True),
    "NodeReport.rdma_use": Count(16_384),
    "NodeReport.topology_of": Free("another generation is asked for again"),
    "NodeReport.memory_over": Count(16_384),
    "NodeReport.gpu_use": Count(1024),
    "NodeReport.not_offered": FLAG,
    "NodeReport.prepared": Count(16_384),
    "NodeReport.claims": Text(NAME),
    "ClaimPlan.namespace": Text(),
    "ClaimPlan.name": Text(),
    "ClaimPlan.uid": Text(),
    "ClaimPlan.devices": Count(32),
    "ClaimDevice.request": Text(),
    "ClaimDevice.device": Text(),
    "ClaimDevice.admin": FLAG,
    "Topology.gpus": DEVICE,
    "Topology.hcas": DEVICE,
    "Topology.links": SIDES,
    "Topology.islands": Count(4),
    "Topology.numa_nodes": Count(4096),
    "Topology.rdma_cgroup": Free("a message"),
    "Topology.driver_version": SENTENCE,
    "Topology.bandwidth": SIDES,
    "Topology.weak": Count(16),
    "Topology.pcie_source": SENTENCE,
    "Topology.imex_why": SENTENCE,
    "Topology.rdma_exclusive": FLAG,
    "Topology.cuda_version": SENTENCE,
    "Topology.memlock": Numbers(-1, INT64),
    "Topology.pcie_switches": Count(4),
    "Gpu.index": DEVICE,
    "Gpu.uuid": Text(NAME),
    "Gpu.model": SENTENCE,
    "Gpu.memory_bytes": Numbers(0, 2**47),
    "Gpu.pci": Free("an address"),
    "Gpu.numa": Numbers(-1, SMALL),
    "Gpu.healthy": FLAG,
    "Gpu.why": SENTENCE,
    "Gpu.cpu_affinity": Text(),
    "Gpu.gpu_numa": Numbers(-1, SMALL),
    "Gpu.numa_affinity": Text(),
    "Gpu.shares": Numbers(0, 100),
    "Gpu.slices": Free("each has its own uuid"),
    "Gpu.mig": FLAG,
    "Gpu.mig_change": FLAG,
    "Gpu.enforcement": Text(),
    "Gpu.share_why": SENTENCE,
    "Gpu.clique": Text(),
    "Gpu.chassis": Text(),
    "Gpu.slot": Numbers(-1, SMALL),
    "Gpu.tray": Numbers(-1, SMALL),
    "Gpu.capability": Text(),
    "Gpu.pcie_root": Text(),
    "Slice.uuid": Text(),
    "Slice.profile": Text(),
    "Slice.gi": Numbers(0, SMALL),
    "Slice.ci": Numbers(0, SMALL),
    "Slice.memory_bytes": Numbers(0, 2**47),
    "Slice.healthy": FLAG,
    "Slice.why": SENTENCE,
    "Hca.name": Text(NAME),
    "Hca.pci": Free("an address"),
    "Hca.numa": Numbers(-1, SMALL),
    "Hca.link_layer": Text(),
    "Hca.rate_gbps": Rate(1e9),
    "Hca.port": Numbers(0, SMALL),
    "Hca.uverbs": Text(),
    "Hca.why": SENTENCE,
    "Hca.shares": Numbers(0, 1024),
    "Hca.vendor": Text(),
    "Hca.device": Text(),
    "Hca.driver": Text(),
    "Hca.net": Text(),
    "Hca.physical": Text(),
    "Hca.rail": Text(),
    "LinkRow.cells": SIDES,
    "PairRow.gb_per_s": SIDES,
    "Weak.a": Numbers(0, 3),
    "Weak.b": Numbers(0, 3),
    "Weak.why": SENTENCE,
    "Island.gpus": DEVICE,
    "NumaNode.id": Numbers(0, SMALL),
    "NumaNode.cpus": Text(),
    "RdmaCgroup.available": FLAG,
    "RdmaCgroup.devices": Count(1024),
    "RdmaCgroup.settable": FLAG,
    "RdmaCgroup.default": Free("a message"),
    "RdmaLimit.hca_handle": Numbers(-1, AMOUNT),
    "RdmaLimit.hca_object": Numbers(-1, AMOUNT),
    "Grant.namespace": Text(),
    "Grant.pod": Text(),
    "Grant.container": Text(),
    "Grant.resource": Text(),
    "Grant.device_ids": Count(4096),
    "Grant.limits": Count(64),
    "Grant.uid": Text(),
    "RdmaUse.namespace": Text(),
    "RdmaUse.pod": Text(),
    "RdmaUse.card": Text(),
    "RdmaUse.current": Free("a message"),
    "RdmaUse.limit": Free("a message"),
    "RdmaUse.failures": Numbers(-1, INT64),
    "GpuUse.namespace": Text(),
    "GpuUse.pod": Text(),
    "GpuUse.container": Text(),
    "GpuUse.utilization": Rate(1.0, unknown=-1.0),
    "GpuUse.memory": Numbers(-1, INT64),
    "MemoryOver.namespace": Text(),
    "MemoryOver.pod": Text(),
    "MemoryOver.uid": Text(),
    "MemoryOver.gpu": Numbers(0, 61),
    "MemoryOver.used": Numbers(0, INT64),
    "MemoryOver.cap": Numbers(0, INT64),
    "MemoryOver.final": FLAG,
}
Row = Numbers | Rate | Text | Count | Free
