"""Each limit that docs/reference/limits.md publishes: what is at it is accepted, and what is beyond it is refused with
the limit. Limits that another test names are in that one."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from central.kube.decode import device_claim_decoder, elastic_range, podgroup_decoder
from central.kube.decode.decoder import Decoder
from central.kube.decode.fields import DECODE_ERRORS
from central.model import limits, member_files, member_numbers, speed_table
from central.scheduler.inventory.columns import Columns
from central.server.grpc import report_bounds
from protos import names
from protos.stubs import fleet_pb2 as pb
from tests.central.controllers.job.test_elastic import elastic
from tests.central.poison.by_field.device_examples import device_slice
from tests.docs import reference

TESTS = Path(__file__).parents[1]
Read = Callable[[int], object]
PAIR = "1:1 2:2"


def _request(**more: object) -> object:
    exactly = {"deviceClassName": "c", **more}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return device_claim_decoder.claim_spec(spec)


def _alternatives(count: int) -> object:
    some = [{"name": f"a{number}", "deviceClassName": "c"} for number in range(count)]
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": some}]}}
    return device_claim_decoder.claim_spec(spec)


def _requests(count: int) -> object:
    some = [{"name": f"r{n}", "exactly": {"deviceClassName": "c"}} for n in range(count)]
    return device_claim_decoder.claim_spec({"devices": {"requests": some}})


def _consumers(count: int) -> object:
    users = [{"uid": f"u{number}"} for number in range(count)]
    return device_claim_decoder._status({"reservedFor": users}, "", "")


def _slice(count: int) -> object:
    devices = [{"name": f"d{number}"} for number in range(count)]
    return device_claim_decoder.decode_slice(device_slice(devices=devices))


def _attributes(count: int) -> object:
    device = {"name": "d", "attributes": {f"a{number}": {"int": 1} for number in range(count)}}
    return device_claim_decoder.decode_slice(device_slice(devices=[device]))


def _taints(count: int) -> object:
    device = {"name": "d", "taints": [{"key": "k", "effect": "NoExecute"}] * count}
    return device_claim_decoder.decode_slice(device_slice(devices=[device]))


def _file(length: int) -> object:
    notes = dict.fromkeys(member_files.ANNOTATIONS.values(), "x" * length)
    found = member_files.of_annotations(notes)
    if found == member_files.MemberFiles(*["x" * length] * len(notes)):
        return found
    raise ValueError(f"unreadable beyond {limits.FILES_TEXT}")


def _uses(count: int) -> object:
    report = pb.NodeReport(node="n", boot_id="b", gpu_use=[pb.GpuUse(container="c")] * count)
    report_bounds.check(report)
    return report


def _tasks(count: int) -> object:
    return podgroup_decoder._task_sets("k", ",".join(f"t{n}" for n in range(count)))


def _job(most: int = 12, **spec: int) -> object:
    raw = elastic(most=most, arguments=["--files"])
    raw["spec"] |= spec
    raw["metadata"]["uid"] = "u"
    found = Decoder(("lockstep",), ()).job(raw)
    if found.error:
        raise ValueError(found.error)
    return found


def _resources(count: int) -> object:
    offered = {f"example.com/r{number}": 1 for number in range(count)}
    columns = Columns()
    if len(columns.unknown(offered)) < count:
        raise ValueError(f"beyond {limits.COLUMNS} they are absent")
    return columns


OWN = len(Columns().column)  # resources that each node has a column for
CASES: dict[str, tuple[int, Read]] = {
    "CEL_TEXT": (limits.CEL_TEXT, lambda n: _request(selectors=[{"cel": {"expression": "x" * n}}])),
    "CLAIM_ALTERNATIVES": (limits.CLAIM_ALTERNATIVES, _alternatives),
    "CLAIM_CONSUMERS": (limits.CLAIM_CONSUMERS, _consumers),
    "CLAIM_DEVICES": (limits.CLAIM_DEVICES, _requests),
    "CLAIM_DEVICES of one request": (limits.CLAIM_DEVICES, lambda n: _request(count=n)),
    "DEVICE_ATTRIBUTES": (limits.DEVICE_ATTRIBUTES, _attributes),
    "DEVICE_TAINTS": (limits.DEVICE_TAINTS, _taints),
    "SLICE_DEVICES": (limits.SLICE_DEVICES, _slice),
    "FILES_TEXT": (limits.FILES_TEXT, _file),
    "FILED_MEMBERS": (limits.FILED_MEMBERS, lambda n: _job(most=n)),
    "RETRIES": (limits.RETRIES, lambda n: _job(maxRetry=n)),
    "COLUMNS": (limits.COLUMNS, lambda n: _resources(n - OWN)),
    "GPU_USES": (limits.GPU_USES, _uses),
    "MEMBERS_TEXT": (limits.MEMBERS_TEXT, lambda n: member_numbers.from_text(("10" if n % 2 == 0 else "1") + ",1" * ((n - 1) // 2))),
    "RESIZE_COST_S": (limits.RESIZE_COST_S, lambda n: elastic_range.cost_s({names.RESIZE_COST: f"{n}s"})),
    "ROLES": (limits.ROLES, _tasks),
    "TASK_TEXT": (limits.TASK_TEXT, lambda n: podgroup_decoder._task_sets("k", "t" * n)),
    "SPEEDS": (limits.SPEEDS, lambda n: speed_table.parse(" ".join(f"{k}:1" for k in range(1, n + 1)))),
    "SPEED_TEXT": (limits.SPEED_TEXT, lambda n: speed_table.parse(PAIR + " " * (n - len(PAIR)))),
    "SPEED_MODELS": (
        limits.SPEED_MODELS,
        lambda n: speed_table.parse(PAIR + "".join(f" M{k}=1:1" for k in range(n))),
    ),
    "SPEED_NODES": (
        limits.SPEED_NODES,
        lambda n: speed_table.parse("".join(f"{k}/{k}:1 " for k in range(1, n + 1))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_beyond_a_limit_is_refused(name: str) -> None:
    most, read = CASES[name]
    read(most)
    with pytest.raises((*DECODE_ERRORS, ValueError, report_bounds.MalformedReport)) as refused:
        read(most + 1)
    assert str(most) in str(refused.value) or str(most + 1) in str(refused.value)


def test_each_limit_is_in_a_test() -> None:
    """As limits.NAME, or as a name that is imported from there."""
    published = _published()
    assert len(published) == len(re.findall("^- ", reference.limit_rows(), re.MULTILINE))
    sources = "\n".join(file.read_text() for file in TESTS.rglob("*.py"))
    imported = " ".join(
        re.findall(r"^from central\.model\.limits import (.*)$", sources, re.MULTILINE)
    )
    named = {*re.findall(r"limits\.([A-Z_]+)", sources), *re.findall(r"\w+", imported)}
    assert [name for name in published if name not in named] == []


def _published() -> list[str]:
    tree = ast.parse(Path(limits.__file__).read_text())
    return [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
