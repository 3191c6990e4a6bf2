"""One Binding, one eviction: the call, and what its answer means. No threads, no waiting."""

import logging
from typing import Any

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Reply, StatusError, Unreachable
from central.model.decisions import Bind, Evict
from central.model.facts import BindDone, BindFailed, EvictDone

log = logging.getLogger(__name__)

POD = BY_KIND["Pod"]

GONE = "the pod is gone"
BUDGET = "a disruption budget forbids it"


class Retry(Exception):
    """It may work later."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.why = why
        self.after_s = after_s


def bind(client: Client, decision: Bind) -> BindDone | BindFailed:
    """Raises Again."""
    meta: dict[str, Any] = {
        "name": decision.name,
        "namespace": decision.namespace,
        "uid": decision.pod,
    }
    if decision.domains:
        meta["annotations"] = dict(decision.domains)  # the API server adds them to the pod's
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": meta,
        "target": {"apiVersion": "v1", "kind": "Node", "name": decision.node},
    }
    path = POD.path(decision.namespace, decision.name)
    reply = _ask(client, "POST", f"{path}/binding", body)
    if reply.ok:
        return BindDone(decision.pod, decision.node)
    refusal = reply.error()
    if reply.status == 409:
        return _bound_already(client, path, decision, refusal)
    why = GONE if reply.status == 404 else refusal.message
    return BindFailed(decision.pod, decision.node, why, final=True)


def _bound_already(
    client: Client, path: str, decision: Bind, refusal: StatusError
) -> BindDone | BindFailed:
    """A conflict: our own call that got through before its answer was lost, or somebody else's."""
    reply = _ask(client, "GET", path)
    pod: dict[str, Any] = reply.json() if reply.ok else {}
    meta, node = pod.get("metadata") or {}, (pod.get("spec") or {}).get("nodeName")
    if reply.status == 404 or (reply.ok and meta.get("uid") != decision.pod):
        why = GONE
    elif node == decision.node:
        return BindDone(decision.pod, decision.node)
    elif node:
        why = f"it is bound to {node} already"
    elif meta.get("deletionTimestamp"):
        why = "the pod is being deleted"
    else:
        raise Retry(refusal.message)
    return BindFailed(decision.pod, decision.node, why, final=True)


class Evictor:
    """Remembers which version of the policy API the server knows: v1 since 1.22."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = "policy/v1"

    def evict(self, decision: Evict) -> EvictDone:
        """Raises Again."""
        reply = self._ask(decision, self._version)
        if self._version == "policy/v1" and reply.status in {400, 404, 415} and not _no_pod(reply):
            older = self._ask(decision, "policy/v1beta1")
            if older.status not in {400, 415}:
                log.info("the API server evicts by policy/v1beta1")
                self._version = "policy/v1beta1"
                reply = older
        why = ""
        # 409: by its uid another pod by now, or its removal is under way
        if not reply.ok and reply.status not in {404, 409}:
            why = BUDGET if reply.status == 429 else reply.error().message
        return EvictDone(decision.pod, why, decision.trial)

    def _ask(self, decision: Evict, version: str) -> Reply:
        body = {
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": {"name": decision.name, "namespace": decision.namespace},
            "deleteOptions": {"preconditions": {"uid": decision.pod}},
        }
        path = f"{POD.path(decision.namespace, decision.name)}/eviction"
        if decision.trial:
            path += "?dryRun=All"
        return _ask(self._client, "POST", path, body)


def _no_pod(reply: Reply) -> bool:
    return reply.status == 404 and "pods" in reply.error().message


def _ask(client: Client, method: str, path: str, body: Any = None) -> Reply:
    """Any answer that will not change by asking again."""
    try:
        reply = client.request(method, path, orjson.dumps(body) if body else None)
    except Unreachable as error:
        raise Retry(str(error)) from error
    if reply.status in {401, 408} or reply.status >= 500 or _throttled(reply):
        raise Retry(reply.error().message, reply.retry_after_s)
    return reply


def _throttled(reply: Reply) -> bool:
    """429 is the server asking for patience, unless a disruption budget speaks."""
    return reply.status == 429 and b"disruption budget" not in reply.body.lower()
