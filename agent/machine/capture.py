"""A capture: one machine's raw facts as one JSON file. What survey() makes of it, it makes of the
machine itself; a bug report is a file.

Fields that a machine did not tell are left out. A file that is not what the schema says is
refused with its name and the field.
"""

import dataclasses
import json
import re
import types
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from agent.machine import facts as machine
from agent.machine.facts import Machine, NvmlFacts, SysfsFacts, Unusable

SCHEMA = "lockstep.dev/capture/v1"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
WIDTH = 100
WORDS = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """The file, field by field."""

    schema: str
    gpus: tuple[machine.GpuFacts, ...]
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: str = ""
    host: machine.HostFacts = dataclasses.field(default_factory=machine.HostFacts)
    pci: tuple[machine.PciDevice, ...] = ()
    numa: tuple[machine.NumaFacts, ...] = ()
    infiniband: tuple[machine.InfinibandDevice, ...] = ()
    rdma_cgroup: machine.RdmaCgroup | None = None
    rdma_exclusive: bool = False


class CaptureError(Unusable):
    """A capture can't be read; says which file and field."""


class _Bad(Exception):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")


def load(path: str | Path) -> Machine:
    """Raises CaptureError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise CaptureError(f"capture {path} can't be read: {problem}") from error
    return loads(text, str(path))


def loads(text: str, name: str = "capture") -> Machine:
    try:
        data = json.loads(text)
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
        nvml=NvmlFacts(file.driver_version, file.nvml_version, file.cuda_version, file.gpus),
        sysfs=SysfsFacts(
            file.pci, file.numa, file.infiniband, file.rdma_cgroup, file.rdma_exclusive
        ),
        host=file.host,
    )


def save(captured: Machine, path: str | Path) -> None:
    Path(path).write_text(dumps(captured), encoding="utf-8")


def dumps(captured: Machine) -> str:
    nvml, sysfs = captured.nvml, captured.sysfs
    file = _File(
        schema=SCHEMA,
        gpus=nvml.gpus,
        driver_version=nvml.driver_version,
        nvml_version=nvml.nvml_version,
        cuda_version=nvml.cuda_version,
        host=captured.host,
        pci=sysfs.pci,
        numa=sysfs.numa,
        infiniband=sysfs.infiniband,
        rdma_cgroup=sysfs.rdma_cgroup,
        rdma_exclusive=sysfs.rdma_exclusive,
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
    """What the type says, made of JSON."""
    if isinstance(kind, types.UnionType):  # something or nothing
        return None if data is None else _value(get_args(kind)[0], data, where)
    if get_origin(kind) is tuple:
        if not isinstance(data, list):
            raise _Bad(where, f"must be a list, not {_shown(data)}")
        item = get_args(kind)[0]
        return tuple(_value(item, each, f"{where}[{place}]") for place, each in enumerate(data))
    if dataclasses.is_dataclass(kind):
        return _object(kind, data, where)
    if type(data) is not kind:
        raise _Bad(where, f"must be {WORDS[kind]}, not {_shown(data)}")
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
    """What the types don't say."""
    uuids: set[str] = set()
    for place, gpu in enumerate(file.gpus):
        where = f"gpus[{place}]"
        if gpu.index != place:
            raise _Bad(f"{where}.index", f"is {gpu.index}; GPUs stand in the order of their index")
        if gpu.uuid and gpu.uuid in uuids:
            raise _Bad(f"{where}.uuid", f"{gpu.uuid} is another GPU's, too")
        uuids.add(gpu.uuid)
        _check_slices(gpu, where, uuids)
        if not gpu.fault or gpu.pci:
            _address(gpu.pci, f"{where}.pci")
        for name in ("p2p_nvlink", "ancestors"):
            if len(getattr(gpu, name)) not in (0, len(file.gpus)):
                raise _Bad(f"{where}.{name}", f"must have an entry for each of {len(file.gpus)}")
    known: set[str] = set()
    for place, device in enumerate(file.pci):
        _address(device.address, f"pci[{place}].address")
        parts = device.path.split("/")
        if parts[0] != "devices" or parts[-1] != device.address or ".." in parts:
            raise _Bad(f"pci[{place}].path", f"must lead from devices/ to {device.address}")
        known.add(device.address)
    for place, card in enumerate(file.infiniband):
        if "/" in card.name or not card.name:
            raise _Bad(f"infiniband[{place}].name", f"{_shown(card.name)} is not a device's name")
        if card.pci and card.pci not in known:
            raise _Bad(f"infiniband[{place}].pci", f"{card.pci} is not among pci")


def _check_slices(gpu: machine.GpuFacts, where: str, uuids: set[str]) -> None:
    for place, part in enumerate(gpu.slices):
        if not part.uuid or part.uuid in uuids:
            field = f"{where}.slices[{place}].uuid"
            raise _Bad(field, f"{part.uuid} is another one's, too" if part.uuid else "it is empty")
        uuids.add(part.uuid)


def _address(text: str, where: str) -> None:
    if not ADDRESS.fullmatch(text):
        raise _Bad(where, f"{_shown(text)} is not a PCI address such as 0000:07:00.0")


def _plain(value: Any) -> Any:
    """JSON of a value, without the fields that have their defaults."""
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
    """JSON in which whatever fits on one line stands on one."""
    flat = json.dumps(data, ensure_ascii=False)
    if len(indent) + len(flat) <= WIDTH or not isinstance(data, dict | list) or not data:
        return flat
    deeper = indent + "  "
    if isinstance(data, list):
        items = [deeper + _layout(each, deeper) for each in data]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    items = [f"{deeper}{json.dumps(key)}: {_layout(data[key], deeper)}" for key in data]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"
