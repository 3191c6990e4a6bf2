"""Finds the field of a raw object that its decoder could not read, if the decoder met a value of another shape than
it expects: the one without the requested attribute, or of the type that the exception names, or else the field that
was looked up last.

The decoder runs once more on a view of the object that notes lookups. Objects that can be read never pay for that.

Design: docs/design/hostile-inputs.md
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

_QUOTED = re.compile(r"'(\w+)'")
_ENTRIES = 1000  # of a list; a lookup in a later one counts as one of the list

Lookup = tuple[str, Any]  # path and value


class _Noted(dict[str, Any]):
    """A part of the object. Its lookups by key go to a list that all parts of one object share."""

    __slots__ = ("_lookups", "_path")

    def __init__(self, raw: dict[str, Any], path: str, lookups: list[Lookup]) -> None:
        super().__init__(raw)
        self._path, self._lookups = path, lookups

    def _note(self, key: object, value: Any) -> Any:
        name = f"{key!s:.80}"
        path = f"{self._path}.{name}" if self._path else name
        value = _noted(value, path, self._lookups)
        self._lookups.append((path, value))
        return value

    def __getitem__(self, key: str) -> Any:
        return self._note(key, super().get(key)) if key in self.keys() else self._missing(key)

    def _missing(self, key: str) -> Any:
        self._note(key, None)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self._note(key, super().get(key, default))


def last_field(errors: tuple[type[Exception], ...], read: Callable[..., Any], *given: Any) -> str:
    """The path, such as spec.tasks[0].template, of the field at which read(*given) raised one of `errors`. Empty if it
    looked up none, or does not raise again."""
    lookups: list[Lookup] = []
    try:
        read(*(_noted(each, "", lookups) for each in given))
    except AttributeError as error:
        return _holder(lookups, error.obj)
    except TypeError as error:
        kinds = {"str"} if "string indices" in str(error) else set(_QUOTED.findall(str(error)))
        alike = (path for path, value in reversed(lookups) if _kind(value) in kinds)
        return next(alike, lookups[-1][0] if lookups else "")
    except errors:
        return lookups[-1][0] if lookups else ""
    return ""


def _kind(value: Any) -> str:
    """Returns the type as Python's messages name it."""
    return "dict" if isinstance(value, dict) else type(value).__name__


def _holder(lookups: list[Lookup], wrong: Any) -> str:
    """The path of the value, or else of the list or map with it as an entry; of null the other way round, because it is
    the value of every field that is not there."""
    latest = lookups[::-1]
    itself = [path for path, value in latest if value is wrong]
    around = [path for path, value in latest if any(each is wrong for each in _entries(value))]
    found = [*around, *itself] if wrong is None else [*itself, *around]
    return next(iter([*found, *(path for path, _ in latest)]), "")


def _entries(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _noted(value: Any, path: str, lookups: list[Lookup]) -> Any:
    if isinstance(value, dict):
        return _Noted(value, path, lookups)
    if isinstance(value, list):
        head = (
            _noted(each, f"{path}[{index}]", lookups) for index, each in enumerate(value[:_ENTRIES])
        )
        return [*head, *value[_ENTRIES:]]
    return value
