"""Machines whose /sys does not show the PCIe tree, as Azure's ND series: 8 GPUs and 8 NICs, each in
a PCI domain of its own. The addresses and the pairs are those of the provider's file for ND H100 v5
(Azure/azhpc-images, topology/ndv5-topo.xml)."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine import capture, pcie_tree
from agent.machine.facts import Machine, PciDevice, SysfsFacts, Unusable
from agent.machine.pcie_source import USUAL, with_tree
from agent.machine.survey import survey
from protos import matrix, topology_json
from protos.nearest import nearest
from protos.topology import NodeTopology
from protos.wire import from_topology, to_topology
from tests.fakes import machines

GPUS = [
    f"{domain}:00:00.0"
    for domain in ["0001", "0002", "0003", "0008", "0009", "000a", "000b", "000c"]
]
NICS = [f"{0x101 + place:04x}:00:00.0" for place in range(8)]


def hidden() -> Machine:
    """As the VM shows itself: every device on a host bridge of its own, on its NUMA node."""
    made = machines.machine(cards=8)
    cards = made.sysfs.infiniband[:8]

    def device(address: str, kind: str, place: int) -> PciDevice:
        path = f"devices/pci{address[:7]}/{address}"
        return PciDevice(address, path, kind, "0x10de", "0x2330", place // 4)

    pci = [device(address, "0x030200", place) for place, address in enumerate(GPUS)]
    pci += [device(address, "0x020700", place) for place, address in enumerate(NICS)]
    # The kernel numbers the NICs in another order than the switches.
    order = [NICS[place] for place in (3, 0, 2, 1, 7, 4, 6, 5)]
    nics = tuple(replace(card, pci=address) for card, address in zip(cards, order, strict=True))
    gpus = tuple(
        replace(gpu, pci=address) for gpu, address in zip(made.nvml.gpus, GPUS, strict=True)
    )
    return Machine(
        replace(made.nvml, gpus=gpus), SysfsFacts(tuple(pci), made.sysfs.numa, nics), made.host
    )


def xml() -> str:
    rows = ['<system version="1">']
    for cpu in (0, 1):
        rows.append(f'<cpu numaid="{cpu}" affinity="ff" arch="x86_64">')
        for place in range(4 * cpu, 4 * cpu + 4):
            rows.append(f'<pci busid="ffff:ff:{place + 1:02x}.0" class="0x060400">')
            rows.append(f'<pci busid="{GPUS[place].upper()}" class="0x030200" link_width="16"/>')
            rows.append(f'<pci busid="{NICS[place]}" class="0x020700"/></pci>')
        rows.append("</cpu>")
    return "\n".join([*rows, "</system>"])


def pairs() -> str:
    lines = (f"{gpu} {nic}" for gpu, nic in zip(GPUS, NICS, strict=True))
    return "# one switch a line\n\n" + "\n".join(lines)


def seen(file: Path | None, node: str = "n") -> NodeTopology:
    machine = hidden()
    return survey(replace(machine, sysfs=with_tree(machine.sysfs, file, file or "/none", node)))


def own_nic(topology: NodeTopology) -> int:
    """For how many GPUs the nearest NIC is that of its own switch."""
    free = {hca.name: 1 for hca in topology.hcas}
    right = dict(zip(GPUS, NICS, strict=True))
    at = {hca.name: hca.pci for hca in topology.hcas}
    return sum(
        at[nearest(topology, 1 << gpu.index, free, 1)[0]] == right[gpu.pci] for gpu in topology.gpus
    )


def test_without_a_tree_few_gpus_get_their_own_nic_and_the_topology_says_so() -> None:
    topology = seen(None)
    assert own_nic(topology) == 2
    assert any("--pcie-tree" in each for each in matrix.notes(topology))
    assert not any("--pcie-tree" in each for each in matrix.notes(survey(machines.machine())))


@pytest.mark.parametrize("text", [xml(), pairs()])
def test_with_a_tree_every_gpu_gets_its_own_nic(text: str, tmp_path: Path) -> None:
    file = tmp_path / "tree"
    file.write_text(text)
    topology = seen(file)
    assert own_nic(topology) == 8
    assert topology.pcie_source == str(file)
    assert f"PCIe paths are from {file}" in matrix.table(topology)
    assert topology_json.to_json("n", topology)["pcie_source"] == str(file)
    assert not any("--pcie-tree" in each for each in matrix.notes(topology))
    assert from_topology(to_topology(topology)) == topology
    for gpu in range(8):
        for nic in range(8):
            other = NICS.index(topology.hcas[nic].pci)
            word = "PIX" if gpu == other else "NODE" if gpu // 4 == other // 4 else "SYS"
            assert topology.links[gpu][8 + nic] == word


def test_bridges_in_bridges() -> None:
    """Two switches behind a third: one bridge apart is PIX, more is PXB, another host bridge NODE."""
    a, b, c, d = GPUS[:4]
    leaf = '<pci busid="{}"/>'.format
    text = (
        '<system><cpu numaid="0"><pci busid="ffff:00:00.0">'
        f'<pci busid="ffff:01:00.0">{leaf(a)}{leaf(b)}</pci>'
        f'<pci busid="ffff:02:00.0">{leaf(c)}</pci></pci>{leaf(d)}</cpu></system>'
    )
    machine = hidden()
    tree = pcie_tree.parse(text, "file")
    free = replace(machine.nvml, gpus=tuple(replace(g, nvlinks=()) for g in machine.nvml.gpus))
    links = survey(
        replace(machine, nvml=free, sysfs=pcie_tree.apply(machine.sysfs, tree, "file"))
    ).links
    assert links[0][1:5] == ("PIX", "PXB", "NODE", "SYS")


def test_a_directory_has_a_file_for_each_node(tmp_path: Path) -> None:
    (tmp_path / "default").write_text(pairs())
    (tmp_path / "n").write_text(xml())
    assert seen(tmp_path).pcie_source == str(tmp_path / "n")
    assert seen(tmp_path, "other").pcie_source == str(tmp_path / "default")
    assert seen(tmp_path, "../n").pcie_source == str(tmp_path / "default")


def test_nccls_usual_place_is_used_without_a_flag(tmp_path: Path) -> None:
    machine = hidden().sysfs
    assert with_tree(machine, None, tmp_path, "n") == machine
    (tmp_path / USUAL).parent.mkdir(parents=True)
    (tmp_path / USUAL).write_text(xml())
    assert with_tree(machine, None, tmp_path, "n").pcie_source == str(tmp_path / USUAL)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert with_tree(machine, empty, tmp_path, "n").pcie_source == str(tmp_path / USUAL)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no PCI device"),
        ("0001:00:00.0 nonsense", 'line 1: "nonsense" is not a PCI address'),
        ("0001:00:00.0\n0001:00:00.0", "line 2: 0001:00:00.0 is listed twice"),
        ("<system>", "not XML"),
        ("<topology/>", "<topology> instead of <system>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><system/>', "a document type is not allowed"),
        ("<system><cpu><pci/></cpu></system>", "<pci>"),
        (
            "<system><cpu>" + '<pci busid="ffff:00:00.0">' * 99 + "</pci>" * 99 + "</cpu></system>",
            "more than 16 bridges in a row",
        ),
        ("#" * (pcie_tree.MOST_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_bad_file_is_named_and_sys_is_used(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "tree"
    file.write_text(text)
    with pytest.raises(Unusable, match="tree: "):
        pcie_tree.parse(text, str(file))
    topology = seen(file)
    assert topology.pcie_source.startswith(f"/sys, because {file}: ")
    assert words in topology.pcie_source
    assert topology.links == seen(None).links


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    why = f"/sys, because {tmp_path / 'gone'}: No such file or directory"
    assert seen(tmp_path / "gone").pcie_source == why


def test_a_capture_keeps_the_tree_and_its_source(tmp_path: Path) -> None:
    file = tmp_path / "tree"
    file.write_text(xml())
    machine = hidden()
    known = replace(machine, sysfs=with_tree(machine.sysfs, file, None, "n"))
    assert survey(capture.loads(capture.dumps(known))) == survey(known)
