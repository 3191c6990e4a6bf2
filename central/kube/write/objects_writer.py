"""Create, Delete, SetStatus and Patch of any kind: the request, and what its reply means."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.write import coordinator_keys, size_writer, ssh_keys
from central.kube.write.retrying import Retry, call, is_success, object_of, says_gone
from central.model.decisions import Create, Delete, Patch, SetSize, SetStatus
from central.model.facts import Answered

ObjectDecision = Create | Delete | SetStatus | Patch | SetSize

JSON_PATCH = "application/json-patch+json"
GONE = "the object is gone"


def execute(
    client: Client,
    decision: ObjectDecision,
    for_coordinators: Mapping[str, str] = MappingProxyType({}),
) -> Answered:
    """for_coordinators: entries of the Secrets of coordinators. Raises Retry."""
    match decision:
        case Create():
            return _create(client, decision, for_coordinators)
        case Delete():
            return _delete(client, decision)
        case SetStatus():
            return _set_status(client, decision)
        case Patch():
            return _patch(client, decision)
        case SetSize():
            return size_writer.write(client, decision)


def failed(decision: ObjectDecision, why: str, code: int = 0) -> Answered:
    return _answered(decision, why=why, code=code)


def _answered(decision: ObjectDecision, why: str = "", code: int = 0, uid: str = "") -> Answered:
    verb = type(decision).__name__
    kind, namespace, name = decision.kind, decision.namespace, decision.name
    return Answered(verb, kind, namespace, name, why=why, uid=uid, code=code)


def _create(client: Client, decision: Create, for_coordinators: Mapping[str, str]) -> Answered:
    resource = BY_KIND[decision.kind]
    body = resource.body(**decision.body)
    path = resource.path(decision.namespace)
    if decision.keys or decision.certificate:
        # Generating keys takes a tenth of a second: not for a Secret that exists, as a dry run shows.
        reply = call(client, "POST", path + "?dryRun=All", body)
        if not reply.ok:
            return _secret_outcome(decision, reply)
        body["stringData"] = {**(body.get("stringData") or {}), **_generated(decision)}
        if decision.certificate:
            body["stringData"] |= for_coordinators
    reply = call(client, "POST", path, body)
    if decision.kind == "Secret":
        return _secret_outcome(decision, reply)
    if _exists(reply):
        reply = call(client, "GET", _path(decision))
        return _after_conflict(client, decision, reply)
    return _outcome(decision, reply)


def _generated(decision: Create) -> dict[str, str]:
    found = ssh_keys.generate_key_pair() if decision.keys else {}
    return found | (coordinator_keys.generate(decision.certificate) if decision.certificate else {})


def _path(decision: ObjectDecision) -> str:
    return BY_KIND[decision.kind].path(decision.namespace, decision.name)


def _exists(reply: Reply) -> bool:
    return reply.status == 409 and reply.error().reason == "AlreadyExists"


def _secret_outcome(decision: Create, reply: Reply) -> Answered:
    """Secrets are never read. The name contains the owner's uid, so one that exists is our own."""
    if _exists(reply):
        return _answered(decision)
    return _outcome(decision, reply)


def _after_conflict(client: Client, decision: Create, reply: Reply) -> Answered:
    """Either our own request succeeded and its reply was lost, or the object is not ours."""
    if _is_gone(decision, reply):
        raise Retry("the object was deleted in between")
    if not reply.ok:
        return _outcome(decision, reply)
    meta = object_of(reply, BY_KIND[decision.kind], decision.name)["metadata"]
    mine = _controller(decision.body.get("metadata") or {})
    if meta.get("deletionTimestamp"):
        return failed(decision, "an object of that name is being deleted", 409)
    if mine and _controller(meta) == mine:
        if decision.renew:
            kind, namespace, name = decision.kind, decision.namespace, decision.name
            renewal = Patch(kind, namespace, name, meta["uid"], decision.body)
            return replace(_patch(client, renewal), verb="Create")
        return _answered(decision, uid=meta["uid"])
    why = f"{decision.kind} {decision.name} exists and is owned by another controller"
    return failed(decision, why, 409)


def _controller(meta: dict[str, Any]) -> str:
    owners = meta.get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _delete(client: Client, decision: Delete) -> Answered:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": decision.uid},
        "propagationPolicy": "Foreground" if decision.foreground else "Background",
    }
    if decision.grace_s:
        options["gracePeriodSeconds"] = decision.grace_s
    path = _path(decision)
    reply = call(client, "DELETE", path, options)
    if _is_gone(decision, reply):
        return _answered(decision)
    if reply.status == 409:
        return _after_delete_conflict(client, decision, reply)
    if not reply.ok:
        return _outcome(decision, reply)
    if not is_success(reply):  # then it is the object, which is terminating
        object_of(reply, BY_KIND[decision.kind], decision.name)
    return _answered(decision)


def _after_delete_conflict(client: Client, decision: Delete, reply: Reply) -> Answered:
    """Usually the name is another object's by now, and ours is gone. So it counts if it may not be read."""
    there = call(client, "GET", _path(decision))
    if there.ok and _uid(decision, there) == decision.uid:
        raise Retry(reply.error().message)
    return _answered(decision)


def _uid(decision: ObjectDecision, reply: Reply) -> str:
    return str(object_of(reply, BY_KIND[decision.kind], decision.name)["metadata"]["uid"])


def _is_gone(decision: ObjectDecision, reply: Reply) -> bool:
    return says_gone(reply, BY_KIND[decision.kind], decision.name)


def _set_status(client: Client, decision: SetStatus) -> Answered:
    """Replaces the whole status by a JSON patch, which fails if the uid is another object's."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": decision.uid},
        {"op": "add", "path": "/status", "value": decision.status},
    ]
    path = _path(decision) + "/status"
    reply = call(client, "PATCH", path, patch, JSON_PATCH)
    return failed(decision, GONE, 404) if _is_gone(decision, reply) else _outcome(decision, reply)


def _patch(client: Client, decision: Patch) -> Answered:
    # The API server rejects the patch if the uid is another object's.
    meta = {**(decision.body.get("metadata") or {}), "uid": decision.uid}
    body = {**decision.body, "metadata": meta}
    # A pod's status takes annotations, too, and the right to it reaches no image.
    path = _path(decision) + ("/status" if decision.kind == "Pod" else "")
    reply = call(client, "PATCH", path, body, MERGE)
    return failed(decision, GONE, 404) if _is_gone(decision, reply) else _outcome(decision, reply)


def _outcome(decision: ObjectDecision, reply: Reply) -> Answered:
    """Raises Retry if the reply is not the object: all of these requests may be repeated."""
    if not reply.ok:
        # 404 is kept for objects that are gone, of which this is none.
        code = 0 if reply.status == 404 else reply.status
        return failed(decision, reply.error().message, code)
    return _answered(decision, uid=_uid(decision, reply))
