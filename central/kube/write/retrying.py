"""One request whose failure may be temporary, and what its answer says.

An answer of 200 is not believed on its status alone: a proxy, a broken webhook or a full disk can put
anything into it. An object must be the one that was asked for, or the outcome is unknown.
"""

from collections.abc import Callable
from typing import Any

import orjson

from central.kube.resource_paths import ResourcePath
from central.kube.transport.http_client import Client, Reply, Unreachable
from central.model.json_types import Json


class Retry(Exception):
    """The outcome is not known, or may be another one later: the same request may succeed then."""

    def __init__(self, why: str, after_s: float = 0.0, within_s: float = 0.0) -> None:
        """after_s: at least this long, as the server asks. within_s: for so long since the decision, if others are not
        retried longer"""
        super().__init__(why)
        self.why = why
        self.after_s = after_s
        self.within_s = within_s


def call(
    client: Client,
    method: str,
    path: str,
    body: Any = None,
    content_type: str = "application/json",
    *,
    is_final: Callable[[Reply], bool] = lambda _: False,
) -> Reply:
    """The reply, if repeating the request soon would not change it; otherwise raises Retry. is_final:
    replies that are not retried although their status says so."""
    content = orjson.dumps(body) if body is not None else None
    try:
        reply = client.request(method, path, content, content_type)
    except Unreachable as error:
        raise Retry(str(error)) from error
    if (reply.status in {401, 408, 429} or reply.status >= 500) and not is_final(reply):
        raise Retry(reply.error().message, reply.retry_after_s)
    if reply.status < 200 or 300 <= reply.status < 400:
        raise Retry(f"{client.server}: unexpected status {reply.status}")
    return reply


def object_of(reply: Reply, resource: ResourcePath, name: str) -> Json:
    """The object in a successful reply. Raises Retry if it is not that object."""
    found = _parse(reply)
    meta = found.get("metadata")
    kind = found.get("kind", resource.kind)
    if kind != resource.kind or not isinstance(meta, dict) or meta.get("name", name) != name:
        raise Retry(f"the answer is not {resource.kind} {name}: {_beginning(reply)}")
    if not meta.get("uid"):
        raise Retry(f"the answer has no uid of {resource.kind} {name}: {_beginning(reply)}")
    if not all(isinstance(found.get(part) or {}, dict) for part in ("spec", "status")):
        raise Retry(f"the answer is not {resource.kind} {name}: {_beginning(reply)}")
    return found


def is_success(reply: Reply) -> bool:
    """Returns whether the reply is a Status object of a success, the answer to bindings, evictions and deletions.
    Raises Retry if it is no object at all."""
    found = _parse(reply)
    return found.get("kind") == "Status" and found.get("status") == "Success"


def check_success(reply: Reply) -> None:
    """Raises Retry if the reply does not say that the request succeeded."""
    if not is_success(reply):
        raise Retry(f"the answer does not say whether it succeeded: {_beginning(reply)}")


def says_gone(reply: Reply, resource: ResourcePath, name: str) -> bool:
    """Returns whether a 404 is about this object: not about its path, its namespace, or from a proxy."""
    error = reply.error()
    if reply.status != 404 or error.reason not in {"NotFound", ""}:
        return False
    details = error.details
    if details.get("name"):
        return details["name"] == name and details.get("kind", resource.plural) in {
            resource.plural,
            resource.kind,
        }
    return f'{resource.full_name} "{name}"' in error.message


def _parse(reply: Reply) -> Json:
    try:
        found = reply.json()
    except ValueError as error:
        raise Retry(f"the answer is not JSON: {_beginning(reply)}") from error
    if not isinstance(found, dict):
        raise Retry(f"the answer is not a JSON object: {_beginning(reply)}")
    return found


def _beginning(reply: Reply) -> str:
    return repr(reply.body[:100].decode(errors="replace"))
