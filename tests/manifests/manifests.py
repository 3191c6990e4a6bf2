"""The shipped manifests, read."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "daemonset"


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, a tenth of the time


def parsed(text: str) -> list[Any]:
    return [document for document in yaml.load_all(text, LOADER) if document]


def documents(path: Path) -> list[Any]:
    return parsed(path.read_text())


def shipped() -> list[Any]:
    """What `kubectl apply -k daemonset` applies."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    return [d for name in kustomization["resources"] for d in documents(FOLDER / name)]


def with_components(*components: str) -> list[Any]:
    """What `kubectl apply -k daemonset` applies with these in its kustomization."""
    made = shipped()
    for name in components:
        _add_component(made, FOLDER / "components" / name)
    return made


def _add_component(made: list[Any], folder: Path) -> None:
    for component in documents(folder / "kustomization.yaml"):
        made += _resources(folder, component)
        for name in component.get("components", ()):
            _add_component(made, folder / name)
        for patch in component.get("patches", ()):
            target, change = patch["target"], yaml.safe_load(patch["patch"])
            for each in made:
                if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"]):
                    if isinstance(change, dict):
                        _merge(each, change)
                        continue
                    for step in change:
                        _step(each, step)


def _merge(document: Any, change: Any) -> None:
    """A strategic merge: of lists, the objects with the same name or mount path."""
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(document.setdefault(key, {}), value)
        elif isinstance(value, list) and isinstance(value[0], dict):
            by = "mountPath" if key == "volumeMounts" else "name"
            there = {each[by]: each for each in document.setdefault(key, [])}
            for each in value:
                if each[by] in there:
                    _merge(there[each[by]], each)
                else:
                    document[key].append(each)
        else:
            document[key] = value


def _resources(folder: Path, kustomization: Any) -> list[Any]:
    made: list[Any] = []
    for name in kustomization.get("resources", ()):
        place = folder / name
        if place.is_dir():
            [inner] = documents(place / "kustomization.yaml")
            made += _resources(place, inner)
        else:
            made += documents(place)
    return made


def _step(document: Any, step: Any) -> None:
    """One operation of a JSON patch (RFC 6902)."""
    *path, last = (
        key.replace("~1", "/").replace("~0", "~") for key in step["path"].strip("/").split("/")
    )
    at = document
    for key in path:
        at = at[int(key)] if isinstance(at, list) else at[key]
    place: Any = last
    if isinstance(at, list):
        place = len(at) if last == "-" else int(last)
    match step["op"]:
        case "test":
            assert at[place] == step["value"], step
        case "remove":
            del at[place]
        case "add" if isinstance(at, list):
            at.insert(place, step["value"])
        case "add" | "replace":
            assert (place in at if isinstance(at, dict) else place < len(at)) == (
                step["op"] == "replace"
            ), step
            at[place] = step["value"]
        case other:
            raise AssertionError(f"unknown operation {other}")


def one(kind: str, name: str) -> Any:
    found = [d for d in shipped() if d["kind"] == kind and d["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_spec(kind: str, name: str) -> Any:
    return one(kind, name)["spec"]["template"]["spec"]
