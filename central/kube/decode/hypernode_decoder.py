"""HyperNode objects -> facts."""

from dataclasses import replace

from central.kube.errors import DECODE_ERRORS, MalformedObject, error_text, object_name, text_field
from central.model.facts import HyperNodeSeen, Member
from central.model.json_types import Json


def decode_hypernode(raw: Json) -> HyperNodeSeen:
    """Raises Malformed where it has no name; else what is wrong is its error."""
    try:
        name = raw["metadata"]["name"]
    except DECODE_ERRORS as error:
        raise MalformedObject(f"HyperNode {object_name(raw)}: {error_text(error)}") from error
    try:
        seen = _hypernode(name, raw["spec"])
    except DECODE_ERRORS as error:
        seen = HyperNodeSeen(name, 0, error=error_text(error))
    return replace(seen, uid=str(raw["metadata"].get("uid") or ""))


def _hypernode(name: str, spec: Json) -> HyperNodeSeen:
    tier = spec.get("tier")
    if isinstance(tier, bool) or not isinstance(tier, int) or tier < 0:
        return HyperNodeSeen(name, 0, error=f"spec.tier: {tier!r} is not a whole number")
    members = []
    for place, raw in enumerate(spec.get("members") or ()):
        field = f"spec.members[{place}]"
        kind, selector = raw.get("type"), raw.get("selector") or {}
        if kind not in {"Node", "HyperNode"}:
            return HyperNodeSeen(
                name, tier, error=f'{field}.type: "{kind}" is no Node or HyperNode'
            )
        exact = text_field(selector.get("exactMatch") or {}, "name")
        pattern = text_field(selector.get("regexMatch") or {}, "pattern")
        wanted = selector.get("labelMatch") or {}
        labels = tuple(sorted((wanted.get("matchLabels") or {}).items()))
        if wanted.get("matchExpressions") or (labels and kind != "Node"):
            why = f"{field}.selector.labelMatch: only matchLabels, and only of nodes"
            return HyperNodeSeen(name, tier, error=why)
        if sum(map(bool, (exact, pattern, labels))) != 1:
            why = f"{field}.selector: needs one of exactMatch, regexMatch, labelMatch"
            return HyperNodeSeen(name, tier, error=why)
        members.append(Member(kind, exact, pattern, labels))
    return HyperNodeSeen(name, tier, tuple(members))
