"""The access of a pod to each RDMA NIC of a node. Pure.

A program with the device file of an InfiniBand NIC can use it. RoCE takes its addresses (GIDs) from
the network interface, so the pod also needs an interface of that NIC in its network namespace."""

from collections.abc import Iterator

from protos.topology import Hca, NodeTopology

ETHERNET = "Ethernet"
ANY = "any pod"


def lines(topology: NodeTopology) -> Iterator[str]:
    """One for all NICs with the same answer, of those that pods may have; none if any pod can use
    all of them, and none is offered by rail."""
    offered = [hca for hca in topology.hcas if hca.shares] or list(topology.hcas)
    found: dict[str, list[str]] = {}
    for hca in offered:
        found.setdefault(access(hca, topology), []).append(_name(hca))
    if found.keys() <= {ANY} and not any(hca.rail for hca in offered):
        return iter(())
    return (f"  {', '.join(names)}: {how}" for how, names in found.items())


def access(hca: Hca, topology: NodeTopology) -> str:
    if hca.physical:
        return "one pod, with an interface of it (sriov-cni with Multus, which hands it the PCI address)"
    if topology.rdma_exclusive:
        return "pods with hostNetwork; others only if a CNI plugin moves the NIC (rdma-cni)"
    if hca.link_layer == ETHERNET:
        return (
            "pods with hostNetwork; others need an interface of it (macvlan or ipvlan with "
            "Multus), because RoCE takes its addresses from there"
        )
    return ANY


def _name(hca: Hca) -> str:
    """Returns the NIC's name, with the identifier that a NetworkAttachmentDefinition uses."""
    what = hca.pci if hca.physical else hca.net if hca.link_layer == ETHERNET else ""
    inside = ", ".join(filter(None, (what, hca.rail)))
    return f"{hca.name} ({inside})" if inside else hca.name
