"""Any values of a type, as the readers of journals see types."""

import dataclasses
import types
import typing
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from hypothesis import strategies as st

from central.model.stored_fields import NOT_STORED

WORDS = st.text(st.characters(codec="utf-8"), max_size=5)
JSON = st.recursive(  # what objects of the API are made of
    WORDS | st.integers(-(2**62), 2**62) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(-(2**62), 2**62),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    object: JSON,
    Any: JSON,
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Hashable:
        return WORDS | st.tuples(WORDS, WORDS, st.booleans())
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in {None, types.NoneType}:
        return st.none()
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        names = getattr(kind, "_fields", None) or [
            f.name
            for f in dataclasses.fields(kind)
            if f.init and (f.metadata != NOT_STORED or f.default is f.default_factory)
        ]
        return st.builds(kind, **{name: any_of(hints[name]) for name in names})
    if origin is tuple and inside[-1] is Ellipsis:
        return st.lists(any_of(inside[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(any_of, inside))
    if origin in {list, set, frozenset}:
        return st.lists(any_of(inside[0]), max_size=2).map(origin)
    if origin in {types.UnionType, typing.Union}:
        return st.one_of(*map(any_of, inside))
    if origin is Counter:
        return st.dictionaries(WORDS, PLAIN[int], max_size=2).map(Counter)
    assert issubclass(origin, Mapping), kind
    return st.dictionaries(any_of(inside[0]), any_of(inside[1]), max_size=2)
