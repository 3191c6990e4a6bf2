"""Bad input is one sentence on stderr that names file, document and field, and exit code 2."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from central.simulator import documents
from tests.central.scheduler.elastic.test_autoscaler import elastic
from tests.central.simulator.manifests import Simulate, group, node, pod

POD = pod("p", 1)


def changed(**parts: Any) -> str:
    return json.dumps({**POD, **parts})


def priority_class(**parts: Any) -> str:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return json.dumps({**kind, "metadata": {"name": "c"}, **parts})


CASES = {
    "kind: Pod": "document 1: apiVersion: missing",
    "apiVersion: v1": "document 1: kind: missing",
    "apiVersion: v1\nkind: Pud\nmetadata: {name: x}": "document 1: kind: unknown kind Pud of v1",
    "apiVersion: v1\nkind: Pod": "document 1: metadata: missing",
    "apiVersion: v1\nkind: Node\nmetadata: {}": "document 1: metadata.name: missing",
    "apiVersion: v1\nkind: Node\nmetadata: {name: 7}": "document 1: metadata.name: 7 is not a string",
    "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {rack: 1}}": "metadata.labels.rack: 1 is not a string; put it in quotes",
    '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": [1]}}': "Node a: status.allocatable: not a mapping",
    priority_class(value=True): "PriorityClass c: value: True is not a whole number",
    priority_class(value="7"): "PriorityClass c: value: '7' is not a whole number",
    priority_class(
        value=7, preemptionPolicy="Always"
    ): "preemptionPolicy: 'Always' is neither PreemptLowerPriority nor Never",
    json.dumps(node("a", capture="dgx/none")): "dgx/none: No such file",
    "a: b: c": "document 1: line 1: not YAML",
    "{}\n---\n- 1": "document 1: apiVersion",
    f"{changed()}\n---\n- 1": "document 2: not an object",
    f"# nothing\n---\n{changed()}\n---\nx: [": "document 2: line 6: not YAML",
    "[" * 60_000: "document 1: line 1: not YAML: it nests deeper than 200 levels",
    "# nothing\n---\n"
    + "- " * 30_000: "document 1: line 3: not YAML: it nests deeper than 200 levels",
    "{a: " * 60_000: "document 1: not JSON",
    "a: &a [*a]": "document 1: line 1: not YAML: alias *a stands inside its own anchor",
    '{"apiVersion": "v1", ': "document 1: not JSON",
    changed() + changed(): "document 2: Pod default/p: metadata.name: already defined in",
    changed(spec={}): "Pod default/p: spec.containers: missing",
    changed(spec=[]): "Pod default/p: spec: not an object",
    changed(spec={"containers": []}): "spec.containers: not a list with a container",
    changed(spec={"containers": {"name": "c"}}): "spec.containers: not a list with a container",
    f"{changed()}\n---\n{json.dumps(pod('p', 1, at='5s'))}": "document 2: Pod default/p: metadata.name: already defined in",
    changed(
        spec={
            "schedulerName": "lockstep",
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1x"}}}],
        }
    ): 'spec.containers[0].resources.limits.cpu: "1x" is not a quantity',
    changed(spec={**POD["spec"], "priorityClassName": "no"}): "no PriorityClass no in the input",
    json.dumps(
        pod("p", runs="soon")
    ): 'metadata.annotations.lockstep.dev/runs-for: "soon" is not a duration',
    json.dumps(pod("p", at="-1s")): "metadata.annotations.lockstep.dev/arrives-at",
    json.dumps(
        elastic("e", annotations={"lockstep.dev/work": "-3 steps", "lockstep.dev/speed": "1:1 2:2"})
    ): 'document 1: Job default/e: metadata.annotations.lockstep.dev/work: "-3 steps" is not a duration',
    json.dumps(elastic("e")) * 2: "document 2: Job default/e: metadata.name: already defined in",
    json.dumps(node("a", capture="cray")): 'lockstep.dev/capture: "cray" is not one of',
    json.dumps(group("g", "x")): "PodGroup default/g: spec.minMember",  # type: ignore[arg-type]  # that is the point
    json.dumps({**node("a"), "status": {"allocatable": {"cpu": "many"}}}): "status.allocatable.cpu",
    '{"kind": "List", "apiVersion": "v1", "items": [1]}': "document 1, item 1: not an object",
    "": "no objects",
}


@pytest.mark.parametrize("text", CASES, ids=lambda text: CASES[text][:60])
def test_bad_input(simulate: Simulate, text: str) -> None:
    assert simulate.text(text, code=2) == {}
    assert CASES[text] in simulate.errors
    assert simulate.errors.count("\n") == 1
    assert "Traceback" not in simulate.errors
    if text:
        assert "scenario.yaml" in simulate.errors


def test_what_is_no_pod_may_come_again_with_changes(simulate: Simulate) -> None:
    later = node("a")
    later["metadata"]["annotations"] = {"lockstep.dev/arrives-at": "5s"}
    simulate.text("\n---\n".join(map(json.dumps, (node("a"), later, POD))))
    assert "already defined" not in simulate.errors


def test_files_that_are_not_there(simulate: Simulate) -> None:
    assert simulate.paths("/no/such/file.yaml", code=2) == {}
    assert "/no/such/file.yaml: No such file" in simulate.errors
    assert simulate.paths(str(simulate.folder), code=2) == {}
    assert "contains no file that ends in" in simulate.errors


@pytest.mark.parametrize("last", ["a file", "a pipe without end"])
def test_all_files_together_are_bounded(tmp_path: Path, last: str) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("# " + "x" * ((1 << 20) - 12))
    second.write_text("#" * 10)
    files = [str(first), str(second)]
    assert list(documents.read(files, most=1 << 20)) == []
    if last == "a pipe without end":
        files[1] = "/dev/zero"
    else:
        second.write_text("#" * 11)
    with pytest.raises(documents.BadInput, match=f"{files[1]}: the input is larger than 1 MiB"):
        list(documents.read(files, most=1 << 20))


def test_standard_input_that_is_no_text(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    assert simulate.paths("-", code=2) == {}
    assert simulate.errors == "lockstep: standard input: not UTF-8 text\n"


def test_a_directory_that_cannot_be_walked(tmp_path: Path) -> None:
    """Its path is longer than the system takes."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(documents.BadInput, match=r"File name too long|contains no file"):
        list(documents.read([str(tmp_path)]))
