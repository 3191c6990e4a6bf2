"""The shipped manifests, read."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "daemonset"


def documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def shipped() -> list[Any]:
    """What `kubectl apply -k daemonset` applies."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    return [d for name in kustomization["resources"] for d in documents(FOLDER / name)]


def one(kind: str, name: str) -> Any:
    found = [d for d in shipped() if d["kind"] == kind and d["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_spec(kind: str, name: str) -> Any:
    return one(kind, name)["spec"]["template"]["spec"]
