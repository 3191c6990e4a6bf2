"""Runs as root under a kernel whose PCI tree is that of tree.qemu, dressed by dress.sh: what the agent's
own code reads of it, as JSON. There is no NVML: the GPUs' addresses come from the tree itself."""

import json

from agent.machine import sysfs
from agent.machine.facts import GpuFacts, Machine, NvmlFacts
from agent.machine.survey import survey
from agent.nics import nic_shares
from protos.nearest import nearest, rails


def main() -> None:
    seen = sysfs.read()
    addresses = [device.address for device in seen.pci if device.kind == "0x030200"]
    gpus = tuple(
        GpuFacts(index, f"GPU-{index}", pci=address) for index, address in enumerate(addresses)
    )
    topology = nic_shares.with_shares(
        survey(Machine(NvmlFacts(gpus=gpus), seen)), ("auto",), nic_shares.NicPolicy()
    )
    room = {hca.name: hca.shares for hca in topology.hcas}
    told = {
        "gpus": [[gpu.pci, gpu.numa] for gpu in topology.gpus],
        "cards": [[hca.name, hca.pci, hca.numa] for hca in topology.hcas],
        "numa": [[node.id, node.cpus] for node in topology.numa_nodes],
        "distance": [list(node.distance) for node in seen.numa],
        "links": [" ".join(row) for row in topology.links],
        "rails": list(rails(topology)),
        "nearest": [nearest(topology, 1 << gpu, room, 1)[0] for gpu in range(len(gpus))],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
