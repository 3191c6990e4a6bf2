"""The state of an elastic Job's coordinator in a ConfigMap of the Job.

    found = progress_map.load(client, job)                       # None: there is none yet
    version = progress_map.save(client, job, state, version)     # version: of the last save, or ""

A write names the version of the object that it replaces, so of two writers one is refused, reads, and sees which of
them is the later coordinator: the one with the higher run, or with the same run in the pod that wrote first.

Design: docs/design/coordinator.md
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.write.retrying import Retry, call, object_of, says_gone
from central.model.jobspec import API, controller

STATE_BYTES = 512 << 10  # a ConfigMap may have 1 MiB, in base64
_CONFIGMAP = BY_KIND["ConfigMap"]
MOST_RUN = 2**31 - 1  # starts of a coordinator
_TRIES = 3  # of a write that others were faster than


class NotStored(Exception):
    """A sentence for the coordinator: it will not be stored as it is."""


class OtherCoordinator(Exception):
    """A later coordinator of the Job has written."""


@dataclass(frozen=True, slots=True)
class ProgressOf:
    """The identity of the Job whose progress is stored."""

    namespace: str
    job: str
    uid: str

    @property
    def name(self) -> str:
        return f"{self.job}-progress"

    @property
    def path(self) -> str:
        return _CONFIGMAP.path(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Progress:
    """run: how often coordinators of this Job were started. pod: uid of the one that wrote it."""

    run: int
    pod: str
    state: bytes


def load(client: Client, job: ProgressOf) -> Progress | None:
    """Raises Retry, NotStored."""
    found = _get(client, job)
    return found[0] if found is not None else None


def save(client: Client, job: ProgressOf, progress: Progress, version: str = "") -> str:
    """Returns the object's new version. Raises Retry, NotStored, OtherCoordinator."""
    if len(progress.state) > STATE_BYTES:
        raise NotStored(
            f"the state has {len(progress.state)} bytes, more than the {STATE_BYTES} of a ConfigMap; give the "
            "plugin elastic the argument --store=file:/PATH, on a volume"
        )
    for _ in range(_TRIES):
        reply = _write(client, job, progress, version)
        if reply.ok:
            meta = object_of(reply, _CONFIGMAP, job.name)["metadata"]
            return str(meta.get("resourceVersion") or "")
        if reply.status not in (404, 409):
            raise NotStored(f"ConfigMap {job.name}: {reply.error().message[:300]}")
        found = _get(client, job)
        version = _checked(found[0], progress, found[1]) if found is not None else ""
    raise Retry(f"ConfigMap {job.name} changes too often")


def _checked(there: Progress, ours: Progress, version: str) -> str:
    if (there.run, there.pod) != (ours.run, ours.pod) and there.run >= ours.run:
        raise OtherCoordinator("another coordinator of this Job started later")
    return version


def _write(client: Client, job: ProgressOf, progress: Progress, version: str) -> Reply:
    meta: dict[str, Any] = {"name": job.name, "namespace": job.namespace}
    body = _CONFIGMAP.body(
        data={"run": str(progress.run), "pod": progress.pod},
        binaryData={"state": base64.b64encode(progress.state).decode()},
    )
    if version:
        body["metadata"] = {**meta, "resourceVersion": version}
        return call(client, "PATCH", job.path, body, MERGE)
    body["metadata"] = {**meta, "ownerReferences": [controller(API, "Job", job.job, job.uid)]}
    return call(client, "POST", _CONFIGMAP.path(job.namespace), body)


def _get(client: Client, job: ProgressOf) -> tuple[Progress, str] | None:
    reply = call(client, "GET", job.path)
    if says_gone(reply, _CONFIGMAP, job.name):
        return None
    if not reply.ok:
        raise NotStored(f"ConfigMap {job.name}: {reply.error().message[:300]}")
    raw = object_of(reply, _CONFIGMAP, job.name)
    meta = raw["metadata"]
    if not any(owner.get("uid") == job.uid for owner in meta.get("ownerReferences") or ()):
        raise NotStored(
            f"ConfigMap {job.name} exists and is not this Job's: delete it, or name the Job otherwise"
        )
    return _progress(raw, job), str(meta.get("resourceVersion") or "")


def _progress(raw: Any, job: ProgressOf) -> Progress:
    data, binary = raw.get("data") or {}, raw.get("binaryData") or {}
    try:
        state = base64.b64decode(binary["state"], validate=True)
        run = int(data["run"])
        if not 0 < run <= MOST_RUN:
            raise ValueError(f"run: not a number from 1 to {MOST_RUN}")
        return Progress(run, str(data.get("pod") or ""), state)
    except (KeyError, ValueError, TypeError, binascii.Error) as error:
        raise NotStored(
            f"ConfigMap {job.name} is damaged ({error!r}): delete it to start again"
        ) from error
