"""Bandwidth and degraded pairs, on the captures with something broken."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.machine import capture
from agent.machine.facts import GpuFacts, Machine
from agent.machine.survey import survey
from protos.topology import NodeTopology
from tests.agent.nvml_fixture import CAPTURES, NAMES


def named(name: str) -> Machine:
    return capture.load(CAPTURES / f"{name}.json")


def seen(name: str, number: int, change: Callable[[GpuFacts], GpuFacts]) -> NodeTopology:
    """The machine with one GPU changed."""
    machine = named(name)
    gpus = list(machine.nvml.gpus)
    gpus[number] = change(gpus[number])
    return survey(replace(machine, nvml=replace(machine.nvml, gpus=tuple(gpus))))


@pytest.mark.parametrize("name", NAMES)
def test_bandwidth_is_symmetric_and_follows_the_links(name: str) -> None:
    topology = survey(named(name))
    count = len(topology.gpus)
    speeds: dict[str, set[float]] = {}
    for a in range(count):
        assert topology.bandwidth[a][a] == 0
        for b in range(a + 1, count):
            assert topology.bandwidth[a][b] == topology.bandwidth[b][a] > 0
            speeds.setdefault(topology.links[a][b], set()).add(topology.bandwidth[a][b])
    assert all(len(each) == 1 for each in speeds.values()), speeds


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("dgx1-v100-8", 0, 3, 40.0),  # two links of 20
        ("dgx1-v100-8", 0, 5, 10.0),  # over both sockets
        ("dgx2-v100-16", 0, 15, 120.0),
        ("dgx-a100-8", 0, 7, 240.0),
        ("hgx-h100-8", 0, 7, 370.8),
        ("gb200-nvl72-tray-4", 0, 3, 721.8),
        ("b200-one-off-fabric-8", 0, 2, 48.0),  # PCIe of the fifth generation
        ("pcie-switch-8", 0, 1, 24.0),
        ("pcie-plx-8", 0, 1, 12.0),
        ("h100-snc-4", 0, 3, 123.6),  # six links of 20.6
    ],
)
def test_bandwidth(name: str, a: int, b: int, expected: float) -> None:
    assert survey(named(name)).bandwidth[a][b] == expected


def test_fewer_lanes_and_an_unknown_number_of_lanes() -> None:
    narrow = seen("pcie-switch-8", 1, lambda gpu: replace(gpu, pcie_width=8))
    assert (narrow.bandwidth[0][1], narrow.bandwidth[0][2]) == (12.0, 24.0)
    silent = seen("pcie-switch-8", 1, lambda gpu: replace(gpu, pcie_generation=0, pcie_width=0))
    assert silent.bandwidth[0][1] == 12.0


@pytest.mark.parametrize("name", NAMES)
def test_only_the_broken_machine_has_degraded_pairs(name: str) -> None:
    weak = survey(named(name)).weak
    if name != "b200-one-off-fabric-8":
        assert weak == ()
        return
    assert {(pair.a, pair.b) for pair in weak} == {
        tuple(sorted((2, x))) for x in range(8) if x != 2
    }
    assert {pair.why for pair in weak} == {"0 of 18 NVLinks are active"}


def test_some_links_are_down() -> None:
    def down(gpu: GpuFacts) -> GpuFacts:
        links = gpu.nvlinks
        return replace(gpu, nvlinks=(replace(links[0], active=False), *links[1:]))

    hurt = seen("hgx-h100-8", 3, down)
    assert len(hurt.weak) == 7
    assert {pair.why for pair in hurt.weak} == {"17 of 18 NVLinks are active"}
    assert (hurt.links[0][3], hurt.bandwidth[0][3]) == ("NV17", 350.2)
    assert (hurt.links[0][1], hurt.bandwidth[0][1]) == ("NV18", 370.8)


def test_another_clique_and_peer_to_peer_that_is_not_usable() -> None:
    def moved(gpu: GpuFacts) -> GpuFacts:
        assert gpu.fabric
        return replace(gpu, fabric=replace(gpu.fabric, clique_id=7))

    split = seen("gb200-nvl72-tray-4", 1, moved)
    assert {pair.why for pair in split.weak} == {
        "different fabric cliques: 32766 and 7",
        "different fabric cliques: 7 and 32766",
    }
    assert len({gpu.clique for gpu in split.gpus}) == 2, "all cliques of a machine are kept"
    assert split.islands == ((0, 2, 3), (1,))
    closed = seen("dgx-a100-8", 5, lambda gpu: replace(gpu, p2p_nvlink=(5,) * 8))
    assert {pair.why for pair in closed.weak} == {
        "peer-to-peer over NVLink is not usable between them"
    }


def test_one_gpu_reports_more_links_than_its_peer() -> None:
    def silent(gpu: GpuFacts) -> GpuFacts:
        links = [replace(each, active=False) if each.link == 0 else each for each in gpu.nvlinks]
        return replace(gpu, nvlinks=tuple(links))

    hurt = seen("dgx1-v100-8", 0, silent)
    assert len(hurt.weak) == 1
    assert hurt.weak[0].why.startswith("one GPU reports ")


def test_the_position_in_the_rack() -> None:
    told = survey(named("gb200-nvl72-tray-4")).gpus[2]
    assert told.clique == "6f1c" * 8 + ".32766"
    assert (told.chassis, told.slot, told.tray) == ("1821224180042", 9, 3)
    plain = survey(named("hgx-h100-8")).gpus[0]
    assert (plain.clique, plain.chassis, plain.slot) == ("", "", -1)
