"""PodDisruptionBudgets: their status, as the disruption controller writes it, and the Eviction API's check."""

import math
from collections.abc import Iterable

from central.model.json_types import Json
from central.standalone import api_errors, query_selectors
from central.standalone.object_store import Store
from central.standalone.served_kinds import Registry, Resource


class BudgetController:
    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._budgets = registry.by_key(("policy", "poddisruptionbudgets"))
        self._pods = registry.by_key(("", "pods"))

    def update_statuses(self, written: Resource, namespace: str) -> None:
        """Updates budgets after a pod or a budget of the namespace was written."""
        if written.key not in (self._budgets.key, self._pods.key):
            return
        budgets = self._store.list(self._budgets, namespace)
        if not budgets:
            return
        pods = [item.obj for item in self._store.list(self._pods, namespace)]
        for item in budgets:
            status = _status(item.obj, pods)
            if item.obj.get("status") != status:
                meta = item.obj["metadata"]
                self._store.put(
                    self._budgets,
                    meta.get("namespace", ""),
                    meta["name"],
                    {**item.obj, "status": status},
                )

    def check(self, pod: Json, namespace: str) -> None:
        """Raises ApiError (429) if a budget forbids the pod's eviction."""
        if not _healthy(pod):
            return
        for item in self._store.list(self._budgets, namespace):
            if not _covers(item.obj, pod):
                continue
            status = item.obj["status"]
            if status["disruptionsAllowed"] < 1:
                why = (
                    f"The disruption budget {item.obj['metadata']['name']} needs "
                    f"{status['desiredHealthy']} healthy pods and has {status['currentHealthy']} "
                    "currently"
                )
                causes = [{"reason": "DisruptionBudget", "message": why}]
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise api_errors.ApiError(429, "TooManyRequests", message, {"causes": causes})


def _status(budget: Json, pods: Iterable[Json]) -> Json:
    spec = budget["spec"]
    covered = [one for one in pods if _covers(budget, one)]
    expected, healthy = len(covered), sum(map(_healthy, covered))
    if "maxUnavailable" in spec:
        wanted = max(0, expected - _amount(spec["maxUnavailable"], expected))
    else:
        wanted = _amount(spec.get("minAvailable", 1), expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 0),
        "currentHealthy": healthy,
        "desiredHealthy": wanted,
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - wanted),
    }


def _covers(budget: Json, pod: Json) -> bool:
    selector = budget["spec"].get("selector")
    labels = pod["metadata"].get("labels") or {}
    return selector is not None and query_selectors.matches(selector, labels)


def _healthy(pod: Json) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _amount(value: int | str, of: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * of / 100)
    return int(value)
