"""Kubernetes' own controllers beside the in-memory API: they create and delete the pods of batch Jobs, ReplicaSets,
Deployments and StatefulSets, and write their status. One thread acts on what its watches deliver.

    controllers = WorkloadControllers(client)
    controllers.start(); ...; controllers.stop()

A Deployment's old ReplicaSets are scaled down as soon as a new one exists.

Design: docs/design/simulation.md
"""

import logging
import queue
import threading
import time
from typing import Any

import orjson

from central.controllers.builtin_controllers import BuiltinController, BuiltinControllers
from central.kube.decode.api_kinds import Kind
from central.kube.resource_paths import BY_GROUP_KIND, BY_KIND, ResourcePath
from central.kube.transport import watch
from central.kube.transport.http_client import MERGE, Client, StatusError, Unreachable
from central.kube.write.size_writer import DELETION_COST
from central.model.json_types import Json
from central.model.timestamps import stamp
from central.standalone import workload_status

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after a conflict, a pod that failed, or an API that does not answer
DEPLOYMENT = ResourcePath("apps", "v1", "Deployment", "deployments")
REPLICA_SET = BY_GROUP_KIND["apps", "ReplicaSet"]
CONTROLLERS = {
    "Job": BY_GROUP_KIND["batch", "Job"],
    "ReplicaSet": REPLICA_SET,
    "StatefulSet": BY_GROUP_KIND["apps", "StatefulSet"],
}
POD = BY_KIND["Pod"]


class WorkloadControllers:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._controllers = BuiltinControllers()
        self._pods: dict[str, Json] = {}  # as last seen, by uid
        self._failed: dict[str, set[str]] = {}  # uids of failed pods, by controller
        self._deployments: dict[str, Json] = {}
        self._replica_sets: dict[str, Json] = {}
        self._retry: dict[str, float] = {}  # when to look at a controller again
        self._thread = threading.Thread(target=self._run, name="workloads", daemon=True)
        self._watches: watch.Watches | None = None

    def start(self) -> None:
        self._thread.start()
        resources = (POD, DEPLOYMENT, *CONTROLLERS.values())
        kinds = [Kind(path, seen=_as_it_is, gone=_kind_and_uid) for path in resources]
        self._watches = watch.start(kinds, self._client, self._queue.put)

    def stop(self) -> None:
        if self._watches is not None:
            self._watches.stop()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    # --- in the thread

    def _run(self) -> None:
        while True:
            try:
                heard = self._queue.get(timeout=RETRY_S if self._retry else None)
                if heard is None:
                    return
                self._on(heard)
            except queue.Empty:
                pass
            now = time.monotonic()
            for uid in [uid for uid, at in self._retry.items() if at <= now]:
                del self._retry[uid]
                self._controllers.mark(uid)
            for one in self._controllers.changed():
                self._contained(one)

    def _contained(self, one: BuiltinController) -> None:
        try:
            self._act(one)
        except Unreachable:
            self._later(one.uid)
        except StatusError as refused:
            log.warning("%s %s: %s", one.kind, "/".join(one.place), refused)
            self._later(one.uid, 10 * RETRY_S)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            log.warning("%s %s is not well formed: %s", one.kind, "/".join(one.place), error)

    def _later(self, uid: str, wait_s: float = RETRY_S) -> None:
        self._retry[uid] = time.monotonic() + wait_s

    def _act(self, one: BuiltinController) -> None:
        failed = self._failed.get(one.uid, set())
        if one.kind == "Job" and len(failed) > workload_status.backoff_limit(one.raw):
            one.over = True
        one.completed()
        for uid in self._too_many(one):
            self._delete_pod(uid)
        while len(one.pods) < one.wanted and not (one.one_by_one and self._any_waits(one)):
            if not self._create_pod(one):
                break
        self._write_status(one, len(failed))

    def _too_many(self, one: BuiltinController) -> list[str]:
        """Returns the pods to delete. For a ReplicaSet those with the lowest deletion cost come first."""
        uids = one.too_many()
        if one.kind != "ReplicaSet" or not uids:
            return uids
        newest = list(one.pods)[::-1]
        return sorted(newest, key=lambda uid: _deletion_cost(self._pods.get(uid, {})))[: len(uids)]

    def _any_waits(self, one: BuiltinController) -> bool:
        return any(_phase(self._pods.get(uid, {})) != "Running" for uid in one.pods)

    def _create_pod(self, one: BuiltinController) -> bool:
        """Creates the next pod. Returns whether it was created."""
        pod = one.next()
        namespace, _ = one.place
        reply = self._client.request("POST", POD.path(namespace), orjson.dumps(pod))
        if reply.status == 409:  # its predecessor is still there
            self._later(one.uid)
            return False
        made = reply.accepted().json()
        self._pods[made["metadata"]["uid"]] = made
        one.add(made["metadata"]["uid"], made["metadata"]["name"], "Pending")
        return True

    def _delete_pod(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            body = orjson.dumps({"preconditions": {"uid": uid}})
            path = POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
            self._client.request("DELETE", path, body).accepted(404, 409)

    def _write_status(self, one: BuiltinController, failed: int) -> None:
        running = sum(_phase(self._pods.get(uid, {})) == "Running" for uid in one.pods)
        status = workload_status.of_controller(one, running, failed, stamp(time.time()))
        if status != (one.raw.get("status") or {}):
            one.raw = {**one.raw, "status": status}
            self._patch(f"{CONTROLLERS[one.kind].path(*one.place)}/status", {"status": status})

    def _patch(self, path: str, patch: Json) -> None:
        self._client.request("PATCH", path, orjson.dumps(patch), MERGE).accepted(404, 409)

    # --- what the watches deliver

    def _on(self, heard: Any) -> None:
        """An object, or kind and uid of one that is gone."""
        if isinstance(heard, tuple):
            kind, uid = heard
            if kind == "Pod":
                self._on_pod_gone(uid)
            else:
                self._on_gone(uid)
        elif heard["kind"] == "Pod":
            self._on_pod(heard)
        elif heard["kind"] == "Deployment":
            self._deployments[heard["metadata"]["uid"]] = heard
            self._roll_out(heard)
        else:
            self._on_controller(heard)

    def _on_controller(self, raw: Json) -> None:
        uid = raw["metadata"]["uid"]
        known = uid in self._controllers
        self._controllers.add(raw)
        if not known:
            for pod in [each for each in self._pods.values() if _owner(each) == uid]:
                self._take_over(uid, pod)
        if raw["kind"] == "ReplicaSet":
            self._replica_sets[uid] = raw
            if deployment := self._deployments.get(_owner(raw)):
                self._roll_out(deployment)

    def _take_over(self, owner: str, pod: Json) -> None:
        metadata = pod["metadata"]
        self._controllers.pod_created(owner, metadata["uid"], metadata["name"], _phase(pod))

    def _roll_out(self, deployment: Json) -> None:
        try:
            self._scale(deployment)
        except (Unreachable, StatusError) as error:
            log.warning("Deployment %s: %s", deployment["metadata"]["name"], error)
        except (AttributeError, LookupError, TypeError) as error:
            log.warning(
                "Deployment %s is not well formed: %s", deployment["metadata"]["name"], error
            )

    def _scale(self, deployment: Json) -> None:
        metadata = deployment["metadata"]
        wanted = workload_status.replica_set_of(deployment)
        own = [each for each in self._replica_sets.values() if _owner(each) == metadata["uid"]]
        if not any(each["metadata"]["name"] == wanted["metadata"]["name"] for each in own):
            path = REPLICA_SET.path(metadata["namespace"])
            self._client.request("POST", path, orjson.dumps(wanted)).accepted(409)
        for each in own:
            current = each["metadata"]["name"] == wanted["metadata"]["name"]
            replicas = wanted["spec"]["replicas"] if current else 0
            if each["spec"].get("replicas", 1) != replicas:
                path = REPLICA_SET.path(metadata["namespace"], each["metadata"]["name"])
                self._patch(path, {"spec": {"replicas": replicas}})
        status = workload_status.of_deployment(deployment, own)
        if status != (deployment.get("status") or {}):
            deployment["status"] = status
            path = DEPLOYMENT.path(metadata["namespace"], metadata["name"])
            self._patch(f"{path}/status", {"status": status})

    def _on_gone(self, uid: str) -> None:
        """The API's garbage collector deletes its pods."""
        self._controllers.remove(uid)
        self._failed.pop(uid, None)
        self._deployments.pop(uid, None)
        self._replica_sets.pop(uid, None)

    def _on_pod(self, pod: Json) -> None:
        uid, owner, phase = pod["metadata"]["uid"], _owner(pod), _phase(pod)
        before, self._pods[uid] = self._pods.get(uid), pod
        if before is None:
            self._take_over(owner, pod)
        self._controllers.mark(owner)  # its status may change
        leaving = "deletionTimestamp" in pod["metadata"]
        if phase == "Succeeded":
            self._controllers.pod_ended(owner, uid)
        elif phase == "Failed":
            if uid not in self._failed.setdefault(owner, set()):
                self._failed[owner].add(uid)
                self._controllers.pod_lost(owner, uid)
        elif leaving and not self._controllers.is_numbered(owner):
            self._controllers.pod_lost(owner, uid)
        elif phase == "Running":
            self._controllers.pod_started(owner)

    def _on_pod_gone(self, uid: str) -> None:
        if (pod := self._pods.pop(uid, None)) is not None:
            self._controllers.pod_lost(_owner(pod), uid)


def _deletion_cost(pod: Json) -> int:
    notes = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        return int(notes.get(DELETION_COST, 0))
    except (TypeError, ValueError):
        return 0


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _owner(obj: Json) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def _as_it_is(raw: Json) -> Any:
    return raw


def _kind_and_uid(raw: Json) -> Any:
    return raw["kind"], raw["metadata"]["uid"]
