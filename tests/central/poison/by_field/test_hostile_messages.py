"""Every field of an agent's report, with hostile values: refused with the field's name, or harmless to another tenant's
gang; and the reports of the node as it is are believed again."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from central.server.grpc import report_bounds
from central.server.grpc.agent_service import _fact
from central.server.grpc.report_bounds import MalformedReport
from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from tests.central.poison.test_reports import report
from tests.central.poison.world import CYCLE_S, READ_S, World
from tests.own_time import own_time

TOGETHER = 20
SENTENCE_MOST = 2000  # characters
_TEXTS = ("", "a\x1b[31m\nb\0", "x" * 262_144, "\u202e", "../..", "9" * 4000, "NaN", "GPU-0")
_WHOLE = (0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
_RATES = (float("nan"), float("inf"), -1.0, 1e308, -0.0)
_FLOATS = {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}


def rich() -> pb.NodeReport:
    """Every message of a report has a field that is set."""
    message = report(gpus=4, hcas=2)
    message.topology.gpus[0].slices.add(uuid="MIG-1", profile="1g.10gb", memory_bytes=10 << 30)
    message.topology.islands.add(gpus=[0, 1])
    message.topology.pcie_switches.add(gpus=[0, 1])
    message.topology.numa_nodes.add()
    message.topology.weak.add(a=0, b=1)
    for _ in range(4):
        message.topology.bandwidth.add(gb_per_s=[1.0] * 4)
    grant = message.grants.add(pod="p0", namespace="ns", container="c", resource=GPU)
    grant.device_ids.append("GPU-0")
    grant.limits["share"] = 5
    message.rdma_use.add(current=pb.RdmaLimit(hca_handle=1), limit=pb.RdmaLimit(hca_handle=2))
    message.memory_over.add(used=2, cap=1)
    return message


def messages(found: Message) -> Iterator[Message]:
    """The message and all that are in it."""
    yield found
    for field, value in found.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = [each for each in value.values() if isinstance(each, Message)]
        else:
            values = list(value) if field.is_repeated else [value]
        for each in values:
            yield from messages(each)


def values(field: Any) -> tuple[Any, ...]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _TEXTS if field.type == FieldDescriptor.TYPE_STRING else ()
    if field.cpp_type in _FLOATS:
        return _RATES
    return (True, False) if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else _WHOLE


def changed() -> Iterator[tuple[str, pb.NodeReport]]:
    """With each value in each field of each message, and each list emptied, doubled and made long."""
    generations = count(2)
    for number, part in enumerate(messages(rich())):
        for field in part.DESCRIPTOR.fields:
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            if (field.message_type is not None and not field.is_repeated) or is_map:
                continue
            for value in ("none", "twice", "many") if field.is_repeated else values(field):
                whole = rich()
                inside = list(messages(whole))[number]
                try:
                    _change(inside, field, value)
                except (ValueError, TypeError):  # the field's type excludes it
                    continue
                if (
                    field.name != "generation"
                ):  # of two reports with one number the second is not read
                    whole.generation = next(generations)
                yield f"{part.DESCRIPTOR.name}.{field.name}: {value!r:.40}", whole


def _change(part: Message, field: Any, value: Any) -> None:
    if not field.is_repeated:
        setattr(part, field.name, value)
        return
    entries = getattr(part, field.name)
    before = list(entries)
    if value == "none":
        part.ClearField(field.name)
    else:
        entries.extend(before * (1 if value == "twice" else 20_000 // max(len(before), 1)))


def decoded(message: pb.NodeReport, where: str) -> tuple[Any, str]:
    """As the service does: the fact, or why there is none."""
    message = pb.NodeReport.FromString(message.SerializeToString())
    fact, why = None, ""
    with own_time() as spent:
        try:
            report_bounds.check(message)
            fact = _fact(message, None)
        except MalformedReport as error:
            why = str(error)
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
    assert spent.seconds < READ_S * 3, where
    return fact, why


def test_every_field_of_a_report() -> None:
    world, together, seen = World(), list[Any](), 0
    whole = decoded(rich(), "rich")[0]
    assert whole is not None
    for where, message in changed():
        fact, why = decoded(message, where)
        assert why.isprintable(), f"{where}: {why!r}"
        assert len(why) < SENTENCE_MOST, where
        seen += 1
        if fact is not None:
            together.append((where, fact))
        if len(together) == TOGETHER:
            _cycle(world, together)
            together.clear()
    _cycle(world, [*together, ("as it is", whole)])
    assert seen > 500


def _cycle(world: World, found: list[tuple[str, Any]]) -> None:
    where = f"{found[0][0]} to {found[-1][0]}"
    _, spent_s = world.cycle(*(fact for _, fact in found))
    assert spent_s < CYCLE_S * 2, where
    failed = list(world.scheduler.quarantine.set_asides.values())
    assert not failed, f"{where}: {failed[0].why}"


def test_the_rich_report_has_every_kind_of_message() -> None:
    named = {part.DESCRIPTOR.name for part in messages(rich())}
    assert named >= _below(pb.NodeReport.DESCRIPTOR)


def _below(of: Any) -> set[str]:
    found = {of.name}
    for field in of.fields:
        inside = field.message_type
        if inside is not None and inside.GetOptions().map_entry:
            inside = inside.fields_by_name["value"].message_type
        if inside is not None:
            found |= _below(inside)
    return found
