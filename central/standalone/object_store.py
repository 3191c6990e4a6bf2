"""Objects of a Kubernetes API in memory: one version counter, a bounded history of events per resource for
watches, and optimistic concurrency. Objects are never changed in place, and each is serialized once. Pure: the
caller provides time and uids. Not thread-safe."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from central.model.json_types import Json
from central.standalone import api_errors
from central.standalone.served_kinds import Resource, ResourceKey

Name = tuple[str, str]  # namespace ("" for cluster-wide kinds), name
Change = Callable[[Json], Json]

# Metadata that only the server may write.
FIXED = frozenset(
    (
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "name",
        "namespace",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
)


@dataclass(frozen=True, slots=True)
class Item:
    obj: Json
    raw: bytes
    version: int


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str  # ADDED, MODIFIED, DELETED
    item: Item
    before: Item | None


class Collection:
    """The objects of one resource, and the history of their events."""

    def __init__(self, history: int) -> None:
        self.items: dict[Name, Item] = {}
        self.events: list[WatchEvent] = []
        self.dropped = 0  # number of events that the history no longer contains
        self.oldest = 0  # a watch that starts before this version has missed events
        self._history = history

    def add(self, event: WatchEvent) -> None:
        self.events.append(event)
        # in big steps, so that the cost per event is small
        if len(self.events) > 2 * self._history:
            keep = self._history
            self.oldest = self.events[-keep - 1].item.version
            self.dropped += len(self.events) - keep
            self.events = self.events[-keep:]

    def forget(self) -> None:
        """Drops the history, so that every watch must list again."""
        if self.events:
            self.oldest = self.events[-1].item.version
            self.dropped += len(self.events)
            self.events = []

    def after(self, position: int) -> list[WatchEvent] | None:
        """The events from a position on; None: no longer in the history."""
        return self.events[position - self.dropped :] if position >= self.dropped else None

    def position(self, version: int) -> int | None:
        """The position after this version, for a watch to start from; None: too old."""
        if version < self.oldest:
            return None
        low, high = 0, len(self.events)
        while low < high:
            middle = (low + high) // 2
            if self.events[middle].item.version <= version:
                low = middle + 1
            else:
                high = middle
        return self.dropped + low

    @property
    def end(self) -> int:
        return self.dropped + len(self.events)


class Store:
    def __init__(
        self,
        now: Callable[[], str],
        uid: Callable[[], str],
        *,
        history: int = 10_000,
        on_event: Callable[[ResourceKey], None] = lambda key: None,
    ) -> None:
        self.version = 1
        self._now = now
        self._uid = uid
        self._history = history
        self._on_event = on_event  # called with the resource of each new event
        self._collections: dict[ResourceKey, Collection] = {}

    def collection(self, resource: Resource) -> Collection:
        if resource.key not in self._collections:
            self._collections[resource.key] = Collection(self._history)
        return self._collections[resource.key]

    def find(self, resource: Resource, namespace: str, name: str) -> Item | None:
        return self.collection(resource).items.get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Item:
        item = self.find(resource, namespace, name)
        if item is None:
            raise api_errors.not_found(resource.plural, resource.group, name)
        return item

    def list(self, resource: Resource, namespace: str = "") -> list[Item]:
        """Sorted by namespace and name; all namespaces if none is given."""
        items = self.collection(resource).items
        return [items[at] for at in sorted(items) if not namespace or at[0] == namespace]

    def create(self, resource: Resource, obj: Json, admit: Change) -> Item:
        metadata = dict(obj["metadata"])
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                cause = [("metadata.name", "Required value: name or generateName is required")]
                raise api_errors.invalid(resource.kind, resource.group, "", cause)
            metadata["name"] = self._fresh_name(resource, metadata)
        at = (metadata.get("namespace", ""), metadata["name"])
        collection = self.collection(resource)
        if at in collection.items:
            raise api_errors.exists(resource.plural, resource.group, metadata["name"])
        if metadata.get("resourceVersion"):
            raise api_errors.bad_request(
                "resourceVersion should not be set on objects to be created"
            )
        metadata["uid"] = self._uid()
        metadata["creationTimestamp"] = self._now()
        for given in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            metadata.pop(given, None)
        if "spec" in obj and "status" in resource.subresources:
            metadata["generation"] = 1
        return self._put(resource, at, admit({**obj, "metadata": metadata}), "ADDED", None)

    def _fresh_name(self, resource: Resource, metadata: Json) -> str:
        while True:
            name = metadata["generateName"] + self._uid()[:5]
            if (metadata.get("namespace", ""), name) not in self.collection(resource).items:
                return str(name)

    def update(
        self, resource: Resource, namespace: str, name: str, change: Change, part: str = ""
    ) -> Item:
        """part: "status" changes only the status, and a pod's metadata; "" all but the status, if that is a
        subresource."""
        old = self.get(resource, namespace, name)
        new = change(old.obj)
        metadata = new.get("metadata") or {}
        self._check_metadata(resource, old, metadata)
        fixed = FIXED | {"ownerReferences"} if part else FIXED
        kept = {key: value for key, value in metadata.items() if key not in fixed}
        was = {key: value for key, value in old.obj["metadata"].items() if key in fixed}
        changed = {"metadata": {**kept, **was}}
        if part == "status":
            changed = changed if resource.kind == "Pod" else {}
            new = {**old.obj, **changed, "status": new.get("status", {})}
        else:
            new = {**new, **changed}
            if "status" in resource.subresources:
                new.pop("status", None)
                if "status" in old.obj:
                    new["status"] = old.obj["status"]
        return self.put(resource, namespace, name, new)

    def put(self, resource: Resource, namespace: str, name: str, new: Json) -> Item:
        """Replaces an existing object, without checks."""
        old = self.get(resource, namespace, name)
        if new == old.obj:
            return old
        if "generation" in new["metadata"] and new.get("spec") != old.obj.get("spec"):
            metadata = {**new["metadata"], "generation": new["metadata"]["generation"] + 1}
            new = {**new, "metadata": metadata}
        at = (namespace, name)
        if new["metadata"].get("deletionTimestamp") and _is_removable(new):
            return self._take(resource, at, new)
        return self._put(resource, at, new, "MODIFIED", old)

    def _check_metadata(self, resource: Resource, old: Item, metadata: Json) -> None:
        name = old.obj["metadata"]["name"]
        if metadata.get("name", name) != name:
            why = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise api_errors.bad_request(why)
        if metadata.get("resourceVersion") not in (None, "", "0", str(old.version)):
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise api_errors.conflict(resource.plural, resource.group, name, why)
        if metadata.get("uid") not in (None, "", old.obj["metadata"]["uid"]):
            there = old.obj["metadata"]["uid"]
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {there}"
            raise api_errors.conflict(resource.plural, resource.group, name, why)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace_s: int = 0,
        ends_at: str = "",
        preconditions: Json | None = None,
    ) -> tuple[Item, bool]:
        """The object's last state, and whether it is gone. With a grace period or finalizers it is only marked
        as terminating."""
        old = self.get(resource, namespace, name)
        self._check_metadata(resource, old, preconditions or {})
        metadata = old.obj["metadata"]
        marked = "deletionTimestamp" in metadata
        if grace_s == 0 and not metadata.get("finalizers"):
            return self._take(resource, (namespace, name), old.obj), True
        if marked and grace_s >= metadata.get("deletionGracePeriodSeconds", 0):
            return old, False
        metadata = {
            **metadata,
            "deletionTimestamp": ends_at or self._now(),
            "deletionGracePeriodSeconds": grace_s,
        }
        if "generation" in metadata:
            metadata["generation"] += 1
        new = {**old.obj, "metadata": metadata}
        return self._put(resource, (namespace, name), new, "MODIFIED", old), False

    def _take(self, resource: Resource, at: Name, last: Json) -> Item:
        before = self.collection(resource).items.pop(at)
        item = self._versioned(last)
        self.collection(resource).add(WatchEvent("DELETED", item, before))
        self._on_event(resource.key)
        return item

    def _put(self, resource: Resource, at: Name, obj: Json, kind: str, old: Item | None) -> Item:
        item = self._versioned(obj)
        collection = self.collection(resource)
        collection.items[at] = item
        collection.add(WatchEvent(kind, item, old))
        self._on_event(resource.key)
        return item

    def _versioned(self, obj: Json) -> Item:
        self.version += 1
        metadata: dict[str, Any] = {**obj["metadata"], "resourceVersion": str(self.version)}
        obj = {**obj, "metadata": metadata}
        return Item(obj, orjson.dumps(obj), self.version)


def _is_removable(obj: Json) -> bool:
    metadata = obj["metadata"]
    return not metadata.get("finalizers") and metadata.get("deletionGracePeriodSeconds", 0) == 0


_PAGED_LISTS = 64  # whose remaining items are kept


class Pages:
    """The remaining items of paged lists, by token, so that all pages show the same version."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._kept: OrderedDict[str, tuple[list[Item], int]] = OrderedDict()

    def keep(self, items: list[Item], version: int) -> str:
        token = self._token()
        self._kept[token] = (items, version)
        while len(self._kept) > _PAGED_LISTS:
            self._kept.popitem(last=False)
        return token

    def at(self, token: str) -> tuple[list[Item], int]:
        """Raises ApiError (410) if newer lists have displaced it."""
        if token not in self._kept:
            why = "The provided continue parameter is too old: list again without it"
            raise api_errors.gone(why)
        return self._kept[token]
