"""A rich valid object of every kind that the scheduler watches. test_read_fields.py fails where a decoder reads a field
that none of its kind's objects has."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from central.kube.decode import api_kinds
from central.kube.decode.api_kinds import Kind
from central.kube.decode.decoder import Decoder
from central.kube.resource_paths import SIZED
from central.model.json_types import Json
from tests.central.poison import generator
from tests.central.poison.by_field import (
    controller_examples,
    device_examples,
    gang_examples,
    job_examples,
    pod_examples,
    storage_examples,
)
from tests.central.poison.world import LEVELS

Example = Callable[[], Json]


class Watched(NamedTuple):
    """A kind, in one of the versions and ways that it is read."""

    name: str  # jobs.batch/v1, jobs.batch/v1 metadata
    kind: Kind
    examples: tuple[Example, ...]

    def gone(self, raw: Json) -> object:
        return self.kind.gone(raw)


# Versions that API servers serve in place of the one that the watch begins with.
OTHER_VERSIONS = {
    "podgroups.scheduling.k8s.io": ("v1", "v1alpha2"),
    "mpijobs.kubeflow.org": ("v1",),
}


def watched_kinds(decoder: Decoder) -> Iterator[tuple[str, Kind]]:
    for kind in api_kinds.kinds(decoder, elastic=True):
        yield _name(kind), kind
        for version in OTHER_VERSIONS.get(kind.resource.full_name, ()):
            assert kind.in_version is not None
            other = kind.in_version(version)
            yield _name(other), other


def _name(kind: Kind) -> str:
    way = " metadata" if kind.metadata_only else " size" if kind.resource in SIZED.values() else ""
    rule = " gang" if way == " size" and kind.resource.group in _RULED else ""
    if rule and "gang" in getattr(kind.seen, "func", kind.seen).__name__:
        way = rule
    return f"{kind.resource.full_name}/{kind.resource.version}{way}"


_RULED = ("jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io")


@cache
def watched() -> tuple[Watched, ...]:
    """With a decoder of its own."""
    decoder = Decoder(("lockstep",), LEVELS)
    return tuple(
        Watched(name, kind, EXAMPLES.get(kind.resource.full_name, ()) + EXAMPLES.get(name, ()))
        for name, kind in watched_kinds(decoder)
    )


EXAMPLES: dict[str, tuple[Example, ...]] = {
    kind: (example,) for kind, example in generator.KINDS.items()
}
for _part in (
    pod_examples,
    gang_examples,
    job_examples,
    controller_examples,
    storage_examples,
    device_examples,
):
    EXAMPLES |= _part.EXAMPLES
