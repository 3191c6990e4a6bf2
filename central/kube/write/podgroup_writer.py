"""PodGroups that the scheduler writes for gangs of controllers, for tools that read PodGroups.

Design: docs/design/gangs.md
"""

from dataclasses import dataclass

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client
from central.kube.write.pod_requests import Refused, checked
from central.kube.write.retrying import Retry, call, object_of
from central.model.json_types import Json, replacing_patch
from central.model.pending_causes import CAUSES
from central.model.phases import COMPLETED, RUNNING
from protos.names import GANG_OF

PODGROUP = BY_KIND["PodGroup"]


@dataclass(frozen=True, slots=True)
class MirroredGang:
    """The PodGroup of a gang that has none of its own."""

    namespace: str
    gang: str  # deployment/web
    owner: tuple[str, str, str, str]  # apiVersion, kind, name and uid; the PodGroup goes with it
    least: int
    task_least: tuple[tuple[str, int], ...]
    queue: str
    phase: str
    reason: str  # for users
    cause: str  # of its waiting, of pending_causes.CAUSES; empty: it does not wait
    pods: tuple[int, int, int]  # running, succeeded, failed

    @property
    def name(self) -> str:
        return self.gang.replace("/", "-")


class PodGroupWriter:
    def __init__(self, client: Client) -> None:
        self._client = client

    def write(self, gang: MirroredGang) -> None:
        """Creates the PodGroup, or brings it up to date. Raises Retry, and Refused, also where the name is
        another's."""
        wanted = _podgroup(gang)
        space = gang.namespace
        made = call(self._client, "POST", PODGROUP.path(space), wanted)
        if made.status == 409:
            self._update(gang, wanted)
        else:
            checked(made)
        self._patch(PODGROUP.path(space, gang.name) + "/status", {"status": _status(gang)})

    def _update(self, gang: MirroredGang, wanted: Json) -> None:
        path = PODGROUP.path(gang.namespace, gang.name)
        reply = call(self._client, "GET", path)
        if not reply.ok:
            raise Retry(reply.error().message)
        known = object_of(reply, PODGROUP, gang.name)
        meta = known["metadata"]
        found = (meta.get("annotations") or {}).get(GANG_OF)
        if found != gang.gang:
            whose = f"that of {found}" if found else "not one that Lockstep writes"
            raise Refused(f"PodGroup {gang.namespace}/{gang.name} of {gang.gang} is {whose}")
        there = (known.get("spec") or {}).get("minTaskMember") or ()
        tasks = replacing_patch(there, wanted["spec"].get("minTaskMember") or {})
        changes = {
            "metadata": {"ownerReferences": wanted["metadata"]["ownerReferences"]},
            "spec": {**wanted["spec"], "minTaskMember": tasks or None},
        }
        self._patch(path, changes)

    def _patch(self, path: str, body: Json) -> None:
        reply = call(self._client, "PATCH", path, body, MERGE)
        if reply.status == 404:
            raise Retry(reply.error().message)
        checked(reply)


def _podgroup(gang: MirroredGang) -> Json:
    version, kind, name, uid = gang.owner
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    spec: Json = {"minMember": gang.least, "queue": gang.queue}
    if gang.task_least:
        spec["minTaskMember"] = dict(gang.task_least)
    meta = {
        "namespace": gang.namespace,
        "name": gang.name,
        "annotations": {GANG_OF: gang.gang},
        "ownerReferences": [owner],
    }
    return PODGROUP.body(metadata=meta, spec=spec)


def _status(gang: MirroredGang) -> Json:
    placed = gang.phase in {RUNNING, COMPLETED}
    kind, reason = (
        ("Scheduled", "GangScheduled") if placed else ("Unschedulable", CAUSES.get(gang.cause, ""))
    )
    condition = {"type": kind, "status": "True", "reason": reason, "message": gang.reason}
    running, succeeded, failed = gang.pods
    return {
        "phase": gang.phase,
        "conditions": [condition] if reason else [],
        "running": running,
        "succeeded": succeeded,
        "failed": failed,
    }
