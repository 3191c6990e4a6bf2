"""Bindings and evictions: the request, what its reply means, and what the API server says of the pod."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import STRATEGIC, Client, Reply
from central.kube.write.retrying import Retry, call, check_success, is_success, object_of, says_gone
from central.model import limits
from central.model.decisions import GPU_MEMORY, INCOMPLETE, Bind, Evict
from central.model.facts import BindDone, BindFailed, EvictDone
from central.model.json_types import Json
from central.model.timestamps import stamp

log = logging.getLogger(__name__)

POD = BY_KIND["Pod"]
GONE = "the pod is gone"
BLOCKED_BY_BUDGET = "a PodDisruptionBudget forbids the eviction"


class Refused(Exception):
    """The API server answered the request with an error that its repetition would not change soon."""


def checked(reply: Reply, what: str = "") -> Reply:
    """Returns the reply. Raises Refused for an error, with what the request was about."""
    if not reply.ok:
        raise Refused(f"{what}: {reply.error().message}" if what else reply.error().message)
    return reply


def bind(client: Client, decision: Bind) -> BindDone | BindFailed:
    """Raises Retry, and Refused: then settle() says what became of the pod."""
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
    reply = call(client, "POST", f"{POD.path(namespace, name)}/binding", body)
    if reply.ok:
        check_success(reply)
        return BindDone(decision.pod, decision.node)
    why = reply.error().message
    if reply.status != 409:
        raise Refused(why)
    # Our own earlier request succeeded, another scheduler bound the pod, or neither.
    settled = settle(client, decision, why)
    if isinstance(settled, BindFailed) and not settled.final:
        raise Retry(why)
    return settled


def settle(client: Client, decision: Bind, why: str) -> BindDone | BindFailed:
    """Reads the outcome of a binding that failed or whose outcome is unknown. why: the reason if the pod has no node.
    Raises Retry while the pod cannot be read, and Refused."""
    pod, final = read_pod(client, decision.namespace, decision.name, decision.pod), ""
    node = ((pod or {}).get("spec") or {}).get("nodeName")
    if node == decision.node:
        return BindDone(decision.pod, decision.node)
    if pod is None:
        final = GONE
    elif node:
        final = f"the pod is already bound to {node}"
    elif pod["metadata"].get("deletionTimestamp"):
        final = "the pod is being deleted"
    return BindFailed(decision.pod, decision.node, final or why, final=bool(final))


def read_pod(client: Client, namespace: str, name: str, uid: str) -> Json | None:
    """The pod with this uid as the API server has it now; None: it is gone. Raises Retry, Refused."""
    reply = call(client, "GET", POD.path(namespace, name))
    if says_gone(reply, POD, name):
        return None
    if reply.status == 404:  # of its path, by a proxy
        raise Retry(reply.error().message)
    pod = object_of(checked(reply), POD, name)
    return pod if pod["metadata"]["uid"] == uid else None


class Evictor:
    def __init__(self, client: Client, now: Callable[[], float] = time.time) -> None:
        self._client, self._now = client, now

    def evict(self, decision: Evict) -> EvictDone:
        """Raises Retry, Refused."""
        why = self._why_not(decision, self._post(decision))
        if not (why or decision.trial) and decision.cause not in ("", INCOMPLETE, GPU_MEMORY):
            self._write_condition(decision)
        return EvictDone(decision.pod, why, decision.trial)

    def _write_condition(self, decision: Evict) -> None:
        """Writes the condition of kube-scheduler's victims in place of the API server's, once: the pod may be gone."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": (decision.public or decision.why)[: limits.TEXT],
            "lastTransitionTime": stamp(self._now()),
        }
        body = {"metadata": {"uid": decision.pod}, "status": {"conditions": [condition]}}
        path = POD.path(decision.namespace, decision.name) + "/status"
        with suppress(Retry):
            call(self._client, "PATCH", path, body, STRATEGIC)

    def _why_not(self, decision: Evict, reply: Reply) -> str:
        """Returns why the pod is not evicted; "" if it is. Raises Retry, Refused."""
        if reply.ok:
            if decision.beyond_budgets and not is_success(reply):
                object_of(reply, POD, decision.name)  # the pod, which is terminating
            else:
                check_success(reply)
            return ""
        if reply.status == 429:
            return BLOCKED_BY_BUDGET
        if says_gone(reply, POD, decision.name):
            return ""
        if reply.status == 409:  # the pod is being deleted, its name is another pod's, or neither
            pod = read_pod(self._client, decision.namespace, decision.name, decision.pod)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return ""
            raise Retry(reply.error().message)
        return reply.error().message

    def _post(self, decision: Evict) -> Reply:
        options: dict[str, Any] = {"preconditions": {"uid": decision.pod}}
        if decision.grace_s:
            options["gracePeriodSeconds"] = decision.grace_s
        path = POD.path(decision.namespace, decision.name)
        query = "?dryRun=All" if decision.trial else ""
        if decision.beyond_budgets:
            options |= {"apiVersion": "v1", "kind": "DeleteOptions"}
            return call(self._client, "DELETE", path + query, options)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": decision.name, "namespace": decision.namespace},
            "deleteOptions": options,
        }
        return call(
            self._client, "POST", f"{path}/eviction{query}", body, is_final=_is_blocked_by_budget
        )


def _is_blocked_by_budget(reply: Reply) -> bool:
    """Otherwise 429 means that the server is overloaded."""
    return reply.status == 429 and b"disruption budget" in reply.body.lower()
