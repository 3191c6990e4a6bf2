"""The kubelet's checkpoint of allocated devices. Only this file names pods by UID, as cgroups do;
pod-resources has their names."""

import base64
import binascii
import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from agent.bounded_files import read_json
from protos.stubs import deviceplugin_pb2 as pb

NAME = "kubelet_internal_checkpoint"
MOST_BYTES = 32 << 20  # of the file: an entry has a kilobyte
MOST_IDS, NAME_MOST, ANSWER_MOST = 65_536, 253, 1 << 20  # of an entry
# Behind a CDI kind, or below the folder of volume mounts.
NAMED = re.compile(r"(?:.*nvidia\.com/gpu=|/var/run/nvidia-container-devices/)(.+)")


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

    def visible(self) -> tuple[str, ...]:
        """The names of the GPUs in that answer, as NVIDIA's container runtime reads them: UUIDs or indices."""
        answer = self._response()
        names = [each.container_path for each in answer.mounts]
        names += [each.name for each in answer.cdi_devices]
        names += [name for text in answer.annotations.values() for name in text.split(",")]
        named = [match[1] for match in map(NAMED.fullmatch, names) if match]
        return (*named, *answer.envs.get("NVIDIA_VISIBLE_DEVICES", "").split(","))

    def _response(self) -> pb.ContainerAllocateResponse:
        """An empty response if the answer cannot be decoded."""
        try:
            raw = base64.b64decode(self.answer, validate=True)
            return pb.ContainerAllocateResponse.FromString(raw)
        except (binascii.Error, ValueError, DecodeError):  # ValueError: not ASCII
            return pb.ContainerAllocateResponse()


class Checkpoint(NamedTuple):
    entries: tuple[Entry, ...] = ()
    left_out: tuple[str, ...] = ()  # sentences about entries that cannot be right, with the field


class _Wrong(Exception):
    """The message begins with a field of an entry."""


def read(directory: Path) -> tuple[Entry, ...]:
    """The entries that can be right. Raises OSError with a sentence."""
    return read_all(directory).entries


def read_all(directory: Path) -> Checkpoint:
    """directory: the kubelet's device-plugins directory. Raises OSError with a sentence."""
    file = directory / NAME
    try:
        raw = read_json(file, MOST_BYTES)
    except FileNotFoundError:
        return Checkpoint()
    except OSError as error:
        no_json = error.errno == errno.EILSEQ
        what = f"{file} is not a device checkpoint" if no_json else f"cannot read {file}"
        raise OSError(f"{what}: {error.strerror}") from None
    entries, left_out = [], []
    for number, each in enumerate(_listed(raw, file)):
        try:
            entries.append(_entry(each))
        except _Wrong as error:
            left_out.append(f"{file}: Data.PodDeviceEntries[{number}]{error}")
    return Checkpoint(tuple(entries), tuple(left_out))


def _listed(raw: Any, file: Path) -> list[Any]:
    data = raw.get("Data") if isinstance(raw, dict) else None
    if not isinstance(data, dict):
        raise OSError(f"{file} is not a device checkpoint: it has no map Data")
    listed = data.get("PodDeviceEntries", 0)
    if not isinstance(listed, list | None):
        raise OSError(f"{file} is not a device checkpoint: Data.PodDeviceEntries is no list")
    return listed or []


def _entry(raw: Any) -> Entry:
    """Raises _Wrong."""
    if not isinstance(raw, dict):
        raise _Wrong(" is no map")
    ids = raw.get("DeviceIDs") or ()
    # By NUMA node since Kubernetes 1.20, before that a plain list.
    parts = list(ids.values()) if isinstance(ids, dict) else [ids]
    if not all(isinstance(part, list | tuple | None) for part in parts):
        raise _Wrong(".DeviceIDs has a value that is no list")
    flat = [each for part in parts for each in part or ()]
    if len(flat) > MOST_IDS:
        raise _Wrong(f".DeviceIDs has {len(flat)} entries; at most {MOST_IDS} are read")
    answer = raw.get("AllocResp") or ""
    if not isinstance(answer, str) or len(answer) > ANSWER_MOST:
        raise _Wrong(".AllocResp is no text, or too long")
    return Entry(
        _name(raw.get("PodUID"), "PodUID"),
        _name(raw.get("ContainerName"), "ContainerName"),
        _name(raw.get("ResourceName"), "ResourceName"),
        tuple(sorted(_name(each, "DeviceIDs") for each in flat)),
        answer,
    )


def _name(value: Any, field: str) -> str:
    if isinstance(value, str) and 0 < len(value) <= NAME_MOST and value.isprintable():
        return value
    raise _Wrong(f".{field} has {value!r:.80}, which is no name")
