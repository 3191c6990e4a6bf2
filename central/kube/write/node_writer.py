"""Labels, a condition and a taint of Node objects. Each method is one change, which may be repeated; all of them raise
Retry, and Refused if the API server would refuse it again.

Design: docs/design/gpu-health.md
"""

from collections.abc import Mapping
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, STRATEGIC, Client
from central.kube.write.pod_requests import checked
from central.kube.write.retrying import Retry, call, object_of
from central.model.facts import Taint

NODE = BY_KIND["Node"]


class NodeWriter:
    def __init__(self, client: Client) -> None:
        self._client = client

    def set_labels(self, name: str, changes: Mapping[str, str | None]) -> None:
        """changes: None removes a label; labels that are not named stay."""
        self._patch(NODE.path(name=name), {"metadata": {"labels": dict(changes)}}, MERGE)

    def set_condition(self, name: str, condition: Mapping[str, str]) -> None:
        """condition: type, status, reason, message and times as in a Node's status. Conditions of other types stay;
        lastTransitionTime stays where the status is the same."""
        known = self._condition(name, condition["type"])
        if known.get("status") == condition["status"]:
            since = known.get("lastTransitionTime") or condition["lastTransitionTime"]
            condition = {**condition, "lastTransitionTime": since}
        body = {"status": {"conditions": [dict(condition)]}}
        self._patch(f"{NODE.path(name=name)}/status", body, STRATEGIC)

    def set_taint(self, name: str, taint: Taint, *, present: bool) -> None:
        """Other taints stay. A list of taints can only be replaced, so the patch names the version that it was made
        from, and one that came in between is not lost: Retry."""
        node = self._read(name)
        known = [
            each for each in node.get("spec", {}).get("taints") or () if isinstance(each, dict)
        ]
        kept = [
            each
            for each in known
            if (each.get("key"), each.get("effect")) != (taint.key, taint.effect)
        ]
        mine = {"key": taint.key, "effect": taint.effect}
        if taint.value:
            mine["value"] = taint.value
        taints = [*kept, mine] if present else kept
        if taints == known:
            return
        version = node["metadata"].get("resourceVersion")
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
        self._patch(NODE.path(name=name), body, MERGE)

    def _condition(self, name: str, kind: str) -> Mapping[str, Any]:
        conditions = self._read(name).get("status", {}).get("conditions") or ()
        found = (each for each in conditions if isinstance(each, dict) and each.get("type") == kind)
        return next(found, {})

    def _read(self, name: str) -> dict[str, Any]:
        reply = call(self._client, "GET", NODE.path(name=name))
        return dict(object_of(checked(reply), NODE, name))

    def _patch(self, path: str, body: Any, kind: str) -> None:
        reply = call(self._client, "PATCH", path, body, kind)
        if reply.status == 409:
            raise Retry(reply.error().message)
        checked(reply)
