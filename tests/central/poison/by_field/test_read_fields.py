"""The hostile corpus changes the fields of example objects, so every field that production code reads is in one."""

import sys

import pytest

from central.kube.decode.decoder import Decoder
from tests.central.poison import generator
from tests.central.poison.by_field.examples import Watched, watched, watched_kinds
from tests.central.poison.by_field.recorded import Read, paths, recorded
from tests.central.poison.world import LEVELS

# Lookups by code that is shared with other parts: Kubernetes has no such fields.
NONE_THERE = (
    {
        f"spec.{part}[].{key}"
        for part in ("containers", "initContainers", "topologySpreadConstraints")
        for key in ("matchLabelKeys", "mismatchLabelKeys")
    }
    | {
        f"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].{key}"
        for key in ("matchLabelKeys", "mismatchLabelKeys")
    }
    | {"spec.template"}
)


def reads_of(one: Watched) -> set[str]:
    """The fields that are read of the kind's examples."""
    found: set[Read] = set()
    for example in one.examples:
        decoder = Decoder(("lockstep",), LEVELS)  # which has cached nothing
        kind = dict(watched_kinds(decoder))[one.name]
        kind.seen(recorded(example(), found))
        kind.gone(recorded(example(), found))
    return {path for path, _ in found}


@pytest.mark.parametrize("one", watched(), ids=lambda each: each.name)
def test_the_examples_have_every_field_that_is_read(one: Watched) -> None:
    assert one.examples, "examples.py has none of this kind"
    known = {path for example in one.examples for path in paths(example())}
    assert not sorted(reads_of(one) - known - NONE_THERE)


@pytest.mark.parametrize("one", watched(), ids=lambda each: each.name)
def test_an_example_is_valid(one: Watched) -> None:
    for example in one.examples:
        fact = one.kind.seen(example())
        assert not getattr(fact, "error", ""), fact
        assert not getattr(getattr(fact, "spec", None), "unsupported", ""), fact


def test_hostile_objects_leave_the_examples_as_they_are() -> None:
    """Examples share parts, which hostile changes must not reach: else a test depends on those before it."""
    before = [example() for one in watched() for example in one.examples]
    first = [raw for _, raw in generator.objects(1, 300)]
    assert [example() for one in watched() for example in one.examples] == before
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20 * limit)  # some are very deep
    try:
        assert [raw for _, raw in generator.objects(1, 300)] == first
    finally:
        sys.setrecursionlimit(limit)


def test_a_field_that_no_example_has_is_found() -> None:
    reads: set[Read] = set()
    raw = recorded({"spec": {"tasks": [{"name": "a"}]}}, reads)
    raw["spec"]["tasks"][0].get("odd")
    assert ("spec.tasks[].odd", False) in reads
    assert "spec.tasks[].odd" not in set(paths(raw))
