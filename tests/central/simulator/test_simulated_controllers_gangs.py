"""Objects of controllers, and a file of declarations, in scenarios."""

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from central.cli.main import main
from central.model.json_types import Json
from tests.central.kube import controller_fixtures as made
from tests.central.simulator.manifests import Simulate, node

LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]" for n in range(9))
MERGES = "\n".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}" if n else "a0: &a0 {k: 1}"
    for n in range(30)
)


def test_a_jobset_starts_as_a_whole(simulate: Simulate) -> None:
    objects = [made.jobset(), *made.jobset_pods()]
    found = simulate(*(node(f"n{i}") for i in range(3)), *objects)
    assert not found["placements"]
    assert {one["name"] for one in found["waiting"]} == {"jobset/train"}
    found = simulate(*(node(f"n{i}") for i in range(4)), *objects)
    assert len(found["placements"]) == 5


RANGES = {"lockstep.dev/elastic-min": "1", "lockstep.dev/elastic-max": "4"}
SIZED = [made.jobset(), made.leaderworkerset(), made.raycluster()]


@pytest.mark.parametrize("raw", SIZED, ids=lambda raw: str(raw["kind"]))
def test_an_object_whose_size_the_live_scheduler_decides_is_named(
    raw: Json, simulate: Simulate
) -> None:
    simulate(node("n0"), raw)
    assert "its size stays as it is" not in simulate.errors
    name = raw["metadata"]["name"]
    ranged = {**raw, "metadata": {**raw["metadata"], "annotations": RANGES}}
    later = {**raw, "metadata": {**ranged["metadata"], "name": "later"}}
    again = deepcopy(ranged)
    again["metadata"]["annotations"]["lockstep.dev/arrives-at"] = "5s"
    simulate(node("n0"), ranged, again, later)
    told = simulate.errors
    for each in (name, "later"):
        assert told.count(f"{raw['kind']} {made.SPACE}/{each}: its size stays as it is") == 1
    assert "its controller is not simulated" in told


def test_no_more_than_twenty_such_objects_are_named(simulate: Simulate) -> None:
    objects = [deepcopy(made.jobset(annotations=RANGES)) for _ in range(23)]
    for number, each in enumerate(objects):
        each["metadata"]["name"] = f"j{number}"
    simulate(node("n0"), *objects)
    told = simulate.errors
    assert told.count(": its size stays as it is") == 20
    assert "3 more objects whose size stays as it is" in told


def test_a_declared_kind(simulate: Simulate, tmp_path: Path) -> None:
    file = tmp_path / "pod-groups.yaml"
    rule = {
        "apiVersion": "example.com/v1",
        "kind": "TrainRun",
        "labels": ["example.com/run"],
        "minimum": "spec.workers",
    }
    file.write_text(yaml.safe_dump({"podGroups": [rule]}))
    run = {
        "apiVersion": "example.com/v1",
        "kind": "TrainRun",
        "metadata": {"name": "a", "namespace": made.SPACE},
        "spec": {"workers": 2},
    }
    pods = [made.pod(f"a-{i}", ("TrainRun", "a"), {"example.com/run": "a"}) for i in range(2)]
    flags = ("--pod-groups", str(file))
    found = simulate(node("n0"), run, *pods, flags=flags)
    assert not found["placements"]
    assert found["waiting"][0]["name"] == "trainrun/a"
    assert len(simulate(node("n0"), node("n1"), run, *pods, flags=flags)["placements"]) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("podGroups: [{kind: A}]", "podGroups[0].apiVersion: missing"),
        ("podGroups: {", "expected"),
        ("#" * (2**16 + 1), "more than 65536 bytes"),
        ("[" * 60_000, "nests deeper than 200 levels"),
        ("- " * 30_000, "nests deeper than 200 levels"),
        (LAUGHS, "its aliases stand for more than 1000000 values"),
        (MERGES, "its aliases stand for more than 1000000 values"),
        ("podGroups: 2026-99-99", "month must be in 1..12"),
    ],
)
def test_a_wrong_file_is_named(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod-groups.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit):
        main(["simulate", "x.yaml", "--pod-groups", str(file)])
    error = capsys.readouterr().err
    assert str(file) in error
    assert why in error
