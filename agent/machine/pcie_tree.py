"""The PCIe tree of a machine whose /sys does not show it. In many VMs each GPU and NIC is in a PCI
domain of its own, so that all of them seem equally far apart. Providers describe the tree in the
topology file of NCCL (virtualTopology.xml, NCCL_TOPO_FILE); a list of neighbours does as well.
Pure.

NCCL's file has <cpu numaid=...> elements, below them <pci busid=...> elements, of which the inner
ones are bridges (a switch each) and the outermost ones hang on a host bridge of their own. In a
list, each line has the addresses of devices behind one switch:

    0001:00:00.0 0101:00:00.0   # a GPU and its NIC
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from agent.machine.facts import SysfsFacts, Unusable

ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
NUMA = re.compile(r"[0-9]{1,5}")
MOST_BYTES = 1 << 20
MOST_DEVICES = 4096
DEEPEST = 16
LIST, NCCL = "pcilist", "pcinccl"
ROOTS = (LIST, NCCL)  # what the paths of a file begin with, below devices/


@dataclass(frozen=True, slots=True)
class Place:
    path: str  # as PciDevice.path
    numa: int = -1  # -1: as /sys says


Tree = Mapping[str, Place]  # by address


def parse(text: str, name: str) -> Tree:
    """name: of the file, for messages. Raises Unusable."""
    if len(text) > MOST_BYTES:
        raise Unusable(f"{name}: larger than {MOST_BYTES >> 20} MiB")
    is_xml = text.lstrip().startswith("<")
    found = dict(_of_xml(text, name) if is_xml else _of_list(text, name))
    if not found:
        raise Unusable(f"{name}: no PCI device")
    return found


def apply(facts: SysfsFacts, tree: Tree, source: str) -> SysfsFacts:
    """The facts with the devices where the tree has them. Devices that it lacks stay."""
    pci = tuple(
        replace(device, path=place.path, numa=place.numa if place.numa >= 0 else device.numa)
        if (place := tree.get(device.address))
        else device
        for device in facts.pci
    )
    return replace(facts, pci=pci, pcie_source=source)


def _of_list(text: str, name: str) -> Iterator[tuple[str, Place]]:
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        where = f"{name}: line {number}"
        bridge = f"ffff:{number & 0xFF:02x}:{number >> 8 & 0x1F:02x}.0"
        for word in words:
            address = _address(word, where)
            if address in seen:
                raise Unusable(f"{where}: {address} is listed twice")
            seen.add(address)
            yield address, Place(f"devices/{LIST}:{number}/{bridge}/{address}")


def _of_xml(text: str, name: str) -> Iterator[tuple[str, Place]]:
    if "<!" in text.replace("<!--", ""):  # entities can grow without bound
        raise Unusable(f"{name}: a document type is not allowed")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise Unusable(f"{name}: not XML: {error}") from None
    if root.tag != "system":
        raise Unusable(f"{name}: <{root.tag}> instead of <system>, as NCCL writes it")
    for cpu, each in enumerate(root.iter("cpu")):
        numa = each.get("numaid", "")
        node = int(numa) if NUMA.fullmatch(numa) else -1
        for position, top in enumerate(each.findall("pci")):
            yield from _below(top, f"devices/{NCCL}:{cpu}.{position}", node, name, DEEPEST)


def _below(
    element: ElementTree.Element, above: str, numa: int, name: str, left: int
) -> Iterator[tuple[str, Place]]:
    """The devices of the element: a bridge has devices, and a port for each of them."""
    address = _address(element.get("busid", ""), f"{name}: <pci>")
    path = f"{above}/{address}"
    children = element.findall("pci")
    if not children:
        yield address, Place(path, numa)
    elif not left:
        raise Unusable(f"{name}: more than {DEEPEST} bridges in a row")
    elif len(children) > MOST_DEVICES:
        raise Unusable(f"{name}: more than {MOST_DEVICES} devices below {address}")
    for port, child in enumerate(children):
        yield from _below(child, f"{path}/port{port}", numa, name, left - 1)


def _address(word: str, where: str) -> str:
    """Returns the address in the form of /sys."""
    found = ADDRESS.fullmatch(word.lower())
    if not found:
        raise Unusable(f'{where}: "{word[:40]}" is not a PCI address such as 0001:00:00.0')
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}"
