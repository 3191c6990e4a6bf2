"""Changes to a pod's manifest. The given manifest is never modified: the result shares what is unchanged."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from central.model.json_types import Json
from protos.names import HOSTNAME

Change = Callable[[Json], Json]


def containers(pod: Json, change: Change, *, init: bool = True) -> Json:
    """The pod with every container changed; init: its init containers as well."""
    spec = dict(pod["spec"])
    for kind in ("containers", "initContainers") if init else ("containers",):
        if spec.get(kind):
            spec[kind] = [change(container) for container in spec[kind]]
    return {**pod, "spec": spec}


def named(pod: Json, name: str, change: Change) -> Json:
    """The pod with the container of this name changed."""
    return containers(pod, lambda c: change(c) if c.get("name") == name else c, init=False)


def env(variables: Mapping[str, str]) -> Change:
    """Sets variables before the container's own, so that these may refer to them, as in $(RANK)."""
    return entries([{"name": name, "value": value} for name, value in variables.items()])


def entries(variables: Iterable[Json]) -> Change:
    ours = list(variables)
    names = {one["name"] for one in ours}

    def change(container: Json) -> Json:
        rest = [one for one in container.get("env") or () if one.get("name") not in names]
        return {**container, "env": [*ours, *rest]}

    return change


def mount(name: str, path: str, **more: str) -> Change:
    """Mounts a volume of the pod, unless the container has a mount at that path."""

    def change(container: Json) -> Json:
        there = container.get("volumeMounts") or []
        if any(one.get("mountPath") == path for one in there):
            return container
        return {**container, "volumeMounts": [*there, {"name": name, "mountPath": path, **more}]}

    return change


def port(name: str, number: int) -> Change:
    """Declares a port, unless the container declares one with that number or name."""

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


def avoid_node(pod: Json, node: str) -> Json:
    """Requires another node, in each of the terms of which one must hold."""
    other = {"key": HOSTNAME, "operator": "NotIn", "values": [node]}
    affinity = pod["spec"].get("affinity") or {}
    nodes = affinity.get("nodeAffinity") or {}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    given: list[Json] = (nodes.get(key) or {}).get("nodeSelectorTerms") or [{}]
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), other]}
        for term in given
    ]
    nodes = {**nodes, key: {"nodeSelectorTerms": terms}}
    return spec(pod, affinity={**affinity, "nodeAffinity": nodes})
