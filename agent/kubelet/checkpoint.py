"""The kubelet's checkpoint of its devices: the one place on a node that says which pod, by uid, holds
which. pod-resources tells names only, and a pod's cgroup is named by its uid."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from protos.stubs import deviceplugin_pb2 as pb

NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Entry:
    uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]  # sorted
    answer: str = ""  # ours to Allocate, as the kubelet keeps it

    def envs(self) -> Mapping[str, str]:
        """The variables of that answer."""
        return dict(self._told().envs)

    def annotations(self) -> Mapping[str, str]:
        return dict(self._told().annotations)

    def _told(self) -> pb.ContainerAllocateResponse:
        """What can't be read says nothing."""
        try:
            raw = base64.b64decode(self.answer, validate=True)
            return pb.ContainerAllocateResponse.FromString(raw)
        except (binascii.Error, DecodeError):
            return pb.ContainerAllocateResponse()


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


def told(directory: Path) -> tuple[Mapping[str, str], ...]:
    """The annotations that plugins gave containers beside their devices. Raises OSError likewise."""
    return tuple(entry.annotations() for entry in read(directory))


def _entry(raw: Mapping[str, Any]) -> Entry:
    ids = raw["DeviceIDs"]
    # By NUMA node since Kubernetes 1.20, a plain list before.
    flat = [each for part in ids.values() for each in part or ()] if isinstance(ids, dict) else ids
    return Entry(
        str(raw["PodUID"]),
        str(raw["ContainerName"]),
        str(raw["ResourceName"]),
        tuple(sorted(map(str, flat or ()))),
        str(raw.get("AllocResp") or ""),
    )
