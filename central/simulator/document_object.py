"""A document that has proved to be an object: what it is called, its labels and annotations, and how a
sentence about it begins. Raises BadInput."""

from typing import Any

from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.model.json_types import Json
from central.simulator import scenario_kinds
from central.simulator.documents import BadInput, SourceLocation


class ManifestObject:
    __slots__ = ("annotations", "kind", "labels", "meta", "name", "namespace", "place", "raw")

    def __init__(self, place: SourceLocation, raw: Json) -> None:
        self.place, self.raw = place, raw
        version, kind = raw.get("apiVersion"), raw.get("kind")
        for key, value in (("apiVersion", version), ("kind", kind)):
            if not isinstance(value, str) or not value:
                raise place.wrong(f"{key}: {_missing(value)}")
        self.kind: scenario_kinds.GroupKind = (scenario_kinds.group_of(str(version)), str(kind))
        if not scenario_kinds.known(self.kind):
            raise place.wrong(f"kind: {kind} of {version} is not known here")
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
            raise self.place.wrong(f"metadata.{key}: it is not a mapping")
        for name, value in found.items():
            if not isinstance(value, str):
                raise self.place.wrong(
                    f"metadata.{key}.{name}: {value!r} is not a text; put it in quotes"
                )
        return found

    def seconds(self, annotation: str) -> float | None:
        told = self.annotations.get(annotation)
        if told is None:
            return None
        try:
            return parse_duration(told)
        except InvalidQuantity as error:
            raise self.wrong(f"metadata.annotations.{annotation}: {error}") from error

    def part(self, key: str) -> Json:
        found = self.raw.get(key)
        if found is None:
            found = self.raw[key] = {}
        if not isinstance(found, dict):
            raise self.wrong(f"{key}: it is not an object")
        return found

    def owners(self) -> list[Json]:
        """Its controllers."""
        told = self.meta.get("ownerReferences") or ()
        return [owner for owner in told if isinstance(owner, dict) and owner.get("controller")]

    def wrong(self, what: str) -> BadInput:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return self.place.wrong(f"{self.kind[1]} {name}: {what}")


def _missing(value: Any) -> str:
    return "it is missing" if value is None or value == "" else f"{value!r} is not a text"
