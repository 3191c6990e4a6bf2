"""Create, Delete, SetStatus, Patch of any kind that the core speaks of: the call, and what its answer
means. No threads, no waiting."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, Reply, Unreachable
from central.kube.write import ssh_keys
from central.kube.write.pod_requests import Retry
from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered

ObjectDecision = Create | Delete | SetStatus | Patch

JSON_PATCH = "application/json-patch+json"
GONE = "it is gone"


def execute(client: Client, decision: ObjectDecision) -> Answered:
    """Raises Again."""
    match decision:
        case Create():
            return _create(client, decision)
        case Delete():
            return _delete(client, decision)
        case SetStatus():
            return _set_status(client, decision)
        case Patch():
            return _patch(client, decision)


def failed(decision: ObjectDecision, why: str, code: int = 0) -> Answered:
    verb = type(decision).__name__
    return Answered(verb, decision.kind, decision.namespace, decision.name, why=why, code=code)


def _create(client: Client, decision: Create) -> Answered:
    place = BY_KIND[decision.kind]
    body = {"apiVersion": place.api_version, "kind": decision.kind, **decision.body}
    where = place.path(decision.namespace)
    if decision.keys:
        # They take a tenth of a second to make: not for one that is there already, as a trial says.
        reply = _call(client, "POST", where + "?dryRun=All", body)
        if not reply.ok:
            return _kept(decision, reply)
        body["stringData"] = {**(body.get("stringData") or {}), **ssh_keys.generate_key_pair()}
    reply = _call(client, "POST", where, body)
    if decision.kind == "Secret":
        return _kept(decision, reply)
    if _is_there(reply):
        reply = _call(client, "GET", _path(decision))
        return _there_already(client, decision, reply)
    return _answer(decision, reply)


def _path(decision: ObjectDecision) -> str:
    return BY_KIND[decision.kind].path(decision.namespace, decision.name)


def _is_there(reply: Reply) -> bool:
    return reply.status == 409 and reply.error().reason == "AlreadyExists"


def _kept(decision: Create, reply: Reply) -> Answered:
    """Secrets are never read: one of that name (it carries the owner's uid) is the one that was made
    before."""
    if _is_there(reply):
        return Answered("Create", decision.kind, decision.namespace, decision.name)
    return _answer(decision, reply)


def _there_already(client: Client, decision: Create, reply: Reply) -> Answered:
    """Our own call that got through before its answer was lost, or somebody else's object."""
    if reply.status == 404:
        raise Retry("it was there and is not any more")
    if not reply.ok:
        return _answer(decision, reply)
    meta = reply.json()["metadata"]
    mine = _controller(decision.body.get("metadata") or {})
    if meta.get("deletionTimestamp"):
        return failed(decision, "one of that name is still being deleted", 409)
    if mine and _controller(meta) == mine:
        if decision.renew:
            what = Patch(
                decision.kind, decision.namespace, decision.name, meta["uid"], decision.body
            )
            return replace(_patch(client, what), verb="Create")
        return Answered("Create", decision.kind, decision.namespace, decision.name, uid=meta["uid"])
    return failed(decision, f"{decision.kind} {decision.name} exists already and is another's", 409)


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
    where = _path(decision)
    reply = _call(client, "DELETE", where, options)
    if reply.status in {404, 409}:  # gone, or another of its name by now
        return Answered("Delete", decision.kind, decision.namespace, decision.name)
    return _answer(decision, reply)


def _set_status(client: Client, decision: SetStatus) -> Answered:
    """As a JSON patch: it replaces what stands there, keys of its mappings included, and only if
    the object is the one that was meant."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": decision.uid},
        {"op": "add", "path": "/status", "value": _told(decision.status)},
    ]
    where = _path(decision) + "/status"
    reply = _call(client, "PATCH", where, patch, JSON_PATCH)
    return failed(decision, GONE, 404) if reply.status == 404 else _answer(decision, reply)


def _told(status: Any) -> Any:
    """Without empty texts: an API server of 1.20 takes one in a JSON patch for null, and refuses."""
    if isinstance(status, Mapping):
        return {key: _told(value) for key, value in status.items() if value != ""}
    return [_told(value) for value in status] if isinstance(status, (list, tuple)) else status


def _patch(client: Client, decision: Patch) -> Answered:
    meta = {
        **(decision.body.get("metadata") or {}),
        "uid": decision.uid,
    }  # another one's uid is refused
    body = {**decision.body, "metadata": meta}
    where = _path(decision)
    reply = _call(client, "PATCH", where, body, MERGE)
    return failed(decision, GONE, 404) if reply.status == 404 else _answer(decision, reply)


def _answer(decision: ObjectDecision, reply: Reply) -> Answered:
    if not reply.ok:
        return failed(decision, reply.error().message, reply.status)
    uid = (reply.json().get("metadata") or {}).get("uid") or ""
    verb = type(decision).__name__
    return Answered(verb, decision.kind, decision.namespace, decision.name, uid=uid)


def _call(
    client: Client, method: str, where: str, body: Any = None, kind: str = "application/json"
) -> Reply:
    """Any answer that will not change by asking again soon."""
    try:
        content = orjson.dumps(body) if body is not None else None
        reply = client.request(method, where, content, kind)
    except Unreachable as error:
        raise Retry(str(error)) from error
    if reply.status in {401, 408, 429} or reply.status >= 500:
        raise Retry(reply.error().message, reply.retry_after_s)
    return reply
