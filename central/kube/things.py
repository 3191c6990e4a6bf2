"""Create, Delete, SetStatus, Patch of any kind that the core speaks of: the call, and what its answer
means. No threads, no waiting."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson

from central.core.decisions import Create, Delete, Patch, SetStatus
from central.core.facts import Answered
from central.kube import sshkeys
from central.kube.calls import Again
from central.kube.client import MERGE, Client, Reply, Unreachable

Thing = Create | Delete | SetStatus | Patch

# Where each kind is in the API: its group and version, its plural, whether it is in namespaces.
KINDS = {
    "Pod": ("api/v1", "pods", True),
    "Service": ("api/v1", "services", True),
    "ConfigMap": ("api/v1", "configmaps", True),
    "Secret": ("api/v1", "secrets", True),
    "Event": ("api/v1", "events", True),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims", True),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies", True),
    "PodGroup": ("apis/scheduling.volcano.sh/v1beta1", "podgroups", True),
    "Queue": ("apis/scheduling.volcano.sh/v1beta1", "queues", False),
    "HyperNode": ("apis/topology.volcano.sh/v1alpha1", "hypernodes", False),
    "Job": ("apis/batch.volcano.sh/v1alpha1", "jobs", True),
    "CronJob": ("apis/batch.volcano.sh/v1alpha1", "cronjobs", True),
    "Command": ("apis/bus.volcano.sh/v1alpha1", "commands", True),
    "JobFlow": ("apis/flow.volcano.sh/v1alpha1", "jobflows", True),
    "JobTemplate": ("apis/flow.volcano.sh/v1alpha1", "jobtemplates", True),
}
JSON_PATCH = "application/json-patch+json"
GONE = "it is gone"


def path(kind: str, namespace: str, name: str = "") -> str:
    version, plural, in_namespace = KINDS[kind]
    space = f"/namespaces/{quote(namespace)}" if in_namespace else ""
    return f"/{version}{space}/{plural}" + (f"/{quote(name)}" if name else "")


def api_version(kind: str) -> str:
    """As an object says it: v1, batch.volcano.sh/v1alpha1."""
    return KINDS[kind][0].partition("/")[2]


def ask(client: Client, asked: Thing) -> Answered:
    """Raises Again."""
    match asked:
        case Create():
            return _create(client, asked)
        case Delete():
            return _delete(client, asked)
        case SetStatus():
            return _set_status(client, asked)
        case Patch():
            return _patch(client, asked)


def refused(asked: Thing, why: str, code: int = 0) -> Answered:
    verb = type(asked).__name__
    return Answered(verb, asked.kind, asked.namespace, asked.name, why=why, code=code)


def _create(client: Client, asked: Create) -> Answered:
    body = {"apiVersion": api_version(asked.kind), "kind": asked.kind, **asked.body}
    where = path(asked.kind, asked.namespace)
    if asked.keys:
        # They take a tenth of a second to make: not for one that is there already, as a trial says.
        reply = _call(client, "POST", where + "?dryRun=All", body)
        if not reply.ok:
            return _kept(asked, reply)
        body["stringData"] = {**(body.get("stringData") or {}), **sshkeys.pair()}
    reply = _call(client, "POST", where, body)
    if asked.kind == "Secret":
        return _kept(asked, reply)
    if _is_there(reply):
        reply = _call(client, "GET", path(asked.kind, asked.namespace, asked.name))
        return _there_already(client, asked, reply)
    return _answer(asked, reply)


def _is_there(reply: Reply) -> bool:
    return reply.status == 409 and reply.refusal().reason == "AlreadyExists"


def _kept(asked: Create, reply: Reply) -> Answered:
    """Secrets are never read: one of that name (it carries the owner's uid) is the one that was made
    before."""
    if _is_there(reply):
        return Answered("Create", asked.kind, asked.namespace, asked.name)
    return _answer(asked, reply)


def _there_already(client: Client, asked: Create, reply: Reply) -> Answered:
    """Our own call that got through before its answer was lost, or somebody else's object."""
    if reply.status == 404:
        raise Again("it was there and is not any more")
    if not reply.ok:
        return _answer(asked, reply)
    meta = reply.json()["metadata"]
    mine = _controller(asked.body.get("metadata") or {})
    if meta.get("deletionTimestamp"):
        return refused(asked, "one of that name is still being deleted", 409)
    if mine and _controller(meta) == mine:
        if asked.renew:
            what = Patch(asked.kind, asked.namespace, asked.name, meta["uid"], asked.body)
            return replace(_patch(client, what), verb="Create")
        return Answered("Create", asked.kind, asked.namespace, asked.name, uid=meta["uid"])
    return refused(asked, f"{asked.kind} {asked.name} exists already and is another's", 409)


def _controller(meta: dict[str, Any]) -> str:
    owners = meta.get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _delete(client: Client, asked: Delete) -> Answered:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": asked.uid},
        "propagationPolicy": "Foreground" if asked.foreground else "Background",
    }
    where = path(asked.kind, asked.namespace, asked.name)
    reply = _call(client, "DELETE", where, options)
    if reply.status in {404, 409}:  # gone, or another of its name by now
        return Answered("Delete", asked.kind, asked.namespace, asked.name)
    return _answer(asked, reply)


def _set_status(client: Client, asked: SetStatus) -> Answered:
    """As a JSON patch: it replaces what stands there, keys of its mappings included, and only if
    the object is the one that was meant."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": asked.uid},
        {"op": "add", "path": "/status", "value": _told(asked.status)},
    ]
    where = path(asked.kind, asked.namespace, asked.name) + "/status"
    reply = _call(client, "PATCH", where, patch, JSON_PATCH)
    return refused(asked, GONE, 404) if reply.status == 404 else _answer(asked, reply)


def _told(status: Any) -> Any:
    """Without empty texts: an API server of 1.20 takes one in a JSON patch for null, and refuses."""
    if isinstance(status, Mapping):
        return {key: _told(value) for key, value in status.items() if value != ""}
    return [_told(value) for value in status] if isinstance(status, (list, tuple)) else status


def _patch(client: Client, asked: Patch) -> Answered:
    meta = {**(asked.body.get("metadata") or {}), "uid": asked.uid}  # another one's uid is refused
    body = {**asked.body, "metadata": meta}
    where = path(asked.kind, asked.namespace, asked.name)
    reply = _call(client, "PATCH", where, body, MERGE)
    return refused(asked, GONE, 404) if reply.status == 404 else _answer(asked, reply)


def _answer(asked: Thing, reply: Reply) -> Answered:
    if not reply.ok:
        return refused(asked, reply.refusal().message, reply.status)
    uid = (reply.json().get("metadata") or {}).get("uid") or ""
    verb = type(asked).__name__
    return Answered(verb, asked.kind, asked.namespace, asked.name, uid=uid)


def _call(
    client: Client, method: str, where: str, body: Any = None, kind: str = "application/json"
) -> Reply:
    """Any answer that will not change by asking again soon."""
    try:
        content = orjson.dumps(body) if body is not None else None
        reply = client.request(method, where, content, kind)
    except Unreachable as error:
        raise Again(str(error)) from error
    if reply.status in {401, 408, 429} or reply.status >= 500:
        raise Again(reply.refusal().message, reply.retry_after_s)
    return reply
