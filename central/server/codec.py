"""Facts and decisions as JSON, by class and field names: ["BindDone", {"pod": ..., "node": ...}]. A field
that a record lacks, because it is older than the field, gets its default."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from central.model.decisions import Decision
from central.model.facts import Fact

Read = Callable[[Any], Any]

_NAMED: dict[str, type] = {kind.__name__: kind for kind in (*get_args(Fact), *get_args(Decision))}


class UnreadableRecord(ValueError):
    """Names the record and what is wrong with it."""


def dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=_default)


def tagged(values: typing.Iterable[Any]) -> list[list[Any]]:
    """Facts or decisions with their class names, for dumps()."""
    return [[type(value).__name__, value] for value in values]


def untagged(found: Any) -> list[Any]:
    """Raises UnreadableRecord."""
    values = []
    for each in found:
        try:
            name, fields = each
            values.append(_reader(_NAMED[name])(fields))
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableRecord(f"{str(each)[:80]}: {type(error).__name__}: {error}") from error
    return values


def _default(value: Any) -> Any:
    if hasattr(value, "_asdict"):  # a named tuple
        return value._asdict()
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


@cache
def _reader(kind: Any) -> Read:
    """A function that restores values of the type from JSON. Numbers, strings, lists and mappings are
    the same in JSON; classes, tuples and sets are restored."""
    origin, inside = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind, [field.name for field in dataclasses.fields(kind) if field.init])
    if hasattr(kind, "_fields"):
        return _record(kind, kind._fields)
    if origin is tuple:
        if len(inside) == 2 and inside[1] is Ellipsis:
            return _many(_reader(inside[0]), tuple)
        each = [_reader(one) for one in inside]
        return lambda found: tuple(read(v) for read, v in zip(each, found, strict=True))
    if origin in {frozenset, set, list}:
        return _many(_reader(inside[0]), origin)
    if origin in {types.UnionType, typing.Union}:
        rest = [one for one in inside if one is not types.NoneType]
        if len(rest) == 1:
            read = _reader(rest[0])
            return lambda found: None if found is None else read(found)
    if origin is not None and issubclass(origin, Mapping):
        read = _reader(inside[1])
        if read is not _same:
            return lambda found: {key: read(value) for key, value in found.items()}
    return _same


def _same(found: Any) -> Any:
    return found


def _many(read: Read, kind: Callable[..., Any]) -> Read:
    if read is _same:
        return kind
    return lambda found: kind(read(value) for value in found)


def _record(kind: Any, names: typing.Iterable[str]) -> Read:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name]) for name in names}
    changed = {name: read for name, read in readers.items() if read is not _same}

    def read(found: Any) -> Any:
        fields = dict(found)
        for name, read in changed.items():
            if name in fields:
                fields[name] = read(fields[name])
        return kind(**fields)

    return read
