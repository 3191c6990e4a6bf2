"""The cluster as it is now, as documents for the simulator: the objects that placement depends on, with the user's
rights, and the hardware that the agents have reported. Nothing is written to the cluster."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import orjson

from central.cli import object_pages
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.kube.resource_paths import BY_GROUP_KIND
from central.kube.transport.http_client import Client, StatusError
from central.model.json_types import Json
from central.server.grpc import query_client
from central.server.grpc.query_client import SchedulerAddress
from central.simulator.node_defaults import CAPTURE
from protos.names import DOMAIN, RUNS_FOR

MOST = 200_000  # objects of one kind
NEEDED = ("Node", "Pod")
KINDS = tuple(
    BY_GROUP_KIND[key]
    for key in (
        ("", "Namespace"),
        ("", "Node"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("scheduling.volcano.sh", "Queue"),
        ("topology.volcano.sh", "HyperNode"),
        ("scheduling.volcano.sh", "PodGroup"),
        ("policy", "PodDisruptionBudget"),
        ("batch.volcano.sh", "Job"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "Job"),
        ("", "Pod"),
    )
)
LEAVES = f"{DOMAIN}/leaves-at"
CLAIMED = ("persistentVolumeClaim", "ephemeral")  # volumes of pods
SHORTEST_S = 1.0  # of a pod that has run for longer than it said


class CannotRead(Exception):
    """A sentence for the user. status: of the API server."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class LiveCluster:
    objects: list[Json]
    unread: tuple[str, ...]  # sentences about what could not be read


def read(client: Client, now: datetime) -> LiveCluster:
    """Raises CannotRead where nodes and pods cannot be listed, and Unreachable."""
    objects: list[Json] = []
    unread: list[str] = []
    for path in KINDS:
        try:
            found, complete = object_pages.listed(client, path, MOST)
        except StatusError as error:
            if path.kind in NEEDED:
                refused = error.status in (401, 403)
                what = (
                    f"you may not list {path.plural}"
                    if refused
                    else f"{path.plural} cannot be listed"
                )
                raise CannotRead(f"{what}: {error.message}", error.status) from error
            if error.status != 404:  # 404: the cluster does not serve it
                unread.append(f"{path.full_name} could not be read: {error.message}")
            continue
        objects += found
        if not complete:
            unread.append(f"only the first {MOST:,} {path.full_name} were read")
    made = [each for obj in objects if (each := as_document(obj, now)) is not None]
    made.sort(key=lambda obj: str(obj["metadata"].pop("creationTimestamp", "")))
    return LiveCluster(made, tuple(unread))


def as_document(obj: Json, now: datetime) -> Json | None:
    """The object as the simulator takes it; None: it takes no part any more. A pod's run time is what is left of it."""
    metadata = {key: each for key, each in obj["metadata"].items() if key != "managedFields"}
    obj = {**obj, "metadata": metadata}
    leaving = "deletionTimestamp" in metadata
    if obj["kind"] == "Node" and CAPTURE in (metadata.get("annotations") or {}):
        # It would name a file of this machine. What hardware there is, agents say.
        metadata["annotations"] = {**metadata["annotations"], CAPTURE: None}
        del metadata["annotations"][CAPTURE]
    if obj["kind"] != "Pod":
        return None if leaving else obj
    status = obj.get("status") or {}
    ended = status.get("phase") in ("Succeeded", "Failed")
    if ended and not metadata.get("ownerReferences"):
        return None
    annotations = dict(metadata.get("annotations") or {})
    if leaving:
        annotations[LEAVES] = "1s"
    if RUNS_FOR in annotations and status.get("phase") == "Running":
        annotations[RUNS_FOR] = _rest(annotations[RUNS_FOR], status.get("startTime"), now)
    metadata["annotations"] = annotations
    return obj


def leave_out_volumes(obj: Json) -> None:
    """Removes the volumes of claims from a pod, or from an object with pod templates: the claims themselves are not
    read, and the pods would wait for them."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    if obj.get("kind") == "Job":
        spec.pop("volumes", None)  # which the Job controller claims
    tasks = spec.get("tasks")
    for part in (spec, *(tasks if isinstance(tasks, list) else ())):
        template = part.get("template") if isinstance(part, dict) else None
        inside = template.get("spec") if isinstance(template, dict) else part
        if isinstance(inside, dict) and isinstance(inside.get("volumes"), list):
            inside["volumes"] = [each for each in inside["volumes"] if not _is_claimed(each)]


def _is_claimed(volume: object) -> bool:
    return isinstance(volume, dict) and not volume.keys().isdisjoint(CLAIMED)


def _rest(runs_for: str, started: str | None, now: datetime) -> str:
    try:
        whole_s = parse_duration(runs_for)
        ran_s = (now - datetime.fromisoformat(started or "")).total_seconds()
    except (InvalidQuantity, ValueError, TypeError):
        return runs_for  # the simulator reports what is wrong with it
    return f"{max(SHORTEST_S, whole_s - max(0.0, ran_s)):.3f}s"


def members(objects: Iterable[Json]) -> dict[tuple[str, str], str]:
    """The gang or Job of each pod, else the pod itself, by namespace and pod."""
    found = {}
    for obj in objects:
        if obj["kind"] == "Pod":
            metadata = obj["metadata"]
            name = next(filter(None, gang_names(obj)), metadata["name"])
            found[metadata.get("namespace", "default"), metadata["name"]] = name
    return found


def gang_names(pod: Json) -> tuple[str | None, ...]:
    """The names under which a pod's gang is known, each of them where the pod has it."""
    annotations = pod["metadata"].get("annotations") or {}
    labels = pod["metadata"].get("labels") or {}
    return (
        labels.get("volcano.sh/job-name"),
        annotations.get("scheduling.k8s.io/group-name"),
        labels.get("lockstep.dev/gang"),
        labels.get("batch.kubernetes.io/job-name"),
    )


def hardware(where: SchedulerAddress) -> dict[str, Json]:
    """Returns the hardware by node, from the scheduler, in the form of `lockstep topology -o json`; empty if the
    scheduler does not answer or refuses."""
    from central.cli import render

    try:
        reply = query_client.topology(where, "")
    except query_client.CannotAsk:
        return {}
    return {each["node"]: each for each in render.topology_json(reply, one=False)}


def add_hardware(objects: Iterable[Json], topologies: dict[str, Json], folder: Path) -> None:
    """Names the hardware of each node as a capture, one file in the folder for all nodes that are equal. topologies: by
    node, as `lockstep topology -o json` prints them."""
    for obj in objects:
        found = topologies.get(obj["metadata"]["name"]) if obj["kind"] == "Node" else None
        if found is None or not found.get("gpus"):
            continue
        text = orjson.dumps(found)
        file = folder / f"{sha256(text).hexdigest()}.json"
        if not file.exists():
            file.write_bytes(text)
        annotations = dict(obj["metadata"].get("annotations") or {})
        obj["metadata"]["annotations"] = {**annotations, CAPTURE: str(file)}
