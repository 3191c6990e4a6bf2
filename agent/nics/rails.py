"""Rails: NICs that are offered under a resource each, lockstep.dev/rail-0 and on, instead of lockstep.dev/rdma. Pure.

The flag --rdma-rails is none, auto, or a list of selectors as for --rdma-devices, of which the first gives
the NICs of rail 0. With auto each NIC that is offered is a rail, with its virtual functions, in the order of
the GPUs: the rail of GPU 0 first.

Design: docs/design/nics.md
"""

from collections.abc import Sequence
from dataclasses import replace

from agent.nics import selector
from protos.names import RAIL
from protos.nearest import distance
from protos.topology import Hca, NodeTopology

MOST = 128  # rails of a node


def parse(text: str) -> tuple[str, ...]:
    """Raises ValueError with a message for the user."""
    found = selector.parse(text)
    if selector.AUTO in found and len(found) > 1:
        raise ValueError("auto can't be combined with other rails")
    if selector.ALL in found:
        raise ValueError("all does not say which NIC is which rail; use auto")
    if len(found) > MOST:
        raise ValueError(f"{len(found)} rails; at most {MOST}")
    return found


def with_rails(topology: NodeTopology, rails: Sequence[str]) -> NodeTopology:
    """The topology with the resource of each offered NIC. NICs that no rail selects keep lockstep.dev/rdma."""
    if rails == (selector.NONE,):
        return topology
    found = _by_gpu(topology) if rails == (selector.AUTO,) else _selected(topology, rails)
    return replace(
        topology,
        hcas=tuple(
            replace(hca, rail=f"{RAIL}{found[hca.name]}")
            if hca.shares and hca.name in found
            else hca
            for hca in topology.hcas
        ),
    )


def empty(topology: NodeTopology, rails: Sequence[str]) -> tuple[str, ...]:
    """The selectors of rails that have no offered NIC; none on a machine without NICs."""
    if not topology.hcas or rails in ((selector.NONE,), (selector.AUTO,)):
        return ()
    offered = {hca.rail for hca in topology.hcas if hca.shares}
    return tuple(each for number, each in enumerate(rails) if f"{RAIL}{number}" not in offered)


def _selected(topology: NodeTopology, rails: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, each in enumerate(rails):
        for hca in selector.served(topology, (each,)):
            found.setdefault(hca.name, number)
    return found


def _by_gpu(topology: NodeTopology) -> dict[str, int]:
    """Rail numbers by NIC. A virtual function is on the rail of its physical NIC."""
    offered = [hca for hca in topology.hcas if hca.shares]
    rails = sorted(
        {_rail(hca) for hca in offered}, key=lambda name: _place(topology, offered, name)
    )
    numbers = {name: number for number, name in enumerate(rails[:MOST])}
    return {hca.name: numbers[_rail(hca)] for hca in offered if _rail(hca) in numbers}


def _rail(hca: Hca) -> str:
    return hca.physical or hca.name


def _place(topology: NodeTopology, offered: Sequence[Hca], rail: str) -> tuple[int, int]:
    """The first of the GPUs that are closest to the rail, then the place among the NICs."""
    names = [hca.name for hca in offered if _rail(hca) == rail]
    gpus = range(len(topology.gpus))
    first = min(gpus, key=lambda gpu: (distance(topology, gpu, names), gpu), default=0)
    return first, next(place for place, hca in enumerate(offered) if hca.name == names[0])
