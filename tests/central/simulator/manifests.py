"""Short words for manifests, and a run of the command on them."""

import json
from pathlib import Path
from typing import Any

import pytest

from central.cli.main import main
from protos.names import DOMAIN, GPU, RACK

Json = dict[str, Any]


def node(name: str, gpus: int = 8, *, rack: str = "", capture: str = "", **notes: str) -> Json:
    allocatable = {"cpu": "64", "memory": "512Gi", **({GPU: str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {RACK: rack} if rack else {},
            "annotations": _notes({**notes, "capture": capture}),
        },
        "status": {} if capture else {"allocatable": allocatable},
    }


def pod(
    name: str,
    gpus: int = 0,
    *,
    gang: str = "",
    runs: str = "",
    at: str = "",
    on: str = "",
    priority_class: str = "",
    labels: dict[str, str] | None = None,
    scheduler: str = "lockstep",
    **notes: str,
) -> Json:
    annotations = _notes({**notes, "runs-for": runs, "arrives-at": at})
    if gang:
        annotations["scheduling.k8s.io/group-name"] = gang
    limits = {GPU: gpus} if gpus else {}
    spec: Json = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "resources": {"limits": limits}}],
    }
    if on:
        spec["nodeName"] = on
    if priority_class:
        spec["priorityClassName"] = priority_class
    meta = {"name": name, "annotations": annotations, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def group(name: str, minimum: int, *, required: str = "", **notes: str) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": _notes({**notes, "topology-required": required})},
        "spec": {"minMember": minimum},
    }


def gang(name: str, pods: int, gpus: int, *, runs: str = "", required: str = "") -> list[Json]:
    members = [pod(f"{name}-{rank}", gpus, gang=name, runs=runs) for rank in range(pods)]
    return [group(name, pods, required=required), *members]


def _notes(notes: dict[str, str]) -> dict[str, str]:
    return {
        f"{DOMAIN}/{key.replace('_', '-')}": value for key, value in notes.items() if value != ""
    }


class Simulate:
    """Runs the command as a user would."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.errors = ""

    def __call__(self, *objects: Json, flags: tuple[str, ...] = ()) -> Json:
        return self.text("\n---\n".join(json.dumps(each) for each in objects), flags=flags)

    def text(self, text: str, *, flags: tuple[str, ...] = (), code: int = 0) -> Json:
        file = self.folder / "scenario.yaml"
        file.write_text(text)
        return self.paths(str(file), flags=flags, code=code)

    def paths(self, *paths: str, flags: tuple[str, ...] = (), code: int = 0) -> Json:
        assert main(["simulate", *paths, "-o", "json", *flags]) == code
        captured = self._capsys.readouterr()
        self.errors = captured.err
        found: Json = json.loads(captured.out) if captured.out else {}
        return found


def where(result: Json) -> dict[str, str]:
    return {placed["pod"]: placed["node"] for placed in result["placements"]}


def when(result: Json) -> dict[str, float]:
    return {placed["pod"]: placed["at_s"] for placed in result["placements"]}
