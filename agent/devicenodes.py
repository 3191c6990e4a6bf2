"""The device files of GPUs. With NVIDIA's container runtime nobody needs them from us; without it
a container reaches its GPUs through these alone."""

from collections.abc import Iterable, Mapping
from pathlib import Path

SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
NEEDED = SHARED[:2]


def paths(
    uuids: Iterable[str], minors: Mapping[str, int], policy: str, dev_root: Path
) -> tuple[str, ...]:
    """auto: those that exist below dev_root; always: raises ValueError where one is missing.
    minors are the numbers of the files by GPU; they are not the indices."""
    uuids = tuple(uuids)
    if policy == "never" or not uuids:
        return ()
    own = [f"nvidia{minors[uuid]}" for uuid in uuids if minors.get(uuid, -1) >= 0]
    own = [name for name in own if (dev_root / name).exists()]
    shared = [name for name in SHARED if (dev_root / name).exists()]
    complete = len(own) == len(uuids) and all(name in shared for name in NEEDED)
    if not complete and policy == "always":
        raise ValueError(
            f"not all device files of GPU {', '.join(uuids)} are below {dev_root} "
            "(--pass-device-nodes=always)"
        )
    return tuple(f"/dev/{name}" for name in (*own, *shared)) if own else ()
