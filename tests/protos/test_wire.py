"""Topologies and grants survive the wire unchanged."""

from dataclasses import replace

import pytest

from protos import wire
from protos.topology import Gpu, Grant, NodeTopology
from tests.protos.test_matrix import TOPOLOGY


def test_a_topology_survives_the_wire() -> None:
    told = replace(
        TOPOLOGY,
        rdma_exclusive=True,
        memlock=1 << 16,
        driver_version="580.1",
        cuda_version="13.0",
        pcie_source="file",
        imex_why="no channel",
    )
    for topology in (TOPOLOGY, told, NodeTopology()):
        assert wire.from_topology(wire.to_topology(topology)) == topology


def test_grants_survive_the_wire() -> None:
    grants = (Grant("team", "p", "main", "nvidia.com/gpu", ("GPU-a", "GPU-b")),)
    assert wire.from_grants(wire.to_grants(grants)) == grants


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (NodeTopology(gpus=(Gpu(1, "a", "A", 1, ""),), links=(("X",),)), "indices"),
        (NodeTopology(gpus=(Gpu(0, "a", "A", 1, ""),)), "square matrix of 1"),
        (
            NodeTopology(gpus=(Gpu(0, "a", "A", 1, ""),), links=(("X",),), islands=((0, 3),)),
            "an island has",
        ),
    ],
)
def test_an_inconsistent_message_is_refused(topology: NodeTopology, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        wire.from_topology(wire.to_topology(topology))
