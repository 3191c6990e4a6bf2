"""The kubelet's checkpoint of allocated devices. Only this file names pods by UID, as cgroups do;
pod-resources has their names."""

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
    answer: str = ""  # the plugin's answer to Allocate, base64

    def envs(self) -> Mapping[str, str]:
        """The environment variables of that answer."""
        return dict(self._response().envs)

    def annotations(self) -> Mapping[str, str]:
        return dict(self._response().annotations)

    def _response(self) -> pb.ContainerAllocateResponse:
        """An empty response if the answer cannot be decoded."""
        try:
            raw = base64.b64decode(self.answer, validate=True)
            return pb.ContainerAllocateResponse.FromString(raw)
        except (binascii.Error, DecodeError):
            return pb.ContainerAllocateResponse()


def read(directory: Path) -> tuple[Entry, ...]:
    """directory: the kubelet's device-plugins directory. Raises OSError with a sentence."""
    file = directory / NAME
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["Data"]
        return tuple(_entry(each) for each in data["PodDeviceEntries"] or ())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OSError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OSError(f"{file} is not a device checkpoint") from None


def _entry(raw: Mapping[str, Any]) -> Entry:
    ids = raw["DeviceIDs"]
    # By NUMA node since Kubernetes 1.20, before that a plain list.
    flat = [each for part in ids.values() for each in part or ()] if isinstance(ids, dict) else ids
    return Entry(
        str(raw["PodUID"]),
        str(raw["ContainerName"]),
        str(raw["ResourceName"]),
        tuple(sorted(map(str, flat or ()))),
        str(raw.get("AllocResp") or ""),
    )
