"""Reduces devices of other device plugins to the GPUs and MIG slices of this node that their pods use. Pure.

NVIDIA's plugin names a device by UUID, with ::N behind it if the device is shared (time-slicing, MPS); KAI's
reservation pods hold such devices. HAMi's ids (UUID-N) are arbitrary: the answer to Allocate has the GPU. A name
without a known device stands for every GPU that it could be.

Design: docs/design/kubelet.md
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.allocations import Forgotten
from protos import slicing
from protos.names import DOMAIN, GPU
from protos.nearest import BETWEEN, device_of
from protos.printing import brief
from protos.topology import NodeTopology

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
WHOLE = re.compile(f"GPU-{UUID}")
SPLIT = re.compile(f"MIG-|GPU-{UUID}-|.*{BETWEEN}")  # not as this agent names whole GPUs
NO_SLICE = re.compile(f"(?!MIG-)|.*{BETWEEN}")
ABSENT = re.compile(f"(MIG-)?GPU-{UUID}([-/].*)?")  # if unknown: of a GPU that is gone
# Resources whose devices are GPUs, whatever their ids: of NVIDIA's plugin, HAMi, Volcano, KAI and gpushare.
OF_GPUS = re.compile(
    r"nvidia\.com/(v?gpu|mig-|shared)|(volcano\.sh|4paradigm\.com|aliyun\.com|run\.ai)/"
)
NAME = re.compile("GPU-|MIG-|all$")
INDEX = re.compile("(?:gpu|mig)?([0-9]{1,3})(?::[0-9]+)?")  # 3, gpu3; of a slice 3:0, mig3:0
SHOWN = 120  # characters of an id and its resource
SUFFIXES = 2  # behind a UUID, each with a dash: 3, memory-3, _-3


@dataclass(frozen=True, slots=True, order=True)
class Holding:
    """Devices of a container with ids of another plugin."""

    who: str  # pod team/web
    resource: str
    device_ids: tuple[str, ...]
    visible: tuple[str, ...] = ()  # names of GPUs in the plugin's answer to Allocate


def is_own(resource: str, ids: Iterable[str]) -> bool:
    """Returns whether this agent may have allocated the devices. NVIDIA's plugin uses the same ids for devices that
    are not shared."""
    if resource != GPU and not slicing.is_slice(resource):
        return resource.startswith(DOMAIN)
    other = SPLIT if resource == GPU else NO_SLICE
    return not any(map(other.match, ids))


def is_certain(resource: str, ids: Iterable[str]) -> bool:
    """Returns whether only this agent uses ids of this form for the resource, apart from unshared devices."""
    return is_own(resource, ids) and (resource != GPU or all(map(WHOLE.fullmatch, ids)))


def held(holdings: Iterable[Holding], topology: NodeTopology) -> tuple[Forgotten, ...]:
    """The devices to hold back."""
    slices = {part.uuid: slicing.resource(part.profile) for _, part in slicing.of(topology)}
    known = {each: each for each in slices}
    known |= {name: gpu.uuid for gpu in topology.gpus for name in (gpu.pci, gpu.uuid)}
    whys: dict[str, list[str]] = {}
    for holding in sorted(holdings):
        devices, unread = _devices(holding, topology, known)
        shown = brief(f"{(unread or holding.device_ids)[0]} of {holding.resource}", SHOWN)
        why = f"has {shown} from another device plugin"
        if unread:
            why = f"may use it: the agent finds no GPU for {shown}"
        for each in devices:
            whys.setdefault(each, []).append(f"{brief(holding.who, SHOWN)} {why}")
    more = {
        each: f" (and {len(every) - 1} more)" * (len(every) > 1) for each, every in whys.items()
    }
    return tuple(
        Forgotten(slices.get(each, GPU), (each,), every[0] + more[each])
        for each, every in sorted(whys.items())
    )


def _devices(
    holding: Holding, topology: NodeTopology, known: Mapping[str, str]
) -> tuple[set[str], list[str]]:
    """The devices of a holding, and the names that stand for more than one."""
    ids = sorted(set(map(device_of, holding.device_ids)))
    if is_own(holding.resource, holding.device_ids) and set(ids) <= set(known.values()):
        return set(), []
    if all(each in known for each in ids):
        return {known[each] for each in ids}, []
    visible = [each for each in holding.visible if NAME.match(each) or INDEX.fullmatch(each)]
    devices, unread = set[str](), []
    of_gpus = OF_GPUS.match(holding.resource)
    for name in visible or filter(None if of_gpus else NAME.match, ids):
        found = _read(name, topology, known)
        if found is None and not ABSENT.fullmatch(name):
            unread.append(name)
            in_mig = {gpu.uuid for gpu in topology.gpus if gpu.mig and name.startswith("MIG-")}
            found = in_mig or {gpu.uuid for gpu in topology.gpus}
        devices |= found or set()
    return devices, unread


def _read(name: str, topology: NodeTopology, known: Mapping[str, str]) -> set[str] | None:
    """The devices with this name; None if there are none."""
    if name == "all":
        return {gpu.uuid for gpu in topology.gpus}
    if match := INDEX.fullmatch(name):
        return {gpu.uuid for gpu in topology.gpus if gpu.index == int(match[1])} or None
    parts = [name.rsplit("-", count)[0] for count in range(SUFFIXES + 1)]
    parts.append(name.removeprefix("MIG-").partition("/")[0])  # of a slice that is gone
    return next(({known[part]} for part in parts if part in known), None)
