"""HyperNodes as facts."""

from dataclasses import replace

from central.kube.decode import fields
from central.kube.decode.fields import FieldError
from central.model import limits
from central.model.facts import HyperNodeSeen, Member
from central.model.json_types import Json


def decode_hypernode(raw: Json) -> HyperNodeSeen:
    with fields.identifying("HyperNode", raw):
        _, name, uid = fields.identity(raw["metadata"], namespaced=False)
        seen = HyperNodeSeen(name, 0, uid=uid)
    return fields.or_error(seen, _hypernode, raw, seen)


def _hypernode(raw: Json, seen: HyperNodeSeen) -> HyperNodeSeen:
    tier = raw["spec"].get("tier")
    if type(tier) is not int or not 0 <= tier <= limits.TIER:
        raise FieldError(
            f"spec.tier: {fields.shown(tier)} is not a whole number from 0 to {limits.TIER}"
        )
    seen = replace(seen, tier=tier)
    seen = replace(seen, tier_name=fields.text(raw["spec"], "tierName", limits.NAME))
    members = enumerate(fields.entries(raw["spec"], "members", "spec", limits.MEMBERS))
    return replace(seen, members=tuple(_member(f"spec.members[{i}]", one) for i, one in members))


def _member(field: str, raw: Json) -> Member:
    kind = fields.choice(f"{field}.type", raw.get("type"), "Node", "HyperNode")
    selector = raw.get("selector") or {}
    exact = fields.text(selector.get("exactMatch") or {}, "name")
    pattern = fields.text(selector.get("regexMatch") or {}, "pattern", limits.PATTERN)
    label_match = selector.get("labelMatch") or {}
    where = f"{field}.selector.labelMatch"
    labels = tuple(
        sorted(fields.labels(label_match, "matchLabels", where, limits.SELECTOR).items())
    )
    if label_match.get("matchExpressions") or (labels and kind != "Node"):
        raise FieldError(f"{field}.selector.labelMatch: only matchLabels, and only of nodes")
    if sum(map(bool, (exact, pattern, labels))) != 1:
        raise FieldError(f"{field}.selector: needs one of exactMatch, regexMatch, labelMatch")
    return Member(kind, exact, pattern, labels)
