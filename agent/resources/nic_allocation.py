"""The choice of RDMA NICs, and of their shares, for a container. Pure.

A NIC is advertised as several shares so that several pods can use it; the shares of one NIC are
alike, and a plan names NICs. A container gets the NICs of its plan, else those closest to the GPUs
that it holds, else those closest to the GPUs planned for it."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from agent.resources.device_resource import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
)
from protos import nic_ids, slicing
from protos.gpu_sharing import key_of
from protos.names import DOMAIN, GPU, RDMA
from protos.nearest import BETWEEN, device_of, nearest
from protos.topology import Grant, Hca, NodeTopology, mask_of

NUMBER = re.compile(r"[0-9]{1,9}")


def preferred(
    request: DeviceRequest,
    topology: NodeTopology,
    plans: Iterable[Grant],
    *,
    just_given: Sequence[str] = (),
    resource: str = RDMA,
) -> Choice:
    """just_given: the GPUs of an Allocate a moment ago. A container that holds exactly these and no
    NIC share yet is the one in admission, with or without a plan."""
    held = {row.key: _gpus(row) for row in request.listed or ()}
    unserved = {row.key for row in request.listed or () if not row.ids(resource)}
    ours = {key_of(plan): plan for plan in plans if plan.resource == resource}
    candidates, key = request.candidates(unserved & ours.keys())
    if key is not None:
        # An init container may take more than the first container's NICs: then those of the next.
        later = (row.key for row in request.listed or () if row.key[:2] == key[:2])
        nics: Sequence[str] = [
            nic
            for name in (key, *(each for each in later if each in unserved and each != key))
            if name in ours
            for nic in ours[name].device_ids
        ]
        gpus = held.get(key) or _planned(plans, key)
        who = f"{key[0]}/{key[1]}, container {key[2]}"
    else:
        fresh = {key for key in unserved if just_given and held[key] == tuple(sorted(just_given))}
        gpus = tuple(just_given) if len(fresh) == 1 or request.listed is None else ()
        nics, who = (
            (),
            "closest to the GPUs just allocated" if gpus else "a pod without GPUs or plan",
        )
    return Choice(_shares(request, topology, nics, gpus), who, candidates, key)


def _gpus(row: ContainerDevices) -> tuple[str, ...]:
    """Whole GPUs and MIG slices of the container."""
    found = [ids for name, ids in row.devices if name == GPU or slicing.is_slice(name)]
    return tuple(sorted(each for ids in found for each in ids))


def _planned(plans: Iterable[Grant], key: ContainerKey) -> tuple[str, ...]:
    for plan in plans:
        if plan.resource == GPU and key_of(plan) == key:
            return plan.device_ids
    return ()


def _shares(
    request: DeviceRequest, topology: NodeTopology, nics: Sequence[str], gpus: Sequence[str]
) -> tuple[str, ...]:
    """The required shares, then shares of the planned NICs, then of those nearest to the GPUs."""
    free: dict[str, list[str]] = {}
    name = nic_ids.names(topology)
    for each in sorted(set(request.available) - set(request.must), key=_in_order):
        free.setdefault(name(each), []).append(each)
    chosen = list(request.must)
    have = Counter(map(name, chosen))
    for nic, wanted in Counter(nics).items():
        missing = max(0, min(wanted - have[nic], request.size - len(chosen)))
        chosen += [free[nic].pop(0) for _ in range(missing) if free.get(nic)]
    index = {gpu.uuid: gpu.index for gpu in topology.gpus}
    index |= {part.uuid: gpu.index for gpu, part in slicing.of(topology)}
    mask = mask_of(index[uuid] for uuid in gpus if uuid in index)
    left = {nic: len(ids) for nic, ids in free.items()}
    for nic in nearest(topology, mask, left, request.size - len(chosen)):
        chosen.append(free[nic].pop(0))
    return tuple(chosen)


def _in_order(share: str) -> tuple[str, int, str]:
    number = share.partition(BETWEEN)[2]
    return device_of(share), int(number) if NUMBER.fullmatch(number) else 0, share


def response(
    ids: Iterable[str],
    topology: NodeTopology,
    device_nodes: Iterable[str] = (),
    *,
    resource: str = RDMA,
) -> ContainerResponse:
    """Raises ValueError if a NIC is not on this node, or not of this resource. A rail sets variables of its
    own, because of a variable that several resources of a container set the kubelet keeps one."""
    names = set(map(nic_ids.names(topology), ids))
    nics = [hca for hca in topology.hcas if hca.name in names]
    if len(nics) < len(names):
        unknown = sorted(names - {hca.name for hca in nics})
        raise ValueError(f"this node has no RDMA NIC {', '.join(unknown)}")
    if other := [hca.name for hca in nics if nic_ids.resource_of(hca) != resource]:
        raise ValueError(f"{', '.join(other)} is not offered as {resource} any more")
    value = ",".join(hca.name for hca in nics)
    if resource != RDMA:
        return ContainerResponse(
            envs=_rail_variables(resource, nics),
            device_nodes=tuple(device_nodes),
            annotations={f"{resource}-hcas": value},
        )
    return ContainerResponse(
        envs={
            "NCCL_IB_HCA": f"={value}",  # with = NCCL matches whole names, without it prefixes
            "UCX_NET_DEVICES": ",".join(f"{hca.name}:{hca.port}" for hca in nics),
            "LOCKSTEP_HCAS": value,
        },
        device_nodes=tuple(device_nodes),
        annotations={f"{DOMAIN}/hcas": value},
    )


def _rail_variables(resource: str, nics: Sequence[Hca]) -> dict[str, str]:
    """LOCKSTEP_RAIL_0: the NICs. PCIDEVICE_LOCKSTEP_DEV_RAIL_0: their PCI addresses, under the name that
    programs know from the SR-IOV device plugin."""
    upper = re.sub(r"[^A-Z0-9]", "_", resource.upper())
    rail = re.sub(r"[^A-Z0-9]", "_", resource.partition("/")[2].upper())
    return {
        f"LOCKSTEP_{rail}": ",".join(hca.name for hca in nics),
        f"PCIDEVICE_{upper}": ",".join(hca.pci for hca in nics),
    }
