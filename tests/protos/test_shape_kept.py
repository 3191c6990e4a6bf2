"""Equal machines share one shape, whatever else differs, and unlike ones do not."""

from dataclasses import replace

from protos.topology import NodeTopology, Shape, mask_of
from tests.central import factories


def plainly(topology: NodeTopology) -> Shape:
    count = len(topology.gpus)
    numa = tuple(gpu.numa for gpu in topology.gpus)
    return Shape(
        tuple(row[:count] for row in topology.links[:count]),
        tuple(mask_of(island) for island in topology.islands),
        numa if len(set(numa)) > 1 else (),
        tuple(mask_of(switch) for switch in topology.pcie_switches),
    )


def test_machines_that_differ_in_identities_alone_share_a_shape() -> None:
    one = factories.topology(8)
    other = replace(one, gpus=tuple(replace(gpu, uuid=f"other-{gpu.index}") for gpu in one.gpus))
    far = replace(one, gpus=tuple(replace(gpu, numa=1) for gpu in one.gpus))  # all on one NUMA node
    assert one.shape() is other.shape()
    assert one.shape() is far.shape()


def test_each_part_of_a_shape_counts() -> None:
    one = factories.topology(8)
    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    split = tuple(replace(gpu, numa=gpu.index // 4) for gpu in one.gpus)
    links = tuple(tuple("SYS" if i != j else "X" for j in range(8)) for i in range(8))
    unlike = [
        one,
        replace(one, islands=halves),
        replace(one, pcie_switches=halves),
        replace(one, gpus=split),
        replace(one, links=links),
        factories.topology(4),
    ]
    for topology in (*unlike, *unlike):
        assert topology.shape() == plainly(topology)
    assert len({topology.shape() for topology in unlike}) == len(unlike)
