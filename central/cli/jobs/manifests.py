"""What files hold, read before anybody is asked: what is wrong with one is said first."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from central.cli.jobs.api import CannotDo
from central.model.json_types import Json

MANIFESTS = (".yaml", ".yml", ".json")


def read(name: str) -> list[Json]:
    """Every object in the file, in the folder's files, or in what is piped in (-)."""
    found = list(_read(name))
    if not found:
        raise CannotDo(f"{name}: it holds no object")
    return found


def _read(name: str) -> Iterator[Json]:
    for where, text in _texts(name):
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark is not None else ""
            what = getattr(error, "problem", None) or "it is not YAML"
            raise CannotDo(f"{where}{line}: {what}") from error
        for place, document in enumerate(documents, 1):
            yield from _objects(f"{where}, document {place}", document)


def _texts(name: str) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "standard input", sys.stdin.read()
        return
    path = Path(name)
    try:
        inside = sorted(p for p in path.iterdir() if p.suffix in MANIFESTS) if path.is_dir() else []
        for file in inside or [path]:
            yield str(file), file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CannotDo(f"{name}: it is not text") from error
    except OSError as error:
        raise CannotDo(f"{name}: {error.strerror}") from error


def _objects(where: str, document: Any) -> Iterator[Json]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise CannotDo(f"{where}: it is no object, but {type(document).__name__}")
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _objects(where, item)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise CannotDo(f"{where}: {field} is missing")
    if not isinstance(document.get("metadata"), dict):
        raise CannotDo(f"{where}: metadata is missing")
    yield document
