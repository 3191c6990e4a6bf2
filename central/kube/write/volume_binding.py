"""Volumes that pods get once they have a node. One that exists is written the claim's name, as
kube-scheduler does, and the cluster's volume controller joins the two; for one that must be made the
node is written on the claim, and whoever makes volumes makes one that can be used there. The pod is
bound when its claims are."""

from urllib.parse import quote

import orjson

from central.kube.decode import storage_decoder
from central.kube.decode.storage_decoder import BIND_COMPLETED, SELECTED_NODE
from central.kube.transport.http_client import Client, Reply, Unreachable
from central.kube.write.requests import Again
from central.model import selectors
from central.model.decisions import Bind
from central.model.facts import NodeSeen
from central.model.json_types import Json

AGAIN_S = 1.0  # how long until a claim is looked at again
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"  # not by hand: to be undone if it fails


class Provisioning:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[tuple[str, str]] = set()  # pods' uids and claims whose node we have written

    def refusal(self, asked: Bind) -> str:
        """Why the volumes can't be made there; empty: all of the pod's claims are bound. Raises
        Again until then."""
        waits: list[Again] = []
        why = ""
        for name, volume in asked.claims:
            try:  # those that exist and those to be made are asked for together
                why = why or self._one(asked, name, volume)
            except Again as again:
                waits.append(again)
        if not why and waits:
            raise waits[0]
        for name, _ in asked.claims:
            self._told.discard((asked.pod, name))
        return why

    def _one(self, asked: Bind, name: str, volume: str) -> str:
        path = _claim_path(asked.namespace, name)
        reply = self._ask("GET", path)
        if reply.status == 404:
            return f"claim {name} is gone"
        if not reply.ok:
            return f"claim {name}: {reply.refusal().message}"
        claim: Json = reply.json()
        annotations = claim["metadata"].get("annotations") or {}
        bound = claim["spec"].get("volumeName")
        if bound and BIND_COMPLETED in annotations:
            if volume and bound != volume:
                return f"claim {name} is bound to volume {bound}, and not to {volume}"
            if not volume and annotations.get(SELECTED_NODE) not in (None, asked.node):
                return self._elsewhere(asked, name, bound)
            return ""
        if volume:
            return self._keep(asked, claim, volume)
        node = annotations.get(SELECTED_NODE)
        if not node:
            if (asked.pod, name) in self._told:
                return f"the volume of claim {name} could not be made for node {asked.node}"
            node = asked.node
            patch = {
                "metadata": {
                    "annotations": {SELECTED_NODE: node},
                    "resourceVersion": claim["metadata"].get("resourceVersion"),
                }
            }
            done = self._ask("PATCH", path, orjson.dumps(patch))
            if done.ok:
                self._told.add((asked.pod, name))
            elif done.status != 409:  # somebody changed the claim meanwhile: looked at again
                return f"claim {name}: {done.refusal().message}"
        raise Again(f"the volume of claim {name} is still being made for node {node}", AGAIN_S)

    def _elsewhere(self, asked: Bind, claim: str, name: str) -> str:
        """The volume was made for another pod's node: can it be used from this one's?"""
        volume = self._ask("GET", f"/api/v1/persistentvolumes/{quote(name)}")
        node = self._ask("GET", f"/api/v1/nodes/{quote(asked.node)}")
        if not volume.ok or not node.ok:
            return f"claim {claim}: {(node if volume.ok else volume).refusal().message}"
        labels = node.json()["metadata"].get("labels") or {}
        seen = storage_decoder.volume(volume.json())
        if selectors.inside(seen.places, NodeSeen(asked.node, labels, {})):
            return ""
        return f"claim {claim} got volume {name}, which can't be used on node {asked.node}"

    def _keep(self, asked: Bind, claim: Json, name: str) -> str:
        """Writes on the volume for whom it is, unless it says so already."""
        path = f"/api/v1/persistentvolumes/{quote(name)}"
        reply = self._ask("GET", path)
        if reply.status == 404:
            return f"volume {name} is gone"
        if not reply.ok:
            return f"volume {name}: {reply.refusal().message}"
        meta, kept = reply.json()["metadata"], reply.json()["spec"].get("claimRef")
        mine = claim["metadata"]
        whose = (asked.namespace, mine["name"])
        if kept and (kept.get("namespace"), kept.get("name")) != whose:
            return f"volume {name} was given to claim {kept.get('namespace')}/{kept.get('name')}"
        if kept and kept.get("uid") not in (None, "", mine["uid"]):
            return f"volume {name} is of a claim {mine['name']} that is gone"
        if not kept:
            patch = {
                "metadata": {
                    "annotations": {BY_CONTROLLER: "yes"},
                    "resourceVersion": meta.get("resourceVersion"),
                },
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": asked.namespace,
                        "name": mine["name"],
                        "uid": mine["uid"],
                        "resourceVersion": mine.get("resourceVersion"),
                    }
                },
            }
            done = self._ask("PATCH", path, orjson.dumps(patch))
            if not done.ok and done.status != 409:  # changed meanwhile: looked at again
                return f"volume {name}: {done.refusal().message}"
        raise Again(f"claim {mine['name']} is not bound to volume {name} yet", AGAIN_S)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        try:
            reply = self._client.request(method, path, body, "application/merge-patch+json")
        except Unreachable as error:
            raise Again(str(error)) from error
        if reply.status in {401, 408, 429} or reply.status >= 500:
            raise Again(reply.refusal().message, reply.retry_after_s)
        return reply


def _claim_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(name)}"
