"""PodDisruptionBudgets as raw JSON -> facts. Pure; nothing is raised but Malformed."""

from central.kube.decode.pod_affinity import label_expressions
from central.kube.errors import DECODE_ERRORS, MalformedObject, error_text, object_name
from central.model.facts import BudgetSeen
from central.model.json_types import Json


def decode_budget(raw: Json, *, empty_is_all: bool = True) -> BudgetSeen:
    """empty_is_all: a selector without terms covers every pod of the namespace; in policy/v1beta1
    it covers none."""
    try:
        meta, status = raw["metadata"], raw.get("status") or {}
        selector = (raw.get("spec") or {}).get("selector")
        if selector is not None and not (empty_is_all or any(selector.values())):
            selector = None
        seen = BudgetSeen(
            meta["namespace"],
            meta["name"],
            None if selector is None else tuple(label_expressions(selector, "spec.selector")),
            _allowed(meta, status),
            tuple(sorted(status.get("disruptedPods") or ())),
        )
        hash(seen)
    except DECODE_ERRORS as error:
        raise MalformedObject(
            f"PodDisruptionBudget {object_name(raw)}: {error_text(error)}"
        ) from error
    return seen


def decode_v1beta1_budget(raw: Json) -> BudgetSeen:
    """As policy/v1beta1 means it."""
    return decode_budget(raw, empty_is_all=False)


def _allowed(meta: Json, status: Json) -> int:
    """None while the controller has not looked at what the budget asks now: nobody is let go then."""
    looked_at = int(status.get("observedGeneration") or 0)
    if looked_at < int(meta.get("generation") or 0):
        return 0
    return int(status.get("disruptionsAllowed") or 0)
