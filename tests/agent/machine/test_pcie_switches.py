"""Which GPUs are below one PCIe switch: on every captured machine as its published matrix says, and
unknown where a machine hides its tree."""

from dataclasses import replace
from itertools import combinations

import pytest

from agent.machine import capture, pcie_tree
from agent.machine.facts import GpuFacts, Machine, NvmlFacts, PciDevice, SysfsFacts
from agent.machine.survey import survey
from protos import matrix, topology_json
from protos.wire import from_topology, to_topology
from tests.agent.machine.test_pcie_tree import GPUS, hidden, pairs, xml
from tests.agent.nvml_fixture import CAPTURES

SWITCHED = ("PIX", "PXB")
NAMES = sorted(file.stem for file in CAPTURES.glob("*.json"))
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))


def published(name: str) -> dict[str, dict[str, str]]:
    """The matrix by row and column, as the machine's owner wrote it down."""
    text = (CAPTURES / "published" / f"{name}.txt").read_text()
    header, *lines = [line.split() for line in text.splitlines() if line and line[0] != "#"]
    return {cells[0]: dict(zip(header, cells[1:], strict=False)) for cells in lines}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "single-gpu"])
def test_the_switches_are_those_of_the_published_matrix(name: str) -> None:
    """Two GPUs share a switch if the matrix says so, or, where it says NVLink, if a NIC is behind the
    switch of both."""
    rows, topology = published(name), survey(capture.load(CAPTURES / f"{name}.json"))
    by_gpu = {gpu: at for at, switch in enumerate(topology.pcie_switches) for gpu in switch}
    assert sorted(by_gpu) == list(range(len(topology.gpus))), "each is below one"
    for a, b in combinations(range(len(topology.gpus)), 2):
        one, other = rows[f"GPU{a}"], rows[f"GPU{b}"]
        nics = [each for each in one if "GPU" not in each and each in other]
        beside = any(one[nic] in SWITCHED and other[nic] in SWITCHED for nic in nics)
        shared = one[f"GPU{b}"] in SWITCHED or beside
        assert (by_gpu[a] == by_gpu[b]) == shared, (a, b)


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("dgx-a100-8", PAIRS),
        ("dgx1-v100-8", PAIRS),
        ("dgx2-v100-16", tuple(tuple(range(at, at + 4)) for at in (0, 4, 8, 12))),
        ("pcie-switch-8", ((0, 1, 2, 3), (4, 5, 6, 7))),  # L40S
        ("rtx-pro-6000-8", PAIRS),
        ("l40s-4", ((0,), (1,), (2,), (3,))),  # none has a switch
        ("single-gpu", ()),  # of a VM
    ],
)
def test_switches(name: str, switches: tuple[tuple[int, ...], ...]) -> None:
    assert survey(capture.load(CAPTURES / f"{name}.json")).pcie_switches == switches


def test_a_tree_that_is_hidden_is_unknown_until_a_file_says_it() -> None:
    machine = hidden()
    topology = survey(machine)
    assert topology.pcie_switches == ()
    unknown = " ".join(f"GPU{gpu}" for gpu in range(8))
    assert f"GPUs below one PCIe switch:\n\n  unknown: {unknown}\n" in matrix.table(topology)
    for text in (xml(), pairs()):
        tree = pcie_tree.parse(text, "file")
        told = survey(replace(machine, sysfs=pcie_tree.apply(machine.sysfs, tree, "file")))
        assert told.pcie_switches == tuple((gpu,) for gpu in range(8))
        assert "GPUs below" not in matrix.table(told)


def test_a_file_with_some_of_the_gpus() -> None:
    """Two behind a third switch, one right at the CPU, and five that the file lacks."""
    a, b, c = GPUS[:3]
    leaf = '<pci busid="{}"/>'.format
    text = (
        f'<system><cpu numaid="0"><pci busid="ffff:00:00.0"><pci busid="ffff:01:00.0">{leaf(a)}</pci>'
        f"{leaf(b)}</pci>{leaf(c)}</cpu></system>"
    )
    machine = hidden()
    tree = pcie_tree.parse(text, "file")
    topology = survey(replace(machine, sysfs=pcie_tree.apply(machine.sysfs, tree, "file")))
    assert topology.pcie_switches == ((0, 1), (2,))
    shown = "GPUs below one PCIe switch:\n\n  GPU0 GPU1\n  unknown: GPU3 GPU4 GPU5 GPU6 GPU7\n"
    assert shown in matrix.table(topology)
    assert from_topology(to_topology(topology)) == topology
    assert topology_json.to_json("n", topology)["pcie_switches"] == [[0, 1], [2]]


def test_a_gpu_that_sysfs_lacks_has_an_unknown_place() -> None:
    root = "devices/pci0000:00/0000:00:01.0"
    pci = tuple(
        PciDevice(f"0000:0{bus}:00.0", f"{root}/0000:01:00.0/0000:0{bus}:00.0", "0x030200", "", "")
        for bus in (2, 3)
    )
    gpus = tuple(
        GpuFacts(index=at, uuid=f"GPU-{at}", pci=address)
        for at, address in enumerate((pci[0].address, "", pci[1].address))
    )
    assert survey(Machine(NvmlFacts(gpus=gpus), SysfsFacts(pci))).pcie_switches == ((0, 2),)
