"""Each field of an agent's report at its bounds and beyond them, as bytes over the real gRPC service: at the bound it
becomes a fact, beyond it is refused with the field's name, and what people read of it is printable."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from central.model.facts import NodeReported
from protos.stubs import fleet_pb2 as pb
from tests.agent.hostile.reported import texts
from tests.central.poison.by_field.message_walk import is_map, messages
from tests.central.poison.by_field.report_table import FIELDS, Count, Numbers, Rate, Row, Text
from tests.central.poison.by_field.test_hostile_messages import rich
from tests.central.scheduler_process import SchedulerServer, auth

ODD = "a\x1b[31mred\n\u202e"
BEYOND = (float("nan"), float("inf"), -1.0)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[SchedulerServer]:
    made = SchedulerServer()
    yield made
    made.server.stop()


@pytest.fixture(scope="module")
def send(scheduler: SchedulerServer) -> Iterator[Any]:
    with scheduler.channel() as channel:
        call: Any = channel.unary_unary("/lockstep.v1.Fleet/Report")

        def send(message: Message) -> str:
            """Why it was refused; empty: it is a fact."""
            scheduler.agents.forget("n0")  # each is the first of its node
            scheduler.facts.clear()
            try:
                call(message.SerializeToString(), metadata=auth("agent-n0"), timeout=60)
            except grpc.RpcError as error:
                return _refusal(error)
            return ""

        yield send


def _refusal(error: Any) -> str:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    why = str(error.details())
    assert why.isprintable(), why
    assert len(why) < 500, why
    return why


def rows(*kinds: type[Row]) -> list[str]:
    return [name for name, row in FIELDS.items() if isinstance(row, kinds)]


def parts(name: str) -> Iterator[tuple[pb.NodeReport, Any, Any]]:
    """The whole report, a message of it that has this field, and the field; for each such message."""
    kind, _, field = name.partition(".")
    count = len(list(messages(rich())))
    for number in range(count):
        whole = rich()
        part = list(messages(whole))[number]
        if part.DESCRIPTOR.name == kind:
            yield whole, part, part.DESCRIPTOR.fields_by_name[field]


def test_every_field_has_a_row() -> None:
    known = {
        f"{part.DESCRIPTOR.name}.{field.name}"
        for part in messages(rich())
        for field in part.DESCRIPTOR.fields
    }
    assert known == set(FIELDS)


@pytest.mark.parametrize("name", rows(Numbers))
def test_a_number(name: str, send: Any) -> None:
    row = FIELDS[name]
    assert isinstance(row, Numbers)
    used = 0
    for whole, part, field in parts(name):
        wide = name.startswith("RdmaLimit") and any(
            part in (u.current, u.limit) for u in whole.rdma_use
        )
        most = 2**63 - 1 if wide else row.most
        for value in (row.least, most):
            setattr(part, field.name, value)
            assert not send(whole), f"{value}"
        for value in (row.least - 1, most + 1):
            try:
                setattr(part, field.name, value)
            except ValueError:  # the type excludes it
                continue
            assert field.name in send(whole).replace("weak[0]", "a b"), f"{value}"
            used += 1
    assert used or row.most in (2**64 - 1, 2**63 - 1)


@pytest.mark.parametrize("name", rows(Rate))
def test_a_rate(name: str, send: Any) -> None:
    row = FIELDS[name]
    assert isinstance(row, Rate)
    for whole, part, field in parts(name):
        setattr(part, field.name, row.most)
        assert not send(whole)
        wrong = [value for value in BEYOND if value != row.unknown]
        for value in (*wrong, -0.5, row.most * 1.01):
            setattr(part, field.name, value)
            assert field.name in send(whole), value


@pytest.mark.parametrize("name", rows(Text))
def test_a_text(name: str, send: Any, scheduler: SchedulerServer) -> None:
    row = FIELDS[name]
    assert isinstance(row, Text)
    for whole, part, field in parts(name):
        setattr(part, field.name, "x" * row.most)
        assert not send(whole)
        setattr(part, field.name, "x" * (row.most + 1))
        why = send(whole)
        assert field.name in why or "is not the name of a device" in why
        for odd in (ODD, ODD + "\0" * (row.most - len(ODD))):
            setattr(part, field.name, odd)
            why = send(whole)
            if not row.sentence:
                assert field.name in why
                assert "not printable" in why
                continue
            assert not why
            told = [text for fact in scheduler.facts for text in texts(fact)]
            assert all(text.isprintable() and len(text) <= row.most for text in told)


@pytest.mark.parametrize("name", rows(Count))
def test_a_list(name: str, send: Any) -> None:
    row = FIELDS[name]
    assert isinstance(row, Count)
    for whole, part, field in parts(name):
        _fill(part, field, row.most)
        assert field.name not in send(whole), "at the bound"
        _fill(part, field, row.most + 1)
        assert f"{field.name}: {row.most + 1} entries; at most {row.most}" in send(whole)


def _fill(part: Any, field: Any, count: int) -> None:
    entries = getattr(part, field.name)
    if is_map(field):
        for number in range(len(entries), count):
            if field.message_type.fields_by_name["value"].message_type is None:
                entries[f"key-{number}"] = 1
            else:
                entries[f"key-{number}"].hca_handle = 1
        return
    first = entries[0] if len(entries) else pb.Island()
    del entries[:]
    if isinstance(first, Message):
        empty = first.__class__()
        if not isinstance(first, pb.Island):
            empty = first
        entries.extend([empty] * count)
    else:
        entries.extend([first] * count)


@pytest.mark.parametrize(
    ("field", "device"),
    [("device_ids", ODD), ("device_ids", "x" * 254), ("limits", "x" * 254), ("limits", ODD)],
)
def test_a_name_inside_a_list(field: str, device: str, send: Any) -> None:
    whole = rich()
    grant = whole.grants[0]
    if field == "limits":
        grant.limits[device] = 1
    else:
        grant.device_ids.append(device)
    assert f"grants[0].{field}" in send(whole)


@pytest.mark.parametrize("name", [ODD, "x" * 254])
def test_the_name_of_a_nic_with_limits(name: str, send: Any) -> None:
    whole = rich()
    whole.topology.rdma_cgroup.devices[name].hca_handle = 1
    assert "topology.rdma_cgroup.devices" in send(whole)


@pytest.mark.parametrize(("key", "most"), [("share", 100), ("memory", 2**47)])
def test_a_limit_of_a_grant(key: str, most: int, send: Any) -> None:
    whole = rich()
    for value, fits in ((-1, True), (most, True), (-2, False), (most + 1, False)):
        whole.grants[0].limits[key] = value
        assert (send(whole) == "") is fits, value


def test_the_slices_of_a_gpu(send: Any) -> None:
    whole = rich()
    slices = whole.topology.gpus[1].slices
    for number in range(64):
        slices.add(uuid=f"MIG-x{number}", profile="1g.10gb")
    assert not send(whole)
    slices.add(uuid="MIG-y", profile="1g.10gb")
    assert "topology.gpus[1].slices: 65 entries; at most 64" in send(whole)


@pytest.mark.parametrize("field", ["uuid", "profile"])
def test_a_slice_without_a_name(field: str, send: Any) -> None:
    whole = rich()
    setattr(whole.topology.gpus[0].slices[0], field, "")
    assert "topology.gpus[0].slices[0]: a slice needs" in send(whole)


def test_a_good_report_after_all_of_them(send: Any, scheduler: SchedulerServer) -> None:
    assert not send(rich())
    (fact,) = (each for each in scheduler.facts if isinstance(each, NodeReported))
    assert len(fact.topology.gpus) == 4
