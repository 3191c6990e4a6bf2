"""nearest() chooses the NICs closest to a set of GPUs. Agent and scheduler must choose alike, so
the choice is a total order. Pure.

The distance of two devices is the PCIe level between them. At equal levels, devices of one socket
are closer; this matters on Grace, whose NICs report no NUMA node. NICs that share a PCIe switch
with a GPU carry the traffic of jobs ("rails"); the others are for storage and management. On a
machine without such NICs, the fastest NICs are the rails.

Example: GPUs 2 and 6 of a machine with one rail per GPU. Two shares are one of the rail of GPU 2
and one of that of GPU 6, because the second share goes to the NIC that most reduces the sum of the
GPUs' distances to their closest chosen NIC."""

from collections.abc import Collection, Mapping

from protos.topology import LEVELS, Gpu, Hca, NodeTopology, indices_of

BETWEEN = "::"  # mlx5_0::3 is the fourth share of mlx5_0
SWITCHED = ("PIX", "PXB")
SHARES = 16  # of a NIC without a known limit
GRACE_SOCKET = 4  # low bits of the PCI domain, which number the root ports of one Grace socket


def share_id(device: str, number: int) -> str:
    """The device id of one share: of a NIC by name, or of a GPU by uuid."""
    return f"{device}{BETWEEN}{number}"


def device_of(share: str) -> str:
    """The NIC or GPU of a share, by its device id."""
    return share.partition(BETWEEN)[0]


def rails(topology: NodeTopology) -> tuple[str, ...]:
    """The names of the NICs for the GPUs' traffic."""
    count = len(topology.gpus)
    near = tuple(
        hca.name
        for position, hca in enumerate(topology.hcas)
        if any(topology.links[gpu][count + position] in SWITCHED for gpu in range(count))
    )
    fastest = max((hca.rate_gbps for hca in topology.hcas), default=0.0)
    return near or tuple(hca.name for hca in topology.hcas if hca.rate_gbps == fastest)


def nearest(
    topology: NodeTopology, gpus: int, free: Mapping[str, int], size: int
) -> tuple[str, ...]:
    """The NIC of each of `size` shares; fewer if fewer are free. gpus: a mask. free: shares by NIC.

    Greedy: each share goes to the NIC that most reduces the GPUs' distances to their closest chosen
    NIC. A NIC is chosen again only when every NIC with free shares has been chosen."""
    nics = {hca.name: position for position, hca in enumerate(topology.hcas) if free.get(hca.name)}
    distances = {name: _distances(topology, gpus, position) for name, position in nics.items()}
    left = {name: free[name] for name in nics}
    chosen: list[str] = []
    for _ in range(size):
        usable = [name for name, count in left.items() if count > 0]
        if not usable:
            break
        new = [name for name in usable if name not in chosen] or usable
        best = [
            min((distances[name][position] for name in chosen), default=99)
            for position in range(gpus.bit_count())
        ]
        found = min(
            new,
            key=lambda name: (
                sum(map(min, distances[name], best)),
                sum(distances[name]),
                -left[name],
                nics[name],
            ),
        )
        left[found] -= 1
        chosen.append(found)
    return tuple(chosen)


def adjacent_nics(topology: NodeTopology, gpus: int) -> tuple[str, ...]:
    """The rails that are, for at least one of these GPUs, as close as any rail. gpus: a mask."""
    names = set(rails(topology))
    distances = {
        hca.name: _distances(topology, gpus, position)
        for position, hca in enumerate(topology.hcas)
        if hca.name in names
    }
    if not distances:
        return ()
    best = [min(row) for row in zip(*distances.values(), strict=True)]
    return tuple(name for name, row in distances.items() if any(map(int.__eq__, row, best)))


def distance(topology: NodeTopology, gpu: int, nics: Collection[str]) -> int:
    """The distance of the GPU from the closest of the NICs; 0 without NICs."""
    positions = [position for position, hca in enumerate(topology.hcas) if hca.name in nics]
    return min((_distances(topology, 1 << gpu, position)[0] for position in positions), default=0)


def _distances(topology: NodeTopology, gpus: int, position: int) -> tuple[int, ...]:
    """The distance of the NIC from each of the GPUs."""
    hca, count = topology.hcas[position], len(topology.gpus)
    grace = any(gpu.gpu_numa >= 0 for gpu in topology.gpus)
    return tuple(
        2 * _level(topology.links[index][count + position])
        + (_socket(hca, grace) != _socket(topology.gpus[index], grace))
        for index in indices_of(gpus)
    )


def _level(word: str) -> int:
    return LEVELS.index(word) if word in LEVELS else 0


def _socket(device: Gpu | Hca, grace: bool) -> int:
    if device.numa >= 0 or not grace:
        return device.numa
    domain = device.pci.partition(":")[0]
    return int(domain, 16) >> GRACE_SOCKET if domain else -1
