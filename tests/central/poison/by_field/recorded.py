"""A raw object that notes which of its fields are read."""

from collections.abc import Iterator
from typing import Any

Read = tuple[str, bool]  # the field's path, as in spec.tasks[].name, and whether the object has it


class Recorded(dict[str, Any]):
    """A dictionary whose lookups by key are noted; walks over all of its keys are not."""

    def __init__(self, raw: dict[str, Any], reads: set[Read], path: str = "") -> None:
        super().__init__(
            {key: recorded(value, reads, _join(path, key)) for key, value in raw.items()}
        )
        self._reads, self._path = reads, path

    def _note(self, key: object) -> None:
        self._reads.add((_join(self._path, str(key)), dict.__contains__(self, key)))

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)


def recorded(value: Any, reads: set[Read], path: str = "") -> Any:
    if isinstance(value, dict):
        return Recorded(value, reads, path)
    if isinstance(value, list):
        return [recorded(each, reads, f"{path}[]") for each in value]
    return value


def paths(raw: Any, path: str = "") -> Iterator[str]:
    """Of all fields of the object."""
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield _join(path, key)
            yield from paths(value, _join(path, key))
    elif isinstance(raw, list):
        for each in raw:
            yield from paths(each, f"{path}[]")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
