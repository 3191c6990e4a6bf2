"""Reads raw facts from sysfs: PCI, NUMA, InfiniBand and the rdma cgroup, below any root. What cannot
be read or understood counts as absent: a device with a broken file does not hide the others."""

import re
from functools import lru_cache
from itertools import islice
from pathlib import Path

from agent import bounded_files
from agent.bounded_files import exists, is_folder
from agent.machine.facts import (
    InfinibandDevice,
    NumaFacts,
    PciDevice,
    Port,
    RdmaCgroup,
    RdmaDeviceLimit,
    SysfsFacts,
    Unusable,
)

NVIDIA = "0x10de"
NVSWITCHES = ("0x10de", "0x1af1")  # 0x1af1: DGX A100
DISPLAY, NETWORK, BRIDGE_OTHER, ACCELERATOR = "0x03", "0x02", "0x0680", "0x12"
SWITCH_MANAGEMENT = b"SW_MNG"  # in the product data (VPD) of NICs that manage NVSwitches
PODS = ("kubepods.slice", "kubepods")  # the cgroup of all pods: systemd and cgroupfs driver
LIMIT = re.compile(r"(\w+)=(\S+)")
NUMBER = re.compile(r"-?[0-9]{1,10}")
MOST_ENTRIES = 65536  # of a directory


def read(root: str | Path = "/sys") -> SysfsFacts:
    """Raises Unusable if the root is not a directory."""
    sys = Path(root)
    if not is_folder(sys):
        raise Unusable(f"--sysfs-root {root} is not a directory")
    return SysfsFacts(
        pci=tuple(_pci(sys)),
        numa=tuple(_numa(sys)),
        infiniband=tuple(_infiniband(sys)),
        rdma_cgroup=_rdma_cgroup(sys),
        # As set by `rdma system set netns`. Kernels without the parameter always share.
        rdma_exclusive=_text(sys / "module/ib_core/parameters/netns_mode") == "N",
    )


_text = bounded_files.text_or_empty


def _number(path: Path, otherwise: int = -1) -> int:
    text = _text(path)
    return int(text) if NUMBER.fullmatch(text) else otherwise


def _resolved(path: Path) -> Path:
    """The path itself if its links lead nowhere, or in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _children(folder: Path) -> list[Path]:
    """The subdirectories, and links to directories, in natural order: mlx5_2 before mlx5_10.
    Without names that are not text."""
    return sorted(_directories(folder), key=_natural)


def _directories(folder: Path) -> list[Path]:
    try:
        found = [path for path in islice(folder.iterdir(), MOST_ENTRIES) if is_folder(path)]
    except OSError:
        return []
    return [path for path in found if path.name.isprintable()]


def _natural(path: Path) -> list[tuple[int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name)
    return [(int(part), "") if part[0] in "0123456789" else (-1, part) for part in parts]


def _pci(sys: Path) -> list[PciDevice]:
    """The GPUs, NVSwitches and NICs. Bridges appear only in their paths."""
    base = _resolved(sys)
    devices = []
    for link in sorted(_directories(sys / "bus/pci/devices")):
        kind, vendor = _text(link / "class"), _text(link / "vendor")
        relevant = (
            kind.startswith(NETWORK)
            or (kind.startswith((DISPLAY, ACCELERATOR)) and vendor == NVIDIA)
            or (kind.startswith(BRIDGE_OTHER) and vendor in NVSWITCHES)
        )
        path = _resolved(link)
        if not relevant or not path.is_relative_to(base):
            continue
        physfn = path / "physfn"
        devices.append(
            PciDevice(
                address=link.name,
                path=path.relative_to(base).as_posix(),
                kind=kind,
                vendor=vendor,
                device=_text(link / "device"),
                numa=_number(link / "numa_node"),
                local_cpus=_text(link / "local_cpulist"),
                driver=_driver(path) if kind.startswith(NETWORK) else "",
                physfn=_resolved(physfn).name if exists(physfn) else "",
            )
        )
    return devices


def _driver(path: Path) -> str:
    link = path / "driver"
    return _resolved(link).name if exists(link) else ""


def _numa(sys: Path) -> list[NumaFacts]:
    return [
        NumaFacts(
            id=int(path.name.removeprefix("node")),
            cpus=_text(path / "cpulist"),
            distance=tuple(map(int, re.findall(r"[0-9]{1,9}", _text(path / "distance")))),
        )
        for path in _children(sys / "devices/system/node")
        if re.fullmatch(r"node[0-9]{1,9}", path.name)
    ]


def _infiniband(sys: Path) -> list[InfinibandDevice]:
    """Software devices have no `device`: they are listed without a PCI address."""
    devices = []
    for path in _children(sys / "class/infiniband"):
        function = path / "device"
        address = _resolved(function).name
        if not exists(function) or not exists(sys / "bus/pci/devices" / address):
            address = ""
        verbs = _children(function / "infiniband_verbs") if address else []
        devices.append(
            InfinibandDevice(
                name=path.name,
                pci=address,
                uverbs=verbs[0].name if verbs else _uverbs(sys, path.name),
                ports=tuple(_port(port) for port in _children(path / "ports")),
                net=tuple(each.name for each in _children(function / "net")) if address else (),
                bridge=bool(address) and _manages_switches(_resolved(function)),
            )
        )
    return devices


def _uverbs(sys: Path, name: str) -> str:
    for path in _children(sys / "class/infiniband_verbs"):
        if _text(path / "ibdev") == name:
            return path.name
    return ""


def _port(path: Path) -> Port:
    return Port(
        number=int(path.name) if NUMBER.fullmatch(path.name) else 0,
        state=_text(path / "state").rpartition(": ")[2],  # 4: ACTIVE
        link_layer=_text(path / "link_layer"),
        rate=_text(path / "rate"),
    )


@lru_cache(maxsize=256)
def _manages_switches(function: Path) -> bool:
    """Cached, because the product data is slow to read and does not change."""
    try:
        return SWITCH_MANAGEMENT in bounded_files.read_bytes(function / "vpd")
    except OSError:
        return False


def _rdma_cgroup(sys: Path) -> RdmaCgroup | None:
    cgroup = sys / "fs/cgroup"
    if is_folder(cgroup / "rdma") and not exists(cgroup / "cgroup.controllers"):
        version, base = 1, cgroup / "rdma"
    elif "rdma" in _text(cgroup / "cgroup.controllers").split():
        version, base = 2, cgroup
    else:
        return None
    for pods in PODS:
        if exists(base / pods / "rdma.max"):
            return RdmaCgroup(version, tuple(_limits(_text(base / pods / "rdma.max"))))
    return RdmaCgroup(version)


def _limits(text: str) -> list[RdmaDeviceLimit]:
    """Parses lines such as `mlx5_0 hca_handle=2 hca_object=max`. Unknown keys are ignored."""
    limits = []
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" ")
        values = {k: int(v) if NUMBER.fullmatch(v) else -1 for k, v in LIMIT.findall(rest)}
        if name:
            limits.append(
                RdmaDeviceLimit(name, values.get("hca_handle", -1), values.get("hca_object", -1))
            )
    return limits
