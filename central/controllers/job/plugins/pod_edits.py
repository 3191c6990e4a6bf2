"""Changes to a pod's manifest. The manifest that is given is never written to: what changes is new,
the rest is shared."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from central.model.json_types import Json

Change = Callable[[Json], Json]


def containers(pod: Json, change: Change, *, init: bool = True) -> Json:
    """With every container changed; init containers too, where meant."""
    spec = dict(pod["spec"])
    for kind in ("containers", "initContainers") if init else ("containers",):
        if spec.get(kind):
            spec[kind] = [change(container) for container in spec[kind]]
    return {**pod, "spec": spec}


def named(pod: Json, name: str, change: Change) -> Json:
    """With the container of this name changed."""
    return containers(pod, lambda c: change(c) if c.get("name") == name else c, init=False)


def env(variables: Mapping[str, str]) -> Change:
    """Sets them, before the container's own: those may speak of them, as $(RANK)."""
    return entries([{"name": name, "value": value} for name, value in variables.items()])


def entries(variables: Iterable[Json]) -> Change:
    ours = list(variables)
    names = {one["name"] for one in ours}

    def change(container: Json) -> Json:
        rest = [one for one in container.get("env") or () if one.get("name") not in names]
        return {**container, "env": [*ours, *rest]}

    return change


def mount(name: str, path: str, **more: str) -> Change:
    """Mounts a volume of the pod, unless the container has something at that path already."""

    def change(container: Json) -> Json:
        there = container.get("volumeMounts") or []
        if any(one.get("mountPath") == path for one in there):
            return container
        return {**container, "volumeMounts": [*there, {"name": name, "mountPath": path, **more}]}

    return change


def port(name: str, number: int) -> Change:
    """Declares a port, unless the container declares one of that number or name already."""

    def change(container: Json) -> Json:
        there = container.get("ports") or []
        if any(one.get("containerPort") == number or one.get("name") == name for one in there):
            return container
        return {**container, "ports": [*there, {"name": name, "containerPort": number}]}

    return change


def volume(pod: Json, source: Json) -> Json:
    there = pod["spec"].get("volumes") or []
    return spec(pod, volumes=[*there, source])


def spec(pod: Json, **fields: Any) -> Json:
    return {**pod, "spec": {**pod["spec"], **fields}}
