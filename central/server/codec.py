"""Facts and decisions as JSON, by class and field names: ["BindDone", {"pod": ..., "node": ...}]. A field
that a record lacks, because it is older than the field, gets its default; one that the class no longer has is left out.

What the scheduler remembers is written and read by the types of its fields (plain(), restored()). It names no class but
those of facts and decisions, and no field that has its default
or is marked as NOT_STORED. So a default keeps its meaning, or the field gets another name.
"""

import dataclasses
import types
import typing
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, partial
from math import isinf
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from central.model.decisions import Decision
from central.model.facts import Fact
from central.model.stored_fields import NOT_STORED

Way = Callable[[Any], Any]
Ways = tuple[Way, Way]

_PLAIN = ("central.model", "protos")  # packages of facts and of what they contain
_NAMED: dict[str, type] = {kind.__name__: kind for kind in (*get_args(Fact), *get_args(Decision))}


class UnreadableRecord(ValueError):
    """Names the record and what is wrong with it."""


def dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=_default)


def tagged(values: Iterable[Any]) -> list[list[Any]]:
    """Facts or decisions with their class names, for dumps()."""
    return [[type(value).__name__, value] for value in values]


def untagged(found: Any) -> list[Any]:
    """Raises UnreadableRecord."""
    values = []
    for each in found:
        try:
            name, fields = each
            values.append(_ways(_NAMED[name])[0](fields))
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableRecord(f"{str(each)[:80]}: {type(error).__name__}: {error}") from error
    return values


def plain(kind: Any, value: Any) -> Any:
    """A value of the type, for dumps()."""
    return _ways(kind)[1](value)


def restored(kind: Any, found: Any) -> Any:
    """The value of which plain() made this. Observed fields are missing. Raises UnreadableRecord."""
    try:
        return _ways(kind)[0](found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(f"{type(error).__name__}: {error}") from error


def _default(value: Any) -> Any:
    if hasattr(value, "_asdict"):  # a named tuple
        return value._asdict()
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


@cache
def _ways(kind: Any) -> Ways:
    """Returns how values of the type are read from JSON, and how they are written into it. Numbers, strings, lists and
    mappings are the same in JSON; classes, tuples and sets are restored. Facts, and what they contain, are written as
    they are."""
    origin, inside = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and not kind.__module__.startswith(_PLAIN):
        return _memory(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind, [field.name for field in dataclasses.fields(kind) if field.init])
    if hasattr(kind, "_fields"):
        return _record(kind, kind._fields)
    if origin is tuple and inside[-1] is not Ellipsis:
        return _fixed([_ways(one) for one in inside])
    if origin in {tuple, frozenset, set, list}:
        return _many(origin, *_ways(inside[0]))
    if origin in {types.UnionType, typing.Union}:
        return _union([one for one in inside if one is not types.NoneType])
    if kind is Hashable or origin is Counter:
        return (_hashable if kind is Hashable else Counter), _same
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*_ways(inside[0]), *_ways(inside[1]), pairs=inside[0] is not str)
    return _same, _same


def _same(value: Any) -> Any:
    return value


def _hashable(found: Any) -> Any:
    return tuple(map(_hashable, found)) if isinstance(found, list) else found


def _fixed(ways: Sequence[Ways]) -> Ways:
    reads, writes = [read for read, _ in ways], [write for _, write in ways]

    def each(way: Iterable[Way], values: Any) -> Any:
        return tuple([act(value) for act, value in zip(way, values, strict=True)])

    writes_same = all(write is _same for write in writes)
    return partial(each, reads), _same if writes_same else partial(each, writes)


def _many(kind: Callable[..., Any], read: Way, write: Way) -> Ways:
    put: Way = sorted if kind in {set, frozenset} else list
    return (
        kind if read is _same else lambda found: kind(map(read, found)),
        put if write is _same else lambda values: [write(value) for value in put(values)],
    )


def _union(kinds: Sequence[Any]) -> Ways:
    """Returns those of an optional value, or of one of several facts or decisions: the name of the class says which."""
    read, write = _ways(kinds[0]) if len(kinds) == 1 else (_same, _same)
    if len(kinds) > 1 and all(getattr(kind, "__name__", "") in _NAMED for kind in kinds):
        read, write = (lambda found: untagged([found])[0]), (lambda value: tagged([value])[0])
    elif len(kinds) > 1 and any(get_origin(kind) is tuple for kind in kinds):
        read = _hashable  # a value, or a tuple of values

    def unless_none(act: Way) -> Way:
        return act if act is _same else lambda value: None if value is None else act(value)

    return unless_none(read), unless_none(write)


def _mapping(read_key: Way, write_key: Way, read: Way, write: Way, *, pairs: bool) -> Ways:
    """pairs: JSON has no keys but strings"""
    if pairs:
        return (
            lambda found: {read_key(key): read(value) for key, value in found},
            lambda values: [[write_key(key), write(value)] for key, value in values.items()],
        )

    def of(act: Way) -> Way:
        if act is _same:
            return _same
        return lambda values: {key: act(value) for key, value in values.items()}

    return of(read), of(write)


def _record(kind: Any, names: Iterable[str]) -> Ways:
    hints = get_type_hints(kind)
    readers = {name: _ways(hints[name])[0] for name in names}
    changed = {name: read for name, read in readers.items() if read is not _same}

    def read(found: Any) -> Any:
        fields = {name: found[name] for name in readers if name in found}
        for name, read in changed.items():
            if name in fields:
                fields[name] = read(fields[name])
        return kind(**fields)

    return read, _same


def _memory(kind: Any) -> Ways:
    """Returns those of a class that is read without its constructor, since observed fields are missing."""
    hints, fields = get_type_hints(kind), dataclasses.fields(kind)
    ways = {
        field.name: _NUMBER if hints[field.name] is float else _ways(hints[field.name])
        for field in fields
        if field.metadata != NOT_STORED
    }
    reads = {name: read for name, (read, _) in ways.items()}
    writes = {name: write for name, (_, write) in ways.items()}
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    new = {f.name: f.default_factory for f in fields if callable(f.default_factory)}

    def read(found: Any) -> Any:
        made = object.__new__(kind)
        known = {name: act(found[name]) for name, act in reads.items() if name in found}
        made_new = {name: make() for name, make in new.items() if name not in known}
        for name, value in {**defaults, **made_new, **known}.items():
            object.__setattr__(made, name, value)
        return made

    def write(value: Any) -> dict[str, Any]:
        written = {}
        for name, act in writes.items():
            own = getattr(value, name)
            if name not in defaults or own != defaults[name]:
                written[name] = act(own)
        return written

    return read, write


def _infinite(number: float) -> float | str:
    """Writes a number that JSON may not have."""
    return str(number) if isinf(number) else number


_NUMBER: Ways = (float, _infinite)
