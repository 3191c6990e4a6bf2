"""Create, Delete, SetStatus, Patch of any kind that the core speaks of: the call, and what its answer
means. No threads, no waiting."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from central.kube.resource_paths import NAMED
from central.kube.transport.http_client import MERGE, Client, Reply, Unreachable
from central.kube.write import ssh_keys
from central.kube.write.requests import Again
from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered

Thing = Create | Delete | SetStatus | Patch

JSON_PATCH = "application/json-patch+json"
GONE = "it is gone"


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
    place = NAMED[asked.kind]
    body = {"apiVersion": place.api_version, "kind": asked.kind, **asked.body}
    where = place.path(asked.namespace)
    if asked.keys:
        # They take a tenth of a second to make: not for one that is there already, as a trial says.
        reply = _call(client, "POST", where + "?dryRun=All", body)
        if not reply.ok:
            return _kept(asked, reply)
        body["stringData"] = {**(body.get("stringData") or {}), **ssh_keys.pair()}
    reply = _call(client, "POST", where, body)
    if asked.kind == "Secret":
        return _kept(asked, reply)
    if _is_there(reply):
        reply = _call(client, "GET", _path(asked))
        return _there_already(client, asked, reply)
    return _answer(asked, reply)


def _path(asked: Thing) -> str:
    return NAMED[asked.kind].path(asked.namespace, asked.name)


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
    where = _path(asked)
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
    where = _path(asked) + "/status"
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
    where = _path(asked)
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
