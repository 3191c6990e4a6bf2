"""The kubelet's checkpoint of its devices: the one place on a node that says which pod, by uid, holds
which. pod-resources tells names only, and a pod's cgroup is named by its uid."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from protos.stubs import deviceplugin_pb2 as pb

T = TypeVar("T")
NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Entry:
    uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]  # sorted


def read(directory: Path) -> tuple[Entry, ...]:
    """directory: the kubelet's device-plugins. Raises OSError with a sentence."""
    return _each(directory, _entry)


def told(directory: Path) -> tuple[Mapping[str, str], ...]:
    """The annotations that plugins gave containers beside their devices. Raises OSError likewise."""
    return _each(directory, _annotations)


def _each(directory: Path, read_one: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    file = directory / NAME
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["Data"]
        return tuple(read_one(each) for each in data["PodDeviceEntries"] or ())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OSError(f"{file} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, DecodeError):
        raise OSError(f"{file} is not a checkpoint of devices") from None


def _annotations(raw: Mapping[str, Any]) -> Mapping[str, str]:
    """The kubelet keeps a plugin's whole answer."""
    answer = base64.b64decode(raw.get("AllocResp") or "")
    return dict(pb.ContainerAllocateResponse.FromString(answer).annotations)


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
