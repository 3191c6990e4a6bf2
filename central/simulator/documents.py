"""Files and folders -> documents, each with where it stands. YAML as kubectl reads it; a document that
starts with "{" is parsed as JSON, which is fifty times faster."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from central.model.json_types import Json

_SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")
_MARKER = re.compile(r"^---(?=\s|$)[ \t]*(?:#.*)?", re.MULTILINE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BadInput(ValueError):
    """One sentence for the user, with file, document and field."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    file: str
    document: int  # from 1
    item: int = 0  # of a List, from 1; 0: the document itself

    def __str__(self) -> str:
        item = f", item {self.item}" if self.item else ""
        return f"{self.file}: document {self.document}{item}"

    def wrong(self, what: str) -> BadInput:
        return BadInput(f"{self}: {what}")


def read(paths: Iterable[str]) -> Iterator[tuple[SourceLocation, Json]]:
    """Every object in the order in which it stands; Lists are unfolded. "-" is standard input.
    Raises BadInput."""
    for path in paths:
        for file in _files(path):
            for place, document in _documents(*file):
                yield from _unfold(place, document)


def _files(path: str) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", sys.stdin.read()
        return
    found = [Path(path)]
    if found[0].is_dir():
        found = sorted(file for file in found[0].rglob("*") if file.suffix in _SUFFIXES)
        if not found:
            raise BadInput(f"{path}: no file in it ends in {', '.join(_SUFFIXES)}")
    for file in found:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{file}: it is not text in UTF-8") from error


def _documents(name: str, text: str) -> Iterator[tuple[SourceLocation, Any]]:
    number = 0
    at = 0
    for marker in [*_MARKER.finditer(text), None]:
        part = text[at : marker.start() if marker else None]
        for document in _parsed(name, number + 1, (text, at), part):
            number += 1
            yield SourceLocation(name, number), document
        at = marker.end() if marker else at


def _parsed(name: str, number: int, start: tuple[str, int], text: str) -> Iterator[Any]:
    """What stands between two markers: one YAML document, or any number of JSON ones."""
    stripped = text.strip()
    if stripped.startswith("{"):
        yield from _json(name, number, stripped)
        return
    try:
        document = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = ""
        if mark is not None:
            line = f"line {start[0].count(chr(10), 0, start[1]) + mark.line + 1}: "
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise BadInput(f"{name}: document {number}: {line}not YAML: {problem}") from error
    except (ValueError, RecursionError) as error:  # a date such as 2026-99-99
        raise BadInput(f"{name}: document {number}: not YAML: {error}") from error
    if document is not None:
        yield document


def _json(name: str, number: int, text: str) -> Iterator[Any]:
    try:
        yield orjson.loads(text)
        return
    except ValueError:
        pass  # more than one, or broken: the slow way tells
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            flow = _flow_mapping(text[at:])
            if flow is None:
                raise BadInput(f"{name}: document {number}: not JSON: {error}") from error
            document, at = flow, len(text)
        yield document
        number += 1
        while at < len(text) and text[at].isspace():
            at += 1


def _flow_mapping(text: str) -> Any:
    """YAML may start with a brace as well."""
    try:
        return yaml.load(text, Loader=_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _unfold(place: SourceLocation, document: Any) -> Iterator[tuple[SourceLocation, Json]]:
    if not isinstance(document, dict):
        raise place.wrong("it is not an object with apiVersion, kind and metadata")
    kind = document.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in document):
        yield place, document
        return
    items = document["items"]
    if not isinstance(items, list):
        raise place.wrong("items: it is not a list")
    for number, item in enumerate(items, 1):
        inside = SourceLocation(place.file, place.document, number)
        if not isinstance(item, dict):
            raise inside.wrong("it is not an object with apiVersion, kind and metadata")
        if kind != "List":  # the items of a NodeList need not say what they are
            item.setdefault("kind", kind.removesuffix("List"))
            item.setdefault("apiVersion", document.get("apiVersion"))
        yield inside, item
