"""Reads and writes captures: one machine's raw facts as one JSON file. survey() derives the same
topology from a capture as from the machine, so a capture is enough for a bug report.

Fields at their defaults are left out. A file that does not follow the schema is rejected with the
file's name and the field.
"""

import dataclasses
import json
import re
import types
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints
from uuid import NAMESPACE_DNS, uuid5

from agent.bounded_files import parsed, read_text
from agent.machine import facts
from agent.machine.facts import Machine, NvmlFacts, SysfsFacts, Unusable
from protos.common.picked import picked

SCHEMA = "lockstep.dev/capture/v1"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f-]{36}")
WIDTH = 100
MOST_BYTES = 16 << 20  # of a file; the largest machine has 300 KiB
TYPES = {str: "a string", int: "an integer", bool: "true or false", float: "a number"}


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """The fields of the file."""

    schema: str
    gpus: tuple[facts.GpuFacts, ...]
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: str = ""
    host: facts.HostFacts = dataclasses.field(default_factory=facts.HostFacts)
    pci: tuple[facts.PciDevice, ...] = ()
    numa: tuple[facts.NumaFacts, ...] = ()
    infiniband: tuple[facts.InfinibandDevice, ...] = ()
    rdma_cgroup: facts.RdmaCgroup | None = None
    rdma_exclusive: bool = False
    pcie_source: str = ""


_NVML = "driver_version nvml_version cuda_version"
_SYSFS = "pci numa infiniband rdma_cgroup rdma_exclusive pcie_source"


class CaptureError(Unusable):
    """A capture can't be read; the message names the file and the field."""


class _Bad(Exception):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")


def load(path: str | Path, node: str = "") -> Machine:
    """Reads a capture. With a node's name the devices get UUIDs that are unique to it, as those of real devices are, so
    that many nodes can use one capture. Raises CaptureError."""
    try:
        text = read_text(Path(path), MOST_BYTES)
    except OSError as error:
        raise CaptureError(f"capture {path} can't be read: {error.strerror}") from error
    if node:
        text = _UUID.sub(
            lambda found: f"{found[1]}-{uuid5(NAMESPACE_DNS, f'{node}.{found.group()}')}", text
        )
    return loads(text, str(path))


def loads(text: str, name: str = "capture") -> Machine:
    """`name` stands for the file in messages. Raises CaptureError."""
    try:
        data = parsed(text)
    except ValueError as error:
        raise CaptureError(f"{name}: not JSON: {error}") from error
    try:
        if not isinstance(data, dict):
            raise _Bad("schema", f'missing; a capture is an object with "schema": "{SCHEMA}"')
        if data.get("schema") != SCHEMA:
            found = f"is {json.dumps(data['schema'])}" if "schema" in data else "missing"
            raise _Bad("schema", f"{found}; this version reads {SCHEMA}")
        file = cast("_File", _value(_File, data, ""))
        _check(file)
    except _Bad as error:
        raise CaptureError(f"{name}: {error}") from error
    return Machine(
        nvml=NvmlFacts(**picked(file, _NVML), gpus=file.gpus),
        sysfs=SysfsFacts(**picked(file, _SYSFS)),
        host=file.host,
    )


def save(captured: Machine, path: str | Path) -> None:
    Path(path).write_text(dumps(captured), encoding="utf-8")


def dumps(captured: Machine) -> str:
    nvml, sysfs = captured.nvml, captured.sysfs
    file = _File(
        schema=SCHEMA,
        gpus=tuple(dataclasses.replace(gpu, answered=(), unknown=()) for gpu in nvml.gpus),
        host=captured.host,
        **picked(nvml, _NVML),
        **picked(sysfs, _SYSFS),
    )
    return _layout(_plain(file), "") + "\n"


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Name -> (type, required)."""
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        field.name: (
            hints[field.name],
            field.default is missing and field.default_factory is missing,
        )
        for field in dataclasses.fields(kind)
    }


def _value(kind: Any, data: Any, where: str) -> Any:
    """A value of the type `kind` from parsed JSON; `where` is its path. Raises _Bad."""
    if isinstance(kind, types.UnionType):  # X | None
        return None if data is None else _value(get_args(kind)[0], data, where)
    if get_origin(kind) is tuple:
        if not isinstance(data, list):
            raise _Bad(where, f"must be a list, not {_shown(data)}")
        item = get_args(kind)[0]
        return tuple(
            _value(item, each, f"{where}[{position}]") for position, each in enumerate(data)
        )
    if dataclasses.is_dataclass(kind):
        return _object(kind, data, where)
    if type(data) is not kind:
        raise _Bad(where, f"must be {TYPES[kind]}, not {_shown(data)}")
    return data


def _object(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _Bad(where, f"must be an object, not {_shown(data)}")
    fields = _fields(kind)
    prefix = f"{where}." if where else ""
    for name in data:
        if name not in fields:
            raise _Bad(f"{prefix}{name}", f"not a field of {SCHEMA}")
    for name, (_, required) in fields.items():
        if required and name not in data:
            raise _Bad(f"{prefix}{name}", "missing")
    return kind(
        **{name: _value(fields[name][0], each, f"{prefix}{name}") for name, each in data.items()}
    )


def _shown(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _check(file: _File) -> None:
    """The rules that types can't express. Raises _Bad."""
    uuids: set[str] = set()
    for position, gpu in enumerate(file.gpus):
        where = f"gpus[{position}]"
        if gpu.index != position:
            raise _Bad(f"{where}.index", f"is {gpu.index}; GPUs must be listed by index")
        if gpu.uuid and gpu.uuid in uuids:
            raise _Bad(f"{where}.uuid", f"{gpu.uuid} is used twice")
        uuids.add(gpu.uuid)
        _check_slices(gpu, where, uuids)
        if gpu.pci:
            _address(gpu.pci, f"{where}.pci")
        for name in ("p2p_nvlink", "ancestors"):
            if len(getattr(gpu, name)) not in (0, len(file.gpus)):
                raise _Bad(
                    f"{where}.{name}", f"must have an entry for each of the {len(file.gpus)} GPUs"
                )
    known: set[str] = set()
    for position, device in enumerate(file.pci):
        _address(device.address, f"pci[{position}].address")
        parts = device.path.split("/")
        if parts[0] != "devices" or parts[-1] != device.address or ".." in parts:
            raise _Bad(
                f"pci[{position}].path", f"must start with devices/ and end with {device.address}"
            )
        known.add(device.address)
    for position, nic in enumerate(file.infiniband):
        if "/" in nic.name or not nic.name:
            raise _Bad(f"infiniband[{position}].name", f"{_shown(nic.name)} is not a device name")
        if nic.pci and nic.pci not in known:
            raise _Bad(f"infiniband[{position}].pci", f"{nic.pci} is not listed in pci")


def _check_slices(gpu: facts.GpuFacts, where: str, uuids: set[str]) -> None:
    for position, part in enumerate(gpu.slices):
        if not part.uuid or part.uuid in uuids:
            field = f"{where}.slices[{position}].uuid"
            raise _Bad(field, f"{part.uuid} is used twice" if part.uuid else "must not be empty")
        uuids.add(part.uuid)


def _address(text: str, where: str) -> None:
    if not ADDRESS.fullmatch(text):
        raise _Bad(where, f"{_shown(text)} is not a PCI address such as 0000:07:00.0")


def _plain(value: Any) -> Any:
    """The value as plain JSON types, without fields at their defaults."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    result = {}
    for field in dataclasses.fields(value):
        each = getattr(value, field.name)
        missing = dataclasses.MISSING
        made = field.default_factory() if field.default_factory is not missing else field.default
        if each != made or made is missing:
            result[field.name] = _plain(each)
    return result


def _layout(data: Any, indent: str) -> str:
    """JSON with each list or object on one line where it fits in WIDTH."""
    flat = json.dumps(data, ensure_ascii=False)
    if len(indent) + len(flat) <= WIDTH or not isinstance(data, dict | list) or not data:
        return flat
    deeper = indent + "  "
    if isinstance(data, list):
        items = [deeper + _layout(each, deeper) for each in data]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    items = [f"{deeper}{json.dumps(key)}: {_layout(data[key], deeper)}" for key in data]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"
