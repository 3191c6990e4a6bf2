"""What a scheduler still holds of objects that are gone: its collections that have grown."""

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

# What is there for speed, each with a bound of its own: tables that keep free slots, caches, changed rows.
KEPT = (
    "quarantine",
    "snapshot",
    "preemption",
    "podclasses",
    "refused",
    "_tracked",
    "crons._calls.backoff_until",  # until a CronJob is decided on again
    "columns",
    "dirty",
    "cache",
)
LEVELS = 12  # of attributes


def sizes(scheduler: Any) -> dict[str, int]:
    """Entries of every collection below the scheduler, by the path of attributes to it."""
    return dict(_sizes(scheduler, "scheduler", set(), LEVELS))


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Those that have more entries than before, with both numbers."""
    return {
        path: (before.get(path, 0), size)
        for path, size in after.items()
        if size > before.get(path, 0) and not any(word in path for word in KEPT)
    }


def _sizes(of: Any, path: str, seen: set[int], levels: int) -> Iterator[tuple[str, int]]:
    if id(of) in seen or not levels:
        return
    seen.add(id(of))
    if isinstance(of, np.ndarray):
        yield f"{path} (not zero)", int(np.count_nonzero(of))
    elif isinstance(of, dict | list | set | tuple) or type(of).__name__ == "deque":
        yield from _of_collection(of, path, seen, levels)
    elif type(of).__module__.startswith("central."):
        for name, value in _attributes(of):
            yield from _sizes(value, f"{path}.{name}", seen, levels - 1)


def _of_collection(
    of: Collection[Any], path: str, seen: set[int], levels: int
) -> Iterator[tuple[str, int]]:
    yield path, len(of)
    inside: dict[str, int] = {}
    for value in of.values() if isinstance(of, dict) else of:
        for where, size in _sizes(value, f"{path}[]", seen, levels - 1):
            inside[where] = inside.get(where, 0) + size
    yield from inside.items()


def _attributes(of: Any) -> Iterator[tuple[str, Any]]:
    names = set(getattr(of, "__dict__", ()))
    names |= {each.name for each in fields(of)} if is_dataclass(of) else set()
    for kind in type(of).__mro__:
        slots = getattr(kind, "__slots__", ())
        names |= {slots} if isinstance(slots, str) else set(slots)
    for name in sorted(names):
        if hasattr(of, name):
            yield name, getattr(of, name)
