"""Every change of one field of an object: replaced by each hostile value, deleted, put twice into its list, given to
its neighbour. Changes are numbered, so that a number repeats one."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from central.model.json_types import Json
from tests.central.poison.by_field.hostile_values import VALUES

Path = tuple[str | int, ...]
DELETED, TWICE, MANY, MOVED = "deleted", "twice", "many times", "moved"
OBJECT_BYTES = 1_500_000  # the most that etcd stores


class Change(NamedTuple):
    path: Path
    how: str  # a name of hostile_values, or one of the words above

    def __str__(self) -> str:
        return f"{shown(self.path)}: {self.how}"


def shown(path: Path) -> str:
    """As in spec.tasks[0].name."""
    found = ""
    for key in path:
        found += f"[{key}]" if isinstance(key, int) else f".{key}" if found else key
    return found


def paths(raw: Any, above: Path = ()) -> Iterator[Path]:
    """Of every field and entry."""
    keys: Any = raw if isinstance(raw, dict) else range(len(raw)) if isinstance(raw, list) else ()
    for key in keys:
        yield (*above, key)
        yield from paths(raw[key], (*above, key))


def changes(raw: Json) -> Iterator[Change]:
    """All of one field each."""
    for path in paths(raw):
        yield Change(path, DELETED)
        if isinstance(path[-1], int):
            yield Change(path, TWICE)
            yield Change(path, MANY)
        else:
            yield Change(path, MOVED)
        for value in VALUES:
            yield Change(path, value.name)


_BY_NAME = {value.name: value.of for value in VALUES}


def apply(raw: Json, *made: Change) -> Json:
    """A copy with these changes, as far as the fields are still there."""
    found = deepcopy(raw)
    for change in made:
        inside: Any = found
        try:
            for key in change.path[:-1]:
                inside = inside[key]
            _apply(inside, change.path[-1], change.how)
        except (LookupError, TypeError):  # another change has taken the field's place
            continue
    return found


def _apply(inside: Any, key: Any, how: str) -> None:
    value = inside[key]
    match how:
        case "deleted":
            del inside[key]
        case "twice":
            inside.append(deepcopy(value))
        case "many times":
            size = len(json.dumps(value)) + 1
            inside.extend(
                [deepcopy(value)] * (OBJECT_BYTES // size)
            )  # later changes are of the first
        case "moved":  # a value of another type, which is valid elsewhere in the same object
            others = [other for other in inside if other != key]
            if others:
                inside[key] = deepcopy(inside[others[0]])
        case _:
            inside[key] = _BY_NAME[how]


def sampled(raw: Json, dice: random.Random, each: int, pairs: int) -> Iterator[tuple[Change, ...]]:
    """Some changes of every field, and some pairs of changes."""
    by_path: dict[Path, list[Change]] = {}
    for change in changes(raw):
        by_path.setdefault(change.path, []).append(change)
    for known in by_path.values():
        for change in dice.sample(known, min(each, len(known))):
            yield (change,)
    every = list(by_path)
    for _ in range(pairs):
        yield tuple(dice.choice(by_path[path]) for path in dice.sample(every, 2))
