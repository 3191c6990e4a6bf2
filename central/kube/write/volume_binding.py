"""Volumes that pods get once they have a node. One that exists is written the claim's name, as
kube-scheduler does, and the cluster's volume controller joins the two; for one that must be made the
node is written on the claim, and whoever makes volumes makes one that can be used there. The pod is
bound when its claims are."""

from urllib.parse import quote

import orjson

from central.kube.decode import storage_decoder
from central.kube.decode.storage_decoder import BIND_COMPLETED, SELECTED_NODE
from central.kube.transport.http_client import Client, Reply, Unreachable
from central.kube.write.pod_requests import Retry
from central.model import selectors
from central.model.decisions import Bind
from central.model.facts import NodeSeen
from central.model.json_types import Json

POLL_S = 1.0  # how long until a claim is looked at again
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"  # not by hand: to be undone if it fails


class VolumeBinder:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._selected: set[tuple[str, str]] = (
            set()
        )  # pods' uids and claims whose node we have written

    def bind_volumes(self, bind: Bind) -> str:
        """Why the volumes can't be made there; empty: all of the pod's claims are bound. Raises
        Again until then."""
        waits: list[Retry] = []
        why = ""
        for name, volume in bind.claims:
            try:  # those that exist and those to be made are asked for together
                why = why or self._bind_claim(bind, name, volume)
            except Retry as again:
                waits.append(again)
        if not why and waits:
            raise waits[0]
        for name, _ in bind.claims:
            self._selected.discard((bind.pod, name))
        return why

    def _bind_claim(self, bind: Bind, name: str, volume: str) -> str:
        path = _claim_path(bind.namespace, name)
        reply = self._ask("GET", path)
        if reply.status == 404:
            return f"claim {name} is gone"
        if not reply.ok:
            return f"claim {name}: {reply.error().message}"
        claim: Json = reply.json()
        annotations = claim["metadata"].get("annotations") or {}
        bound = claim["spec"].get("volumeName")
        if bound and BIND_COMPLETED in annotations:
            if volume and bound != volume:
                return f"claim {name} is bound to volume {bound}, and not to {volume}"
            if not volume and annotations.get(SELECTED_NODE) not in (None, bind.node):
                return self._check_other_node(bind, name, bound)
            return ""
        if volume:
            return self._prebind(bind, claim, volume)
        node = annotations.get(SELECTED_NODE)
        if not node:
            if (bind.pod, name) in self._selected:
                return f"the volume of claim {name} could not be made for node {bind.node}"
            node = bind.node
            patch = {
                "metadata": {
                    "annotations": {SELECTED_NODE: node},
                    "resourceVersion": claim["metadata"].get("resourceVersion"),
                }
            }
            done = self._ask("PATCH", path, orjson.dumps(patch))
            if done.ok:
                self._selected.add((bind.pod, name))
            elif done.status != 409:  # somebody changed the claim meanwhile: looked at again
                return f"claim {name}: {done.error().message}"
        raise Retry(f"the volume of claim {name} is still being made for node {node}", POLL_S)

    def _check_other_node(self, bind: Bind, claim: str, name: str) -> str:
        """The volume was made for another pod's node: can it be used from this one's?"""
        volume = self._ask("GET", f"/api/v1/persistentvolumes/{quote(name)}")
        node = self._ask("GET", f"/api/v1/nodes/{quote(bind.node)}")
        if not volume.ok or not node.ok:
            return f"claim {claim}: {(node if volume.ok else volume).error().message}"
        labels = node.json()["metadata"].get("labels") or {}
        seen = storage_decoder.decode_volume(volume.json())
        if selectors.inside(seen.places, NodeSeen(bind.node, labels, {})):
            return ""
        return f"claim {claim} got volume {name}, which can't be used on node {bind.node}"

    def _prebind(self, bind: Bind, claim: Json, name: str) -> str:
        """Writes on the volume for whom it is, unless it says so already."""
        path = f"/api/v1/persistentvolumes/{quote(name)}"
        reply = self._ask("GET", path)
        if reply.status == 404:
            return f"volume {name} is gone"
        if not reply.ok:
            return f"volume {name}: {reply.error().message}"
        meta, kept = reply.json()["metadata"], reply.json()["spec"].get("claimRef")
        mine = claim["metadata"]
        whose = (bind.namespace, mine["name"])
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
                        "namespace": bind.namespace,
                        "name": mine["name"],
                        "uid": mine["uid"],
                        "resourceVersion": mine.get("resourceVersion"),
                    }
                },
            }
            done = self._ask("PATCH", path, orjson.dumps(patch))
            if not done.ok and done.status != 409:  # changed meanwhile: looked at again
                return f"volume {name}: {done.error().message}"
        raise Retry(f"claim {mine['name']} is not bound to volume {name} yet", POLL_S)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        try:
            reply = self._client.request(method, path, body, "application/merge-patch+json")
        except Unreachable as error:
            raise Retry(str(error)) from error
        if reply.status in {401, 408, 429} or reply.status >= 500:
            raise Retry(reply.error().message, reply.retry_after_s)
        return reply


def _claim_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(name)}"
