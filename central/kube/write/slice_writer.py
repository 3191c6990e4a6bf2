"""Writes the ResourceSlices of the agents' devices. The agents have no rights on the API server.

Each slice belongs to its Node, so that Kubernetes deletes it with the node.

Design: docs/design/device-claims.md
"""

from collections.abc import Collection

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client
from central.kube.write.pod_requests import Refused, checked
from central.kube.write.retrying import Retry, call, object_of, says_gone
from central.model.device_claims import Device, SliceSeen
from central.model.json_types import Json

SLICE, NODE = BY_KIND["ResourceSlice"], BY_KIND["Node"]
CONFLICT = 409


class SliceWriter:
    def __init__(self, client: Client) -> None:
        self._client = client

    def replace(self, known: Collection[SliceSeen], wanted: Collection[SliceSeen]) -> None:
        """Makes the pool of the wanted slices. Raises Retry, also where a slice has changed since it was seen, and
        Refused."""
        for each in wanted:
            found = self._read(each)
            if found is None:
                self._create(each)
            else:
                self._update(found, each)
        names = {each.name for each in wanted}
        for each in known:
            if each.name not in names and (found := self._read(each)) is not None:
                self._delete(found)

    def _read(self, one: SliceSeen) -> Json | None:
        """Returns None if there is no such slice. Raises Refused if it is another driver's."""
        reply = call(self._client, "GET", SLICE.path(name=one.name))
        if says_gone(reply, SLICE, one.name):
            return None
        found = object_of(checked(reply), SLICE, one.name)
        if (driver := (found.get("spec") or {}).get("driver")) != one.driver:
            raise Refused(f"ResourceSlice {one.name} is of the driver {driver}")
        return found

    def _create(self, one: SliceSeen) -> None:
        reply = checked(call(self._client, "GET", NODE.path(name=one.node)))
        uid = object_of(reply, NODE, one.node)["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": one.node, "uid": uid}
        meta = {"name": one.name, "ownerReferences": [{**owner, "controller": True}]}
        self._send("POST", SLICE.path(), SLICE.body(metadata=meta, spec=_spec(one)))

    def _update(self, found: Json, one: SliceSeen) -> None:
        generation = (found["spec"].get("pool") or {}).get("generation", 0)
        if generation >= one.generation:
            raise Retry(f"ResourceSlice {one.name} has generation {generation} meanwhile")
        body = SLICE.body(metadata=found["metadata"], spec=_spec(one))
        self._send("PUT", SLICE.path(name=one.name), body)

    def _delete(self, found: Json) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        self._send("DELETE", SLICE.path(name=name), {"preconditions": {"uid": uid}})

    def _send(self, method: str, path: str, body: Json) -> None:
        reply = call(self._client, method, path, body)
        if reply.status == CONFLICT:
            raise Retry(reply.error().message)
        checked(reply)


def _spec(one: SliceSeen) -> Json:
    pool = {"name": one.pool, "generation": one.generation, "resourceSliceCount": one.slices}
    devices = [_device(each, f"{one.driver}/") for each in one.devices]
    return {"driver": one.driver, "pool": pool, "nodeName": one.node, "devices": devices}


def _device(device: Device, domain: str) -> Json:
    """domain: that names have where they name none"""
    found: Json = {
        "name": device.name,
        "attributes": {
            each.name.removeprefix(domain): {each.kind: each.value} for each in device.attributes
        },
        "capacity": {
            name.removeprefix(domain): {"value": amount} for name, amount in device.capacity
        },
    }
    if device.taints:
        found["taints"] = [
            {key: text for key, text in each._asdict().items() if text} for each in device.taints
        ]
    return found
