"""Binds the volumes of claims in mode WaitForFirstConsumer, once their pod has a node.

As kube-scheduler does: the claim's name is written on a volume that exists, and the volume controller
binds the two; for a volume that must be provisioned, the node's name is written on the claim, and the
provisioner makes a volume there. The pod is bound when all of its claims are.
"""

from typing import Any

from central.kube.decode import storage_decoder
from central.kube.decode.storage_decoder import BIND_COMPLETED, SELECTED_NODE
from central.kube.resource_paths import BY_KIND, ResourcePath
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.write.retrying import Retry, call, object_of, says_gone
from central.model import selectors
from central.model.decisions import Bind
from central.model.facts import NodeSeen
from central.model.json_types import Json

CLAIM, VOLUME, NODE = (
    BY_KIND[kind] for kind in ("PersistentVolumeClaim", "PersistentVolume", "Node")
)
POLL_S = 1.0
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"  # so that the controller may undo it


class VolumeBinder:
    def __init__(self, client: Client) -> None:
        self._client = client
        # Pods' uids and claims on which the node is written.
        self._selected: set[tuple[str, str]] = set()

    def bind_volumes(self, bind: Bind) -> str:
        """Binds the claims of the pod. Returns "" if all are bound, or why they can't be. Raises Retry while the
        cluster is still binding them."""
        unbound: list[Retry] = []
        why = ""
        for name, volume in bind.claims:
            try:  # so that all volumes are provisioned at once
                why = why or self._bind_claim(bind, name, volume)
            except Retry as error:
                unbound.append(error)
        if not why and unbound:
            raise unbound[0]
        return why

    def forget(self, bind: Bind) -> None:
        """The binding is over, however it ended: another one of the pod begins anew."""
        self._selected.difference_update((bind.pod, name) for name, _ in bind.claims)

    def _bind_claim(self, bind: Bind, name: str, volume: str) -> str:
        """volume: "" if it must be provisioned."""
        path = CLAIM.path(bind.namespace, name)
        claim, why = self._read("claim", CLAIM, path, name)
        if claim is None:
            return why
        annotations = claim["metadata"].get("annotations") or {}
        bound = claim["spec"].get("volumeName")
        if bound and BIND_COMPLETED in annotations:
            if volume and bound != volume:
                return f"claim {name} is bound to volume {bound} instead of {volume}"
            if not volume and annotations.get(SELECTED_NODE) not in (None, bind.node):
                return self._check_other_node(bind, name, bound)
            return ""
        if volume:
            return self._prebind(bind, claim, volume)
        return self._provision(bind, claim, path, annotations.get(SELECTED_NODE))

    def _provision(self, bind: Bind, claim: Json, path: str, node: str | None) -> str:
        name = claim["metadata"]["name"]
        if not node:
            if (bind.pod, name) in self._selected:  # the provisioner has removed the node again
                return f"the volume of claim {name} could not be provisioned for node {bind.node}"
            node = bind.node
            meta = {
                "annotations": {SELECTED_NODE: node},
                "resourceVersion": claim["metadata"].get("resourceVersion"),
            }
            reply = self._call("PATCH", path, {"metadata": meta})
            if reply.ok:
                self._selected.add((bind.pod, name))
            elif reply.status != 409:  # changed in between: the next attempt reads it
                return f"claim {name}: {reply.error().message}"
        raise Retry(f"the volume of claim {name} is being provisioned for node {node}", POLL_S)

    def _check_other_node(self, bind: Bind, claim: str, name: str) -> str:
        """The volume was provisioned for another pod's node: can this pod's node use it, too?"""
        volume = self._call("GET", VOLUME.path("", name))
        node = self._call("GET", NODE.path("", bind.node))
        if not volume.ok or not node.ok:
            return f"claim {claim}: {(node if volume.ok else volume).error().message}"
        labels = object_of(node, NODE, bind.node)["metadata"].get("labels") or {}
        seen = storage_decoder.decode_volume(object_of(volume, VOLUME, name))
        if selectors.inside(seen.places, NodeSeen(bind.node, labels, {})):
            return ""
        return f"claim {claim} got volume {name}, which node {bind.node} cannot use"

    def _read(
        self, what: str, resource: ResourcePath, path: str, name: str
    ) -> tuple[Json | None, str]:
        """The object, or None and why there is none."""
        reply = self._call("GET", path)
        if says_gone(reply, resource, name):
            return None, f"{what} {name} is gone"
        if not reply.ok:
            return None, f"{what} {name}: {reply.error().message}"
        return object_of(reply, resource, name), ""

    def _prebind(self, bind: Bind, claim: Json, name: str) -> str:
        """Writes the claim on the volume, unless it is written there already."""
        path = VOLUME.path("", name)
        found, why = self._read("volume", VOLUME, path, name)
        if found is None:
            return why
        meta, ref = found["metadata"], found["spec"].get("claimRef")
        mine = claim["metadata"]
        if ref and (ref.get("namespace"), ref.get("name")) != (bind.namespace, mine["name"]):
            return f"volume {name} was given to claim {ref.get('namespace')}/{ref.get('name')}"
        if ref and ref.get("uid") not in (None, "", mine["uid"]):
            return f"volume {name} belongs to an earlier claim {mine['name']}"
        if not ref:
            ref = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": bind.namespace,
                "name": mine["name"],
                "uid": mine["uid"],
                "resourceVersion": mine.get("resourceVersion"),
            }
            version = meta.get("resourceVersion")
            marked = {"annotations": {BY_CONTROLLER: "yes"}, "resourceVersion": version}
            reply = self._call("PATCH", path, {"metadata": marked, "spec": {"claimRef": ref}})
            # changed in between: the next attempt reads it
            if not reply.ok and reply.status != 409:
                return f"volume {name}: {reply.error().message}"
        raise Retry(f"claim {mine['name']} is not bound to volume {name} yet", POLL_S)

    def _call(self, method: str, path: str, body: Any = None) -> Reply:
        return call(self._client, method, path, body, MERGE)
