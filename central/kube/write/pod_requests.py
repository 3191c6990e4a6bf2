"""Bindings and evictions: the request, and what its reply means."""

import logging
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Reply, StatusError
from central.kube.write.retrying import Retry, call
from central.model.decisions import Bind, Evict
from central.model.facts import BindDone, BindFailed, EvictDone

log = logging.getLogger(__name__)

POD = BY_KIND["Pod"]
GONE = "the pod is gone"
BLOCKED_BY_BUDGET = "a PodDisruptionBudget forbids the eviction"


def bind(client: Client, decision: Bind) -> BindDone | BindFailed:
    """Raises Retry."""
    namespace, name = decision.namespace, decision.name
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": decision.pod}
    if decision.domains:
        meta["annotations"] = dict(decision.domains)  # the API server copies them to the pod
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": meta,
        "target": {"apiVersion": "v1", "kind": "Node", "name": decision.node},
    }
    path = POD.path(namespace, name)
    reply = call(client, "POST", f"{path}/binding", body)
    if reply.ok:
        return BindDone(decision.pod, decision.node)
    error = reply.error()
    if reply.status == 409:
        return _after_conflict(client, path, decision, error)
    why = GONE if reply.status == 404 else error.message
    return BindFailed(decision.pod, decision.node, why, final=True)


def _after_conflict(
    client: Client, path: str, decision: Bind, error: StatusError
) -> BindDone | BindFailed:
    """Either our own binding succeeded and its reply was lost, or another scheduler bound the pod."""
    reply = call(client, "GET", path)
    pod: dict[str, Any] = reply.json() if reply.ok else {}
    meta, node = pod.get("metadata") or {}, (pod.get("spec") or {}).get("nodeName")
    if reply.status == 404 or (reply.ok and meta.get("uid") != decision.pod):
        why = GONE
    elif node == decision.node:
        return BindDone(decision.pod, decision.node)
    elif node:
        why = f"the pod is already bound to {node}"
    elif meta.get("deletionTimestamp"):
        why = "the pod is being deleted"
    else:
        raise Retry(error.message)
    return BindFailed(decision.pod, decision.node, why, final=True)


class Evictor:
    """Evicts by policy/v1, or by v1beta1 once the API server has turned out to be older than 1.22."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = "policy/v1"

    def evict(self, decision: Evict) -> EvictDone:
        """Raises Retry."""
        reply = self._post(decision, self._version)
        if self._version == "policy/v1" and reply.status in {400, 404, 415} and not _no_pod(reply):
            fallback = self._post(decision, "policy/v1beta1")
            if fallback.status not in {400, 415}:
                log.info("evicting through policy/v1beta1, the API server does not serve policy/v1")
                self._version = "policy/v1beta1"
                reply = fallback
        why = ""
        # 409: the name is another pod's by now, or the pod is being deleted
        if not reply.ok and reply.status not in {404, 409}:
            why = BLOCKED_BY_BUDGET if reply.status == 429 else reply.error().message
        return EvictDone(decision.pod, why, decision.trial)

    def _post(self, decision: Evict, version: str) -> Reply:
        body = {
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": {"name": decision.name, "namespace": decision.namespace},
            "deleteOptions": {"preconditions": {"uid": decision.pod}},
        }
        path = f"{POD.path(decision.namespace, decision.name)}/eviction"
        if decision.trial:
            path += "?dryRun=All"
        return call(self._client, "POST", path, body, is_final=_is_blocked_by_budget)


def _no_pod(reply: Reply) -> bool:
    return reply.status == 404 and "pods" in reply.error().message


def _is_blocked_by_budget(reply: Reply) -> bool:
    """Otherwise 429 means that the server is overloaded."""
    return reply.status == 429 and b"disruption budget" in reply.body.lower()
