"""nearest(): which network cards sit closest to some GPUs. Agent and centre must choose alike, so
the choice is a total order. Pure.

Two devices are as far apart as the links' word says; where that is the way between two sockets
(as on Grace, whose cards tell no NUMA node), those of one socket are closer. Cards that share a
PCIe switch with a GPU carry the work's traffic ("rails"); the others, for storage and management, do
not. A machine without such a switch has no such sign: there the fastest cards are rails."""

from collections.abc import Collection, Mapping

from protos.topology import LEVELS, Gpu, Hca, NodeTopology, indices_of

BETWEEN = "::"  # mlx5_0::3 is the fourth share of mlx5_0
SWITCHED = ("PIX", "PXB")
SHARES = 16  # of a card whose real limits are not known
GRACE_SOCKET = 4  # bits of the PCI domain that count the root ports of one Grace


def share(card: str, number: int) -> str:
    return f"{card}{BETWEEN}{number}"


def card_of(share_id: str) -> str:
    return share_id.partition(BETWEEN)[0]


def rails(topology: NodeTopology) -> tuple[str, ...]:
    """The names of the cards that are for the GPUs' traffic."""
    count = len(topology.gpus)
    near = tuple(
        hca.name
        for place, hca in enumerate(topology.hcas)
        if any(topology.links[gpu][count + place] in SWITCHED for gpu in range(count))
    )
    fastest = max((hca.rate_gbps for hca in topology.hcas), default=0.0)
    return near or tuple(hca.name for hca in topology.hcas if hca.rate_gbps == fastest)


def nearest(
    topology: NodeTopology, gpus: int, room: Mapping[str, int], size: int
) -> tuple[str, ...]:
    """A card for each of `size` shares; fewer where there is not so much room. One after the other
    is added that brings the GPUs closest to a card; none twice while there are others."""
    cards = {hca.name: place for place, hca in enumerate(topology.hcas) if room.get(hca.name)}
    ways = {name: _ways(topology, gpus, place) for name, place in cards.items()}
    left = {name: room[name] for name in cards}
    chosen: list[str] = []
    for _ in range(size):
        able = [name for name, count in left.items() if count > 0]
        if not able:
            break
        new = [name for name in able if name not in chosen] or able
        best = [
            min((ways[name][place] for name in chosen), default=99)
            for place in range(gpus.bit_count())
        ]
        found = min(
            new,
            key=lambda name: (
                sum(map(min, ways[name], best)),
                sum(ways[name]),
                -left[name],
                cards[name],
            ),
        )
        left[found] -= 1
        chosen.append(found)
    return tuple(chosen)


def beside(topology: NodeTopology, gpus: int) -> tuple[str, ...]:
    """The cards for the GPUs' traffic that no other is closer to one of these GPUs than."""
    wanted = set(rails(topology))
    ways = {
        hca.name: _ways(topology, gpus, place)
        for place, hca in enumerate(topology.hcas)
        if hca.name in wanted
    }
    if not ways:
        return ()
    best = [min(way) for way in zip(*ways.values(), strict=True)]
    return tuple(name for name, way in ways.items() if any(map(int.__eq__, way, best)))


def distance(topology: NodeTopology, gpu: int, cards: Collection[str]) -> int:
    """How far the GPU is from the closest of the cards; 0 where there are none."""
    places = [place for place, hca in enumerate(topology.hcas) if hca.name in cards]
    return min((_ways(topology, 1 << gpu, place)[0] for place in places), default=0)


def _ways(topology: NodeTopology, gpus: int, place: int) -> tuple[int, ...]:
    """How far the card is from each of the GPUs."""
    hca, count = topology.hcas[place], len(topology.gpus)
    grace = any(gpu.gpu_numa >= 0 for gpu in topology.gpus)
    return tuple(
        2 * _level(topology.links[index][count + place])
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
