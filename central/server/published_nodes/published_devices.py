"""The devices of resource claims that a node publishes in ResourceSlices, from its agent's report. Pure.

A GPU in MIG mode is published as its slices, which exist apart from each other, so no two devices share a counter.
Shares are not published. A device that must not be allocated now keeps its place and has a taint, so that claims that
have it already stay valid.

Design: docs/design/device-claims.md
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from central.model.device_claims import (
    BY_PLUGIN,
    Device,
    DeviceAttribute,
    DeviceTaint,
    Scalar,
    SliceSeen,
    qualified,
)
from central.model.exact_quantity import exact_quantity
from central.scheduler.inventory.cluster_node import ClusterNode
from central.server.published_nodes.node_labels import value_of
from central.server.published_nodes.node_marks import XID
from protos import nearest, nic_ids
from protos.claim_devices import device_name
from protos.names import DRA_DRIVER, RAIL
from protos.topology import Gpu, NodeTopology, Slice

# Of Kubernetes, for all drivers.
PCIE_ROOT, ROOT = "resource.kubernetes.io/pcieRoot", re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
SLICE_DEVICES = 64  # the API server's limit where a device has a taint
TEXT = 64  # ... and of an attribute, in bytes
UNHEALTHY = f"{DRA_DRIVER}/unhealthy"


def slices_of(node: ClusterNode, known: Collection[SliceSeen]) -> list[SliceSeen]:
    """Returns the ResourceSlices that the node's pool should have: those that are known, if they have its devices. None
    if its agent is silent or serves no claims."""
    devices = devices_of(node)
    starts = range(0, len(devices), SLICE_DEVICES)
    parts = [devices[start : start + SLICE_DEVICES] for start in starts]
    newest = max((each.generation for each in known), default=0)
    wanted = [
        SliceSeen(
            f"{node.name}-{DRA_DRIVER}-{number}",
            DRA_DRIVER,
            node.name,
            newest,
            len(parts),
            node.name,
            part,
        )
        for number, part in enumerate(parts)
    ]
    if {each.name: _content(each) for each in known} == {
        each.name: _content(each) for each in wanted
    }:
        return [*known]
    return [replace(each, generation=newest + 1) for each in wanted]


def _content(one: SliceSeen) -> object:
    """Returns what the slice says, without the order and the spelling that the API server may change."""
    devices = [
        (
            each.name,
            frozenset(each.attributes),
            {name: exact_quantity(amount) for name, amount in each.capacity},
            each.taints,
        )
        for each in one.devices
    ]
    return one.generation, one.slices, one.node, devices


def devices_of(node: ClusterNode) -> tuple[Device, ...]:
    report = node.report
    if node.seen is None or report is None or node.silent or not report.claims:
        return ()
    topology, held = report.topology, node.held_by_plugin()
    held_slices = {uuid for uuids in node.reported.slices.held.values() for uuid in uuids}
    places = _places(topology)
    whole = [gpu for gpu in topology.gpus if not gpu.mig]
    found = [_device(gpu, places[gpu.index], is_held=bool(held >> gpu.index & 1)) for gpu in whole]
    found += [
        _slice_device(gpu, part, places[gpu.index], is_held=part.uuid in held_slices)
        for gpu in topology.gpus
        for part in gpu.slices
        if gpu.mig
    ]
    return tuple(each for each in found if each.name)


def _device(gpu: Gpu, place: Sequence[DeviceAttribute], *, is_held: bool) -> Device:
    """Makes the device of a whole GPU; its name is empty if its UUID makes none."""
    attributes = (*_texts(type="gpu", uuid=gpu.uuid), *place)
    taints = _taints(gpu.healthy, gpu.why, is_held=is_held)
    return Device(device_name(gpu.uuid), attributes, _memory(gpu.memory_bytes), taints)


def _slice_device(
    gpu: Gpu, part: Slice, place: Sequence[DeviceAttribute], *, is_held: bool
) -> Device:
    own = _texts(type="mig", uuid=part.uuid, profile=part.profile, parentUUID=gpu.uuid)
    healthy, why = (part.healthy, part.why) if gpu.healthy else (False, gpu.why)
    taints = _taints(healthy, why, is_held=is_held)
    return Device(device_name(part.uuid), (*own, *place), _memory(part.memory_bytes), taints)


def _memory(size: int) -> tuple[tuple[str, str], ...]:
    return ((qualified("memory", DRA_DRIVER), f"{size >> 20}Mi"),)


def _taints(healthy: bool, why: str, *, is_held: bool) -> tuple[DeviceTaint, ...]:
    """The reason as a label's value: the XID, or its words without what changes while it lasts."""
    found = []
    if not healthy:
        xid = XID.search(why)
        code = f"xid-{xid[1]}" if xid else value_of(why.partition(" (")[0])
        found.append(DeviceTaint(UNHEALTHY, code, "NoSchedule"))
    if is_held:
        found.append(DeviceTaint(BY_PLUGIN, "", "NoSchedule"))
    return tuple(found)


def _places(topology: NodeTopology) -> list[tuple[DeviceAttribute, ...]]:
    """The attributes of each GPU that say what and where it is, which its slices have too."""
    islands, switches = (
        {gpu: number for number, gpus in enumerate(groups) for gpu in gpus}
        for groups in (topology.islands, topology.pcie_switches)
    )
    rails = {
        hca.name: int(hca.rail.removeprefix(RAIL))
        for hca in topology.hcas
        if nic_ids.is_rail(hca.rail)
    }
    found = []
    for gpu in topology.gpus:
        near = nearest.adjacent_nics(topology, 1 << gpu.index)
        rail = {rails[name] for name in near if name in rails}
        numbers = {
            "index": gpu.index,
            "numaNode": gpu.numa,
            "island": islands.get(gpu.index, -1),
            "switch": switches.get(gpu.index, -1),
            "rail": rail.pop() if len(rail) == 1 else -1,
        }
        major, dot, minor = gpu.capability.partition(".")
        known = dot and (major + minor).isdecimal()
        version = f"{int(major)}.{int(minor)}.0" if known else ""
        root = DeviceAttribute(PCIE_ROOT, "string", gpu.pcie_root)
        found.append(
            (
                *_texts(productName=gpu.model, clique=gpu.clique),
                *([root] if ROOT.fullmatch(gpu.pcie_root) else ()),
                *(_attribute(name, "int", value) for name, value in numbers.items() if value >= 0),
                *([_attribute("cudaComputeCapability", "version", version)] if version else ()),
            )
        )
    return found


def _texts(**values: str) -> Iterable[DeviceAttribute]:
    cut = {name: text.encode()[:TEXT].decode(errors="ignore") for name, text in values.items()}
    return [_attribute(name, "string", text) for name, text in cut.items() if text]


def _attribute(name: str, kind: str, value: Scalar) -> DeviceAttribute:
    return DeviceAttribute(qualified(name, DRA_DRIVER), kind, value)
