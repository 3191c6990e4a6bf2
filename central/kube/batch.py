"""Commands, CronJobs, JobFlows and JobTemplates as raw JSON -> facts. Pure; nothing is raised but
Malformed."""

from datetime import datetime
from typing import Any

from central.core.facts import CommandSeen
from central.kube.errors import BROKEN, Malformed, text, what, who

Json = dict[str, Any]
_KINDS = {"Job": "batch.volcano.sh/", "Queue": "scheduling.volcano.sh/"}


def command(raw: Json) -> CommandSeen:
    """kind "": of a target that is none of ours."""
    try:
        meta, target = raw["metadata"], raw.get("target") or {}
        kind = text(target, "kind")
        group = _KINDS.get(kind)
        ours = group is not None and text(target, "apiVersion").startswith(group)
        return CommandSeen(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            text(raw, "action"),
            kind if ours else "",
            text(target, "name"),
            text(target, "uid"),
            text(raw, "reason"),
            text(raw, "message"),
            moment(meta.get("creationTimestamp")) or 0.0,
        )
    except BROKEN as error:
        raise Malformed(f"Command {who(raw)}: {what(error)}") from error


def moment(stamp: str | None) -> float | None:
    return datetime.fromisoformat(stamp).timestamp() if stamp else None
