"""The changes that `lockstep what-if` knows, as edits of documents. Pure."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from central.cli.what_if.live_cluster import gang_names
from central.model.json_types import Json
from protos.common.near_names import did_you_mean
from protos.names import GPU

AMOUNTS = ("capability", "deserved", "guarantee")
NUMBERS = ("weight", "priority")
_QUEUE = re.compile(r"([^:=]+):([a-zA-Z]+)=([0-9]+)")


class BadChange(ValueError):
    """A sentence for the user."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    queue: str
    field: str
    amount: int

    @classmethod
    def parse(cls, text: str) -> "QueueChange":
        """Parses a change such as research:capability=32. Raises BadChange."""
        found = _QUEUE.fullmatch(text)
        if found is None or found[2] not in (*AMOUNTS, *NUMBERS):
            fields = ", ".join((*AMOUNTS, *NUMBERS))
            raise BadChange(f'"{text}" is not QUEUE:FIELD=NUMBER, with FIELD one of {fields}')
        if len(found[3]) > 9:
            raise BadChange(f'"{text}": the number is too large')
        return cls(found[1], found[2], int(found[3]))


def cordon(objects: Sequence[Json], places: Sequence[str], levels: Sequence[str]) -> list[str]:
    """Marks nodes unschedulable: of a name, or of a domain such as rack=r1. Returns their names. Raises BadChange."""
    nodes = [obj for obj in objects if obj["kind"] == "Node"]
    names: list[str] = []
    for place in places:
        test = _place(place, nodes, levels)
        found = [node for node in nodes if test(node)]
        for node in found:
            node["spec"] = {**(node.get("spec") or {}), "unschedulable": True}
            names.append(node["metadata"]["name"])
        if not found:
            raise BadChange(_no_node(place, nodes))
    return names


def _place(place: str, nodes: Sequence[Json], levels: Sequence[str]) -> Callable[[Json], bool]:
    key, equals, value = place.partition("=")
    if not equals:
        return lambda node: bool(node["metadata"]["name"] == place)
    keys = [each for each in levels if key in (each, each.rpartition("/")[2])]
    if not keys:
        short = ", ".join(each.rpartition("/")[2] for each in levels)
        raise BadChange(f'"{key}" is not a level of the topology: {short}')
    return lambda node: (node["metadata"].get("labels") or {}).get(keys[0]) == value


def _no_node(place: str, nodes: Sequence[Json]) -> str:
    hint = did_you_mean(place, [node["metadata"]["name"] for node in nodes])
    return f"no node is in {place}{hint}" if "=" in place else f"no node named {place}{hint}"


def drain(objects: Sequence[Json], names: Sequence[str], schedulers: Sequence[str]) -> int:
    """The running pods of these schedulers on these nodes wait again, as if their controllers had just created them.
    Returns their number."""
    drained = 0
    for obj in objects:
        spec = obj.get("spec") or {}
        ours = obj["kind"] == "Pod" and spec.get("schedulerName") in schedulers
        if ours and spec.get("nodeName") in names and not _ended(obj):
            obj["spec"] = {key: each for key, each in spec.items() if key != "nodeName"}
            obj["status"] = {"phase": "Pending"}
            drained += 1
    return drained


def _ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def change_queue(objects: list[Json], change: QueueChange) -> None:
    """Changes the queue with this name, which is created if it does not exist."""
    queue = _find(objects, "Queue", "", change.queue)
    if queue is None:
        api = "scheduling.volcano.sh/v1beta1"
        queue = {"apiVersion": api, "kind": "Queue", "metadata": {"name": change.queue}}
        objects.append(queue)
    spec = dict(queue.get("spec") or {})
    if change.field in NUMBERS:
        spec[change.field] = change.amount
    elif change.field == "guarantee":
        resource = dict((spec.get("guarantee") or {}).get("resource") or {})
        spec["guarantee"] = {"resource": {**resource, GPU: change.amount}}
    else:
        spec[change.field] = {**(spec.get(change.field) or {}), GPU: change.amount}
    queue["spec"] = spec


def remove(objects: list[Json], name: str, namespace: str) -> None:
    """A Job or a gang with its pods, as if it had ended now. name: [NAMESPACE/]NAME. Raises BadChange."""
    space, _, short = name.rpartition("/")
    space = space or namespace
    job = _find(objects, "Job", space, short)
    group = _find(objects, "PodGroup", space, short)
    uids = {each["metadata"].get("uid") for each in (job, group) if each is not None}

    def belongs(obj: Json) -> bool:
        metadata = obj["metadata"]
        if metadata.get("namespace", "default") != space or obj["kind"] not in ("Pod", "PodGroup"):
            return False
        owners = {each.get("uid") for each in metadata.get("ownerReferences") or ()}
        return bool(owners & uids) or short in (metadata["name"], *gang_names(obj))

    gone = [obj for obj in objects if belongs(obj) or obj is job]
    if not gone:
        there = {obj["metadata"]["name"] for obj in objects if obj["kind"] in ("Job", "PodGroup")}
        raise BadChange(f"no job or gang named {space}/{short}{did_you_mean(short, there)}")
    objects[:] = [obj for obj in objects if not any(obj is each for each in gone)]


def _find(objects: Sequence[Json], kind: str, namespace: str, name: str) -> Json | None:
    for obj in objects:
        metadata = obj["metadata"]
        same_space = not namespace or metadata.get("namespace", "default") == namespace
        if obj["kind"] == kind and metadata["name"] == name and same_space:
            return obj
    return None
