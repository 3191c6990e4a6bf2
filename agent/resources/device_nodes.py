"""The device files of GPUs and network cards. With NVIDIA's container runtime nobody needs those of
GPUs from us; without it a container reaches its GPUs through these alone. Those of network cards are
always ours to give."""

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


def cards(uverbs: Iterable[str], policy: str, dev_root: Path) -> tuple[str, ...]:
    """Of these network cards only, and what all connections are made through."""
    names = [f"infiniband/{name}" for name in (*sorted(uverbs), "rdma_cm")]
    missing = [name for name in names if not (dev_root / name).exists()]
    if policy == "always" and missing:
        raise ValueError(
            f"{', '.join(missing)}: no such file below {dev_root} (--pass-device-nodes=always)"
        )
    if policy == "never" or set(names[:-1]) <= set(missing):
        return ()
    return tuple(f"/dev/{name}" for name in names if name not in missing)
