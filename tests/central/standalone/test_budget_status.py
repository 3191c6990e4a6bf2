"""What a PodDisruptionBudget allows, as Kubernetes counts it: percentages are rounded up."""

from typing import Any

import pytest

from central.standalone import budget_status

Json = dict[str, Any]


def pod(ready: str = "True", **metadata: Any) -> Json:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"labels": {"app": "a"}, **metadata}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("spec", "wanted", "allowed"),
    [
        ({"maxUnavailable": 2}, 5, 1),
        ({"maxUnavailable": "30%"}, 4, 2),
        ({"maxUnavailable": "100%"}, 0, 6),
        ({"maxUnavailable": 9}, 0, 6),
        ({"minAvailable": 4}, 4, 2),
        ({"minAvailable": "50%"}, 4, 2),
        ({"minAvailable": "100%"}, 7, 0),
        ({}, 1, 5),
    ],
)
def test_what_a_budget_allows(spec: Json, wanted: int, allowed: int) -> None:
    """Of seven pods that it covers one is not ready."""
    pods = [pod() for _ in range(6)] + [pod("False"), pod(labels={"app": "b"}), pod(labels=None)]
    selector = {"matchLabels": {"app": "a"}}
    budget = {"metadata": {"generation": 3}, "spec": {"selector": selector, **spec}}
    assert budget_status._status(budget, pods) == {
        "observedGeneration": 3,
        "currentHealthy": 6,
        "desiredHealthy": wanted,
        "expectedPods": 7,
        "disruptionsAllowed": allowed,
    }


def test_who_leaves_is_not_healthy() -> None:
    pods = [pod(), pod(deletionTimestamp="2026-01-01T00:00:00Z"), {"metadata": {}}]
    budget: Json = {"metadata": {}, "spec": {"selector": {}, "maxUnavailable": 2}}
    found = budget_status._status(budget, pods)
    assert (found["currentHealthy"], found["expectedPods"]) == (1, 3)
    del budget["spec"]["selector"]
    assert budget_status._status(budget, pods)["expectedPods"] == 0
