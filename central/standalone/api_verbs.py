"""The verbs of the Kubernetes API on the object store. Responses are a status code and a body; apiserver does HTTP
and watch_stream watches. Not thread-safe."""

import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from central.model.json_types import Json
from central.model.timestamps import stamp
from central.standalone import (
    admission_defaults,
    api_errors,
    garbage_collector,
    kubectl_tables,
    pod_verbs,
    query_selectors,
    tokens,
)
from central.standalone.api_request import Call
from central.standalone.budget_status import BudgetController
from central.standalone.object_store import Item, Pages, Store
from central.standalone.patches import changed
from central.standalone.served_kinds import Registry, Resource, ResourceKey, served_by, shipped

Response = tuple[int, bytes]
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Service:
    """clock: Unix time in seconds. uid: a new one."""

    def __init__(
        self,
        *,
        history: int = 10_000,
        on_event: Callable[[ResourceKey], None] = lambda key: None,
        clock: Callable[[], float] = time.time,
        uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._clock = clock
        self.registry = Registry(shipped())
        self.store = Store(lambda: stamp(clock()), uid, history=history, on_event=on_event)
        self._secret = secrets.token_bytes(32)
        self._pages = Pages(lambda: secrets.token_urlsafe(16))
        self._pod = self._core("pods")
        self._budgets = BudgetController(self.store, self.registry)
        for name in NAMESPACES:
            self._create(self._core("namespaces"), {"metadata": {"name": name}})

    def _core(self, plural: str) -> Resource:
        return self.registry.by_key(("", plural))

    def answer(self, call: Call) -> Response:
        answer = self._answer(call)
        if call.method != "GET":
            self._budgets.update_statuses(call.resource, call.namespace)
        return answer

    def _answer(self, call: Call) -> Response:
        match call.method, bool(call.name):
            case "GET", True:
                return self._one(call, self._get(call), 200)
            case "GET", False:
                return self._list(call)
            case "POST", False:
                return self._one(call, self._post(call), 201)
            case "POST", True:
                return self._subresource(call)
            case "PUT" | "PATCH", True:
                return self._change(call)
            case "DELETE", True:
                return self._delete(call)
            case "DELETE", False:
                return self._delete_all(call)
            case _:
                message = "the server does not allow this method on the requested resource"
                raise api_errors.ApiError(405, "MethodNotAllowed", message)

    # --- reading

    def _get(self, call: Call) -> Item:
        return self.store.get(call.resource, call.namespace, call.name)

    def _one(self, call: Call, item: Item, code: int) -> Response:
        return code, self.shown(call, item)

    def shown(self, call: Call, item: Item) -> bytes:
        """One object in the form that the client asked for."""
        if not call.wants_table:
            return item.raw
        return orjson.dumps(self._table(call, [item], item.version))

    def _table(self, call: Call, items: list[Item], version: int) -> Json:
        whole = call.query.get("includeObject") == "Object"
        now = datetime.now(UTC)
        objects = [item.obj for item in items]
        return kubectl_tables.table(call.resource, objects, str(version), now, whole=whole)

    def log(self, call: Call) -> str:
        return pod_verbs.log(self._get(call).obj, call.query.get("container", ""))

    def test(self, call: Call) -> query_selectors.Test:
        return query_selectors.both(
            query_selectors.labels(call.query.get("labelSelector", "")),
            query_selectors.fields(call.resource, call.query.get("fieldSelector", "")),
        )

    def _list(self, call: Call) -> Response:
        test = self.test(call)
        if token := call.query.get("continue"):
            items, version = self._pages.at(token)
        else:
            items, version = self.store.list(call.resource, call.namespace), self.store.version
            if test is not query_selectors.everything:
                items = [item for item in items if test(item.obj)]
        metadata: Json = {"resourceVersion": str(version)}
        limit = int(call.query.get("limit") or 0)
        if 0 < limit < len(items):
            metadata["continue"] = self._pages.keep(items[limit:], version)
            metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        if call.wants_table:
            shown = self._table(call, items, version)
            return 200, orjson.dumps({**shown, "metadata": metadata})
        head = {
            "kind": f"{call.resource.kind}List",
            "apiVersion": call.resource.api_version,
            "metadata": metadata,
        }
        body = b",".join([item.raw for item in items])
        return 200, orjson.dumps(head)[:-1] + b',"items":[' + body + b"]}"

    # --- writing

    def _post(self, call: Call) -> Item:
        obj = admission_defaults.object_of(call.resource, call.namespace, call.json())
        if call.resource.namespaced and not call.namespace:
            raise api_errors.no_such_path()
        if call.resource.namespaced:
            self.store.get(self._core("namespaces"), "", call.namespace)
        if call.dry:
            return Item(obj, orjson.dumps(obj), 0)
        return self._create(call.resource, obj)

    def _create(self, resource: Resource, obj: Json) -> Item:
        obj = admission_defaults.object_of(resource, obj["metadata"].get("namespace", ""), obj)
        made: Resource | None = None
        if resource.kind == "CustomResourceDefinition":
            if self.store.find(resource, "", obj["metadata"].get("name", "")) is None:
                made = self.registry.define(obj)
            obj.setdefault("spec", {})
        item = self.store.create(
            resource, obj, lambda new: admission_defaults.created(resource, new, self._priorities)
        )
        if made is not None:
            self.store.collection(made).forget()
        if resource.key == ("", "namespaces"):
            account = {"name": "default", "namespace": item.obj["metadata"]["name"]}
            self._create(self._core("serviceaccounts"), {"metadata": account})
        if garbage_collector.is_orphan(self.store, self.registry, item.obj):
            self._take(resource, item, {})
        return item

    def _priorities(self) -> list[Json]:
        resource = self.registry.by_key(("scheduling.k8s.io", "priorityclasses"))
        return [item.obj for item in self.store.list(resource)]

    def _change(self, call: Call) -> Response:
        resource, kind = call.resource, call.content_type
        body = call.json()
        if call.subresource not in ("", "status", "resize"):
            raise api_errors.no_such_path()
        new = self.store.find(resource, call.namespace, call.name) is None
        if new and "apply-patch" in kind and not call.subresource:
            return self._one(call, self._create_applied(call, body), 201)

        def change(old: Json) -> Json:
            new = changed(call.method, kind, resource, old, body)
            if not isinstance(new.get("metadata"), dict):
                raise api_errors.bad_request("the object has no metadata")
            new = {**new, "kind": resource.kind, "apiVersion": resource.api_version}
            if call.subresource == "resize":
                return admission_defaults.resized(old, new)
            return new if call.subresource else admission_defaults.changed(resource, old, new)

        if call.dry:
            return self._one(call, self._get(call), 200)
        part = call.subresource if call.subresource == "status" else ""
        item = self.store.update(resource, call.namespace, call.name, change, part)
        if resource.kind == "CustomResourceDefinition":
            self.registry.define(item.obj)
        return self._one(call, item, 200)

    def _create_applied(self, call: Call, body: Any) -> Item:
        obj = admission_defaults.object_of(call.resource, call.namespace, body)
        return self._create(call.resource, obj)

    # --- subresources

    def _subresource(self, call: Call) -> Response:
        match call.subresource:
            case "binding":
                return self._bind(call)
            case "eviction":
                return self._evict(call)
            case "token":
                account = self._get(call).obj
                now = time.time()
                issued = tokens.issue(self._secret, account, call.json(), self._find, now)
                return 201, orjson.dumps(issued)
            case _:
                raise api_errors.no_such_path()

    def _bind(self, call: Call) -> Response:
        old = self._get(call)
        new = pod_verbs.bound(old.obj, call.json(), stamp(self._clock()))
        if not call.dry:
            self.store.put(call.resource, call.namespace, call.name, new)
        return 201, _success()

    def _evict(self, call: Call) -> Response:
        pod = self._get(call).obj
        self._budgets.check(pod, call.namespace)
        if not call.dry:
            self._remove(call, call.name, (call.json() or {}).get("deleteOptions") or {})
        return 201, _success()

    def _find(self, plural: str, namespace: str, name: str) -> Json | None:
        item = self.store.find(self._core(plural), namespace, name)
        return item.obj if item else None

    def review(self, plural: str, asked: Json) -> Response:
        """Answers a review without storing it. Every client of this server may do everything."""
        if plural == "tokenreviews":
            answer = tokens.review(self._secret, asked, self._find, time.time())
            return 201, orjson.dumps(answer)
        return 201, orjson.dumps({"metadata": {}, **asked, "status": {"allowed": True}})

    # --- deleting

    def _delete(self, call: Call) -> Response:
        options = call.json()
        if "gracePeriodSeconds" in call.query:
            options = {**options, "gracePeriodSeconds": int(call.query["gracePeriodSeconds"])}
        if call.dry:
            return self._one(call, self._get(call), 200)
        item, gone = self._remove(call, call.name, options)
        if gone and call.resource.kind != "Pod":
            metadata = item.obj["metadata"]
            return 200, _success({"name": metadata["name"], "uid": metadata["uid"]})
        return self._one(call, item, 200)

    def _delete_all(self, call: Call) -> Response:
        test, options = self.test(call), call.json()
        for item in self.store.list(call.resource, call.namespace):
            if test(item.obj):
                metadata = item.obj["metadata"]
                namespace, name = metadata.get("namespace", ""), metadata["name"]
                self._remove(call, name, options, namespace=namespace)
        return 200, _success()

    def _remove(
        self, call: Call, name: str, options: Json, namespace: str | None = None
    ) -> tuple[Item, bool]:
        namespace = call.namespace if namespace is None else namespace
        return self._take(call.resource, self.store.get(call.resource, namespace, name), options)

    def _take(self, resource: Resource, old: Item, options: Json) -> tuple[Item, bool]:
        metadata = old.obj["metadata"]
        is_pod = resource.key == self._pod.key
        grace_s = pod_verbs.grace_s(old.obj, options.get("gracePeriodSeconds")) if is_pod else 0
        item, gone = self.store.delete(
            resource,
            metadata.get("namespace", ""),
            metadata["name"],
            grace_s=grace_s,
            ends_at=stamp(self._clock() + grace_s),
            preconditions=options.get("preconditions"),
        )
        if gone:
            self._after_removal(resource, item)
            if options.get("propagationPolicy") != "Orphan":
                for other, owned in garbage_collector.orphans_of(
                    self.store, self.registry, resource, item
                ):
                    self._take(other, owned, {})
        return item, gone

    def _after_removal(self, resource: Resource, item: Item) -> None:
        if resource.key == ("", "namespaces"):
            name = item.obj["metadata"]["name"]
            for other in list(self.registry):
                if other.namespaced:
                    garbage_collector.clear(self.store, other, name)
        elif resource.kind == "CustomResourceDefinition":
            garbage_collector.clear(self.store, self.registry.find(*served_by(item.obj)), "")
            self.registry.forget(item.obj)


def _success(details: Json | None = None) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return orjson.dumps({**status, "details": details} if details else status)
