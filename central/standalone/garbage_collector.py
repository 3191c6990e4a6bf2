"""The garbage collector: deletes an object's dependents with it, and objects whose owners are gone already."""

import time
from collections.abc import Iterator

from central.model.json_types import Json
from central.model.timestamps import stamp
from central.standalone.object_store import Item, Store
from central.standalone.served_kinds import Registry, Resource

NEVER_OWNERS = {("", "pods"), ("", "events"), ("", "configmaps"), ("", "secrets")}


def orphans_of(
    store: Store, registry: Registry, resource: Resource, gone: Item
) -> Iterator[tuple[Resource, Item]]:
    """Dependents of the deleted object that have no other owner."""
    if resource.key in NEVER_OWNERS:
        return
    namespace = gone.obj["metadata"].get("namespace", "")
    for other in list(registry):
        if other.namespaced or not namespace:
            for item in store.list(other, namespace):
                if _owns(gone, item.obj) and is_orphan(store, registry, item.obj):
                    yield other, item


def _owns(owner: Item, obj: Json) -> bool:
    uid = owner.obj["metadata"]["uid"]
    return any(one.get("uid") == uid for one in obj["metadata"].get("ownerReferences") or ())


def is_orphan(store: Store, registry: Registry, obj: Json) -> bool:
    """Returns whether it has owner references, but none of the owners exists. Owners of unserved kinds count as
    existing."""
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
    """Deletes all objects of a kind, regardless of finalizers and kubelets."""
    if resource is None:
        return
    for item in store.list(resource, namespace):
        metadata = {k: v for k, v in item.obj["metadata"].items() if k != "finalizers"}
        ended = {"deletionTimestamp": stamp(time.time()), "deletionGracePeriodSeconds": 0}
        new = {**item.obj, "metadata": {**metadata, **ended}}
        store.put(resource, metadata.get("namespace", ""), metadata["name"], new)
