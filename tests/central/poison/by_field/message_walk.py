"""Every change of one field of a protobuf message, nested ones included: each hostile value, each list emptied, doubled
and made long, each map given hostile keys and values, each text made bytes that are not UTF-8. Changed messages are
bytes, as a stranger sends them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

TEXTS = ("", "a\x1b[31m\nb\0", "x" * 262_144, "\u202e", "../..", "9" * 4000, "NaN", "GPU-0")
WHOLE = (0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
RATES = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308, -0.0)
_FLOATS = {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}
_MARK, _NO_TEXT = "QMARKQ", b"\xff\xfe\xed\xa0\x80\xc0"  # of equal length
MANY = 20_000  # entries of a list that is made long


class Changed(NamedTuple):
    where: str
    field: str  # the field's own name
    data: bytes


def messages(found: Message) -> Iterator[Message]:
    """The message and all that are in it."""
    yield found
    for field, value in found.ListFields():
        if field.message_type is None:
            continue
        if is_map(field):
            values = [each for each in value.values() if isinstance(each, Message)]
        else:
            values = list(value) if field.is_repeated else [value]
        for each in values:
            yield from messages(each)


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def changed(make: Callable[[], Message], many: int = MANY) -> Iterator[Changed]:
    """make: the message as it should be, in which every field that matters is set."""
    for number, part in enumerate(messages(make())):
        for field in part.DESCRIPTOR.fields:
            for what, change in _changes(field, many):
                whole = make()
                try:
                    change(list(messages(whole))[number])
                except (ValueError, TypeError):  # the field's type excludes it
                    continue
                data = whole.SerializeToString().replace(_MARK.encode(), _NO_TEXT)
                yield Changed(f"{part.DESCRIPTOR.name}.{field.name}: {what}", field.name, data)


Change = Callable[[Any], None]


def _changes(field: Any, many: int) -> Iterator[tuple[str, Change]]:
    if is_map(field):
        yield from _of_map(field, many)
    elif field.is_repeated:
        yield "none", partial(_clear, name=field.name)
        yield "twice", partial(_longer, name=field.name, most=2)
        yield "many", partial(_longer, name=field.name, most=many)
        for value in values(field):
            yield f"one is {value!r:.40}", partial(_one, name=field.name, value=value)
    elif field.message_type is not None:
        yield "none", partial(_clear, name=field.name)
    else:
        for value in values(field):
            yield f"{value!r:.40}", partial(_set, name=field.name, value=value)


def _of_map(field: Any, many: int) -> Iterator[tuple[str, Change]]:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    yield "none", partial(_clear, name=field.name)
    for each in values(key):
        yield f"a key is {each!r:.40}", partial(_put, field=field, key=each)
    if value.message_type is None:
        for each in values(value):
            yield (f"a value is {each!r:.40}", partial(_set_all, name=field.name, value=each))
    if key.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        yield "many", partial(_put_many, field=field, many=many)


def _clear(part: Any, name: str) -> None:
    part.ClearField(name)


def _set(part: Any, name: str, value: Any) -> None:
    setattr(part, name, value)


def _set_all(part: Any, name: str, value: Any) -> None:
    entries = getattr(part, name)
    for key in list(entries) or ["hca_handle"]:
        entries[key] = value


def _put_many(part: Any, field: Any, many: int) -> None:
    for number in range(many):
        _put(part, field, f"key-{number}")


def _put(part: Any, field: Any, key: Any) -> None:
    """Reading creates the entry, also of a message."""
    entries = getattr(part, field.name)
    if field.message_type.fields_by_name["value"].message_type is not None:
        entries[key].SetInParent()
    else:
        entries[key] = next(iter(entries.values()), 1)


def _longer(part: Any, name: str, most: int) -> None:
    entries = getattr(part, name)
    before = list(entries)
    if before:
        entries.extend(before * ((most - len(before)) // len(before)))


def _one(part: Any, name: str, value: Any) -> None:
    entries = getattr(part, name)
    if len(entries):
        entries[0] = value
    else:
        entries.append(value)


def values(field: Any) -> tuple[Any, ...]:
    """What a scalar of the field's type may be."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return (*TEXTS, _MARK) if field.type == FieldDescriptor.TYPE_STRING else (b"", b"\xff" * 99)
    if field.cpp_type in _FLOATS:
        return RATES
    if field.message_type is not None:
        return ()
    return (True, False) if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else WHOLE


def kinds_below(of: Any) -> set[str]:
    """The names of a message's descriptor and of all that may be in it."""
    found = {of.name}
    for field in of.fields:
        inside = field.message_type
        if is_map(field):
            inside = inside.fields_by_name["value"].message_type
        if inside is not None:
            found |= kinds_below(inside)
    return found
