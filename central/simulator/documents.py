"""Reads files and folders as documents with their source location, and documents as objects. YAML as kubectl
reads it; a document that starts with "{" is parsed as JSON, which is fifty times faster."""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from central.kube.decode import plain_yaml
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.model.json_types import Json
from central.simulator import scenario_kinds
from protos.printing import error_lines

MOST_TEXT = 1 << 29  # characters of all files together; their objects take ten times as much
_SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")
_MARKER = re.compile(r"^---(?=\s|$)[ \t]*(?:#.*)?", re.MULTILINE)
NO_OBJECTS = "no objects: the files are empty"


class BadInput(ValueError):
    """A sentence for the user that names file, document and field. Line breaks stay, because parsers' errors have
    several lines; else nothing in it is what a terminal would obey."""

    def __init__(self, sentence: str) -> None:
        super().__init__(error_lines(sentence))


MakeError = Callable[[str], BadInput]  # from what is wrong with an object


@dataclass(frozen=True, slots=True)
class SourceLocation:
    file: str
    document: int  # from 1
    item: int = 0  # in a List, from 1; 0: the document itself

    def __str__(self) -> str:
        item = f", item {self.item}" if self.item else ""
        return f"{self.file}: document {self.document}{item}"

    def wrong(self, what: str) -> BadInput:
        return BadInput(f"{self}: {what}")


def read(paths: Iterable[str], most: int = MOST_TEXT) -> Iterator[tuple[SourceLocation, Json]]:
    """Every object, in the order of the files; the items of Lists one by one. "-" is standard input. At most so many
    characters of all files together are read. Raises BadInput."""
    left = most
    for path in paths:
        for file in _files(path):
            name = "standard input" if file is None else str(file)
            text = _text(name, file, left)
            if len(text) > left:
                raise BadInput(f"{name}: the input is larger than {most >> 20} MiB in all")
            left -= len(text)
            for place, document in _documents(name, text):
                yield from _unfold(place, document)


def _files(path: str) -> list[Path | None]:
    """Returns the files below the path; None stands for standard input."""
    if path == "-":
        return [None]
    file = Path(path)
    if not file.is_dir():
        return [file]
    try:
        found = sorted(each for each in file.rglob("*") if each.suffix in _SUFFIXES)
    except OSError as error:  # of a directory below that may not be read, or is gone by now
        raise BadInput(f"{path}: {error.strerror}: {error.filename}") from error
    if not found:
        raise BadInput(f"{path}: contains no file that ends in {', '.join(_SUFFIXES)}")
    return list(found)


def _text(name: str, file: Path | None, left: int) -> str:
    """The content, or a part of it that is longer than `left`. A pipe or a device may have no end."""
    try:
        if file is None:
            return sys.stdin.read(left + 1)
        with file.open(encoding="utf-8") as opened:
            return opened.read(left + 1)
    except OSError as error:
        raise BadInput(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}: not UTF-8 text") from error


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
    """The text between two markers: one YAML document, or any number of JSON documents."""
    stripped = text.strip()
    if stripped.startswith("{"):
        yield from _json(name, number, stripped)
        return
    try:
        document = plain_yaml.load(text)
    except yaml.YAMLError as error:
        why = plain_yaml.sentence(error, start[0].count("\n", 0, start[1]))
        raise BadInput(f"{name}: document {number}: {why}") from error
    except (ValueError, RecursionError) as error:  # a date such as 2026-99-99
        raise BadInput(f"{name}: document {number}: not YAML: {error}") from error
    if document is not None:
        yield document


def _json(name: str, number: int, text: str) -> Iterator[Any]:
    try:
        yield orjson.loads(text)
        return
    except ValueError:
        pass  # several documents, or an error, which the slower parser locates
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
    """YAML may start with a brace, too."""
    try:
        return plain_yaml.load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _unfold(place: SourceLocation, document: Any) -> Iterator[tuple[SourceLocation, Json]]:
    if not isinstance(document, dict):
        raise place.wrong("not an object with apiVersion, kind and metadata")
    kind = document.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in document):
        yield place, document
        return
    items = document["items"]
    if not isinstance(items, list):
        raise place.wrong("items: not a list")
    for number, item in enumerate(items, 1):
        inside = SourceLocation(place.file, place.document, number)
        if not isinstance(item, dict):
            raise inside.wrong("not an object with apiVersion, kind and metadata")
        if kind != "List":  # the items of a NodeList may omit their kind
            item.setdefault("kind", kind.removesuffix("List"))
            item.setdefault("apiVersion", document.get("apiVersion"))
        yield inside, item


class ManifestObject:
    """A document that is an object of a known kind, with checked metadata. Methods raise BadInput."""

    __slots__ = ("annotations", "kind", "labels", "meta", "name", "namespace", "place", "raw")

    def __init__(
        self, place: SourceLocation, raw: Json, more: Collection[scenario_kinds.GroupKind] = ()
    ) -> None:
        """more: kinds that are known beside those of scenario_kinds."""
        self.place, self.raw = place, raw
        version, kind = raw.get("apiVersion"), raw.get("kind")
        for key, value in (("apiVersion", version), ("kind", kind)):
            if not isinstance(value, str) or not value:
                raise place.wrong(f"{key}: {_missing(value)}")
        self.kind: scenario_kinds.GroupKind = (scenario_kinds.group_of(str(version)), str(kind))
        if self.kind not in more and not scenario_kinds.known(self.kind):
            raise place.wrong(f"kind: unknown kind {kind} of {version}")
        meta = raw.get("metadata")
        if not isinstance(meta, dict):
            raise place.wrong(f"metadata: {_missing(meta)}")
        self.meta = meta
        self.name = self._text("name")
        self.namespace = (
            self._text("namespace", "default") if scenario_kinds.namespaced(self.kind) else ""
        )
        self.labels = self._texts("labels")
        self.annotations = self._texts("annotations")

    def _text(self, key: str, default: str = "") -> str:
        value = self.meta.get(key) or default
        if not isinstance(value, str) or not value:
            raise self.place.wrong(f"metadata.{key}: {_missing(value or None)}")
        return value

    def _texts(self, key: str) -> dict[str, str]:
        found = self.meta.get(key) or {}
        if not isinstance(found, dict):
            raise self.place.wrong(f"metadata.{key}: not a mapping")
        for name, value in found.items():
            if not isinstance(value, str):
                raise self.place.wrong(
                    f"metadata.{key}.{name}: {value!r} is not a string; put it in quotes"
                )
        return found

    def seconds(self, annotation: str) -> float | None:
        given = self.annotations.get(annotation)
        if given is None:
            return None
        try:
            return parse_duration(given)
        except InvalidQuantity as error:
            raise self.wrong(f"metadata.annotations.{annotation}: {error}") from error

    def part(self, key: str) -> Json:
        found = self.raw.get(key)
        if found is None:
            found = self.raw[key] = {}
        if not isinstance(found, dict):
            raise self.wrong(f"{key}: not an object")
        return found

    def owners(self) -> list[Json]:
        """The ownerReferences of its controllers."""
        given = self.meta.get("ownerReferences") or ()
        return [owner for owner in given if isinstance(owner, dict) and owner.get("controller")]

    def wrong(self, what: str) -> BadInput:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return self.place.wrong(f"{self.kind[1]} {name}: {what}")


def _missing(value: Any) -> str:
    return "missing" if value is None or value == "" else f"{value!r} is not a string"
