"""GPUs and MIG slices as devices of resource claims: their names in ResourceSlices and allocations.
Pure."""

import re

_LABEL = re.compile(r"(gpu|mig)-[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?", re.ASCII)
_SAFE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


def device_name(uuid: str) -> str:
    """Returns the device of a GPU's or slice's UUID: GPU-8f3c -> gpu-8f3c. Empty: its UUID makes no valid name, so it
    can't be claimed."""
    name = uuid[:4].lower() + uuid[4:]
    return name if _LABEL.fullmatch(name) and uuid_of(name) == uuid else ""


def uuid_of(device: str) -> str:
    """Returns the UUID of a device: gpu-8f3c -> GPU-8f3c. Empty: it is none of device_name()."""
    return device[:4].upper() + device[4:] if _LABEL.fullmatch(device) else ""


def is_safe(text: str) -> bool:
    """Returns whether a claim's uid, name or namespace may be part of a file's name and of a CDI device's."""
    return bool(_SAFE.fullmatch(text)) and ".." not in text
