"""One thing that a migration meets, and how serious it is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from central.model.json_types import Json

Level = Literal["stop", "change", "note"]
NAMED = 5  # names in one sentence; the others are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """stop: must be gone before Lockstep starts. change: works differently, or needs an edit. note: nothing to do."""

    level: Level
    about: str  # queue research, 12 pods
    text: str


def name_of(obj: Json) -> str:
    """NAMESPACE/NAME, or NAME of what has no namespace."""
    meta = obj.get("metadata") or {}
    namespace = str(meta.get("namespace") or "")
    return f"{namespace}/{meta.get('name')}" if namespace else str(meta.get("name"))


def spec_of(obj: Json) -> Json:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def few(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    found = sorted(names)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def about(what: str, objects: list[Json]) -> str:
    """12 Jobs (a/b, c/d and 10 more)."""
    plural = "" if len(objects) == 1 else "s"
    return f"{len(objects)} {what}{plural} ({few(map(name_of, objects))})"


def running(workloads: Iterable[Json], *names: str) -> Iterator[Json]:
    """Deployments or DaemonSets with one of these names, or beginning with one, that are not scaled to 0."""
    for each in workloads:
        own = str((each.get("metadata") or {}).get("name") or "")
        if own.startswith(names) and spec_of(each).get("replicas", 1) != 0:
            yield each
