"""The device files of slices: those of their GPU, and a file that opens each instance (a capability)."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.resources.device_nodes import NEEDED, SHARED
from protos import slicing
from protos.topology import Gpu, Slice

CAPABILITIES = "driver/nvidia/capabilities"
MINORS = "driver/nvidia-caps/mig-minors"  # all that there can be, a path and a number to a line


def paths(
    parts: Iterable[tuple[Gpu, Slice]],
    minors: Mapping[str, int],
    policy: str,
    dev_root: Path,
    proc_root: Path,
) -> tuple[str, ...]:
    """As device_nodes.paths, and a slice has all of its files or none: without one it can't be opened."""
    if policy == "never":
        return ()
    shared = [name for name in SHARED if (dev_root / name).exists()]
    found: list[str] = []
    for gpu, part in parts:
        names = _own(gpu, part, minors, proc_root)
        complete = bool(names) and all((dev_root / name).exists() for name in names)
        if policy == "always" and not (complete and set(NEEDED) <= set(shared)):
            raise ValueError(
                f"not all device files of {slicing.words(gpu, part)} are below {dev_root} "
                "(--pass-device-nodes=always)"
            )
        found += names if complete else ()
    return tuple(f"/dev/{name}" for name in dict.fromkeys((*found, *shared))) if found else ()


def _own(gpu: Gpu, part: Slice, minors: Mapping[str, int], proc_root: Path) -> list[str]:
    """Empty where one of them has no number."""
    minor = minors.get(gpu.uuid, -1)
    if minor < 0:
        return []
    instance = f"gi{part.gi}"
    numbers = [
        _number(proc_root, minor, f"{place}/access")
        for place in (instance, f"{instance}/ci{part.ci}")
    ]
    if min(numbers) < 0:
        return []
    return [f"nvidia{minor}", *(f"nvidia-caps/nvidia-cap{number}" for number in numbers)]


def _number(proc_root: Path, minor: int, place: str) -> int:
    """Of the capability's file: 4 of nvidia-cap4; -1: not told."""
    try:
        text = (proc_root / CAPABILITIES / f"gpu{minor}/mig/{place}").read_text(encoding="ascii")
        told = {
            key: value.strip() for key, _, value in (x.partition(":") for x in text.split("\n"))
        }
        return int(told["DeviceFileMinor"])
    except (OSError, ValueError, KeyError):
        pass
    try:
        lines = (proc_root / MINORS).read_text(encoding="ascii").splitlines()
        return int(dict(line.split(" ", 1) for line in lines if " " in line)[f"gpu{minor}/{place}"])
    except (OSError, ValueError, KeyError):
        return -1
