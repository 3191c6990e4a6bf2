"""Volumes that are made once their pod has a node: the node is written on the claim, whoever makes
volumes makes one that can be used there, and the pod is bound when the claim is."""

from typing import Any
from urllib.parse import quote

import orjson

from central.core.decisions import Bind
from central.kube.calls import Again
from central.kube.client import Client, Reply, Unreachable
from central.kube.storage import BIND_COMPLETED, SELECTED_NODE

AGAIN_S = 1.0  # how long until a claim is looked at again


class Provisioning:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[tuple[str, str]] = set()  # pods' uids and claims whose node we have written

    def refusal(self, asked: Bind) -> str:
        """Why the volumes can't be made there; empty: all of the pod's claims are bound. Raises
        Again until then."""
        for name in asked.claims:
            if why := self._one(asked, name):
                for other in asked.claims:
                    self._told.discard((asked.pod, other))
                return why
        for name in asked.claims:
            self._told.discard((asked.pod, name))
        return ""

    def _one(self, asked: Bind, name: str) -> str:
        space = quote(asked.namespace)
        path = f"/api/v1/namespaces/{space}/persistentvolumeclaims/{quote(name)}"
        reply = self._ask("GET", path)
        if reply.status == 404:
            return f"claim {name} is gone"
        if not reply.ok:
            return f"claim {name}: {reply.refusal().message}"
        claim: dict[str, Any] = reply.json()
        meta = claim["metadata"]
        annotations = meta.get("annotations") or {}
        if claim["spec"].get("volumeName") and BIND_COMPLETED in annotations:
            return ""
        node = annotations.get(SELECTED_NODE)
        if not node:
            if (asked.pod, name) in self._told:
                return f"the volume of claim {name} could not be made for node {asked.node}"
            node = asked.node
            patch = {
                "metadata": {
                    "annotations": {SELECTED_NODE: node},
                    "resourceVersion": meta.get("resourceVersion"),
                }
            }
            done = self._ask("PATCH", path, orjson.dumps(patch))
            if done.ok:
                self._told.add((asked.pod, name))
            elif done.status != 409:  # somebody changed the claim meanwhile: looked at again
                return f"claim {name}: {done.refusal().message}"
        raise Again(f"the volume of claim {name} is still being made for node {node}", AGAIN_S)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        try:
            reply = self._client.request(method, path, body, "application/merge-patch+json")
        except Unreachable as error:
            raise Again(str(error)) from error
        if reply.status in {401, 408, 429} or reply.status >= 500:
            raise Again(reply.refusal().message, reply.retry_after_s)
        return reply
