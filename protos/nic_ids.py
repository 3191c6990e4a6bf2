"""Device ids of RDMA NICs at the kubelet. Pure.

A NIC that several pods share has an id for each share, by its name: mlx5_0::3. A NIC that one pod has alone (a
virtual function, or one share) has its PCI address as id, 0000:3b:00.2, because Multus hands the ids of a pod to
CNI plugins, which find a device by this address.

Design: docs/design/nics.md
"""

from collections import Counter
from collections.abc import Callable, Iterable

from protos.names import RAIL, RDMA
from protos.nearest import device_of, share_id
from protos.topology import Grant, Hca, NodeTopology


def ids(hca: Hca, topology: NodeTopology) -> tuple[str, ...]:
    """Returns the device ids of all its shares."""
    if hca.shares == 1 and hca.pci in _unique(topology):
        return (hca.pci,)
    return tuple(share_id(hca.name, number) for number in range(hca.shares))


def names(topology: NodeTopology) -> Callable[[str], str]:
    """Returns a function from a device id to the NIC's name. It also accepts ids that this agent gave when the NIC
    had more shares."""
    unique = _unique(topology)
    by_address = {hca.pci: hca.name for hca in topology.hcas if hca.pci in unique}
    return lambda device: by_address.get(device) or device_of(device)


def resource_of(hca: Hca) -> str:
    """The one resource under which the NIC is offered."""
    return hca.rail or RDMA


def is_rail(resource: str) -> bool:
    number = resource.removeprefix(RAIL)
    return number != resource and number.isascii() and number.isdigit() and len(number) <= 3


def are_nics(resource: str) -> bool:
    """Returns whether the resource's devices are shares of NICs."""
    return resource == RDMA or is_rail(resource)


def held_otherwise(topology: NodeTopology, grants: Iterable[Grant]) -> set[str]:
    """NICs that one pod has alone, and that a pod holds by another of their ids, or by another resource."""
    name = names(topology)
    holders = {
        (name(each), grant.resource, each)
        for grant in grants
        if are_nics(grant.resource)
        for each in grant.device_ids
    }
    alone = {
        hca.name: (resource_of(hca), ids(hca, topology)) for hca in topology.hcas if hca.shares == 1
    }
    return {
        nic
        for nic, resource, device in holders
        if nic in alone and (resource != alone[nic][0] or device not in alone[nic][1])
    }


def _unique(topology: NodeTopology) -> set[str]:
    """Addresses of one NIC each: the ports of some old cards share one."""
    counts = Counter(hca.pci for hca in topology.hcas)
    return {address for address, count in counts.items() if address and count == 1}
