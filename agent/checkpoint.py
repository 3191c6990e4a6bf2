"""The kubelet's checkpoint of its devices: the one place on a node that says which pod, by uid, holds
which. pod-resources tells names only, and a pod's cgroup is named by its uid."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Entry:
    uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]  # sorted


def read(directory: Path) -> tuple[Entry, ...]:
    """directory: the kubelet's device-plugins. Raises OSError with a sentence."""
    file = directory / NAME
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["Data"]
        return tuple(_entry(each) for each in data["PodDeviceEntries"] or ())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OSError(f"{file} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OSError(f"{file} is not a checkpoint of devices") from None


def _entry(raw: Mapping[str, Any]) -> Entry:
    ids = raw["DeviceIDs"]
    # By NUMA node since Kubernetes 1.20, a plain list before.
    flat = [each for part in ids.values() for each in part or ()] if isinstance(ids, dict) else ids
    return Entry(
        str(raw["PodUID"]),
        str(raw["ContainerName"]),
        str(raw["ResourceName"]),
        tuple(sorted(map(str, flat or ()))),
    )
