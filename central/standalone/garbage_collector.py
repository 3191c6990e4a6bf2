"""The garbage collector: what an object owned goes with it, and what is made for one that is gone
already goes at once."""

import time
from collections.abc import Iterator

from central.model.json_types import Json
from central.model.timestamps import stamp
from central.standalone.object_store import Item, Store
from central.standalone.served_kinds import Registry, Resource

OWN_NOTHING = {("", "pods"), ("", "events"), ("", "configmaps"), ("", "secrets")}


def left_by(
    store: Store, registry: Registry, resource: Resource, gone: Item
) -> Iterator[tuple[Resource, Item]]:
    """What nobody else owns."""
    if resource.key in OWN_NOTHING:
        return
    namespace = gone.obj["metadata"].get("namespace", "")
    for other in list(registry):
        if other.namespaced or not namespace:
            for item in store.list(other, namespace):
                if _owns(gone, item.obj) and is_left(store, registry, item.obj):
                    yield other, item


def _owns(owner: Item, obj: Json) -> bool:
    uid = owner.obj["metadata"]["uid"]
    return any(one.get("uid") == uid for one in obj["metadata"].get("ownerReferences") or ())


def is_left(store: Store, registry: Registry, obj: Json) -> bool:
    """It had owners, and none of them is there. Of a kind that is not served nobody knows."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return bool(owners) and not any(_is_there(store, registry, obj, owner) for owner in owners)


def _is_there(store: Store, registry: Registry, obj: Json, owner: Json) -> bool:
    for resource in registry:
        if (resource.api_version, resource.kind) == (owner.get("apiVersion"), owner.get("kind")):
            namespace = obj["metadata"].get("namespace", "") if resource.namespaced else ""
            found = store.find(resource, namespace, owner.get("name", ""))
            return found is not None and found.obj["metadata"]["uid"] == owner.get("uid")
    return True


def clear(store: Store, resource: Resource | None, namespace: str) -> None:
    """Everything of a kind goes, without asking its finalizers or its kubelet."""
    if resource is None:
        return
    for item in store.list(resource, namespace):
        metadata = {k: v for k, v in item.obj["metadata"].items() if k != "finalizers"}
        ended = {"deletionTimestamp": stamp(time.time()), "deletionGracePeriodSeconds": 0}
        new = {**item.obj, "metadata": {**metadata, **ended}}
        store.put(resource, metadata.get("namespace", ""), metadata["name"], new)
