"""Event objects of the API. Pure."""

from hashlib import blake2b

from central.model.decisions import Create
from central.model.timestamps import stamp


def about(version: str, kind: str, namespace: str, name: str, uid: str) -> dict[str, str]:
    """The object as an Event refers to it."""
    place = {"namespace": namespace, "name": name, "uid": uid}
    return {"apiVersion": version, "kind": kind, **place}


def build_event(
    concerning: dict[str, str],
    reason: str,
    message: str,
    now: float,
    *,
    warning: bool = True,
    of_now: bool = False,
) -> Create:
    """An Event about an object (see about()). Equal messages share one Event, except where each is
    of its time (of_now)."""
    digest = blake2b(
        "\n".join((concerning["uid"], reason, message)).encode(), digest_size=8
    ).hexdigest()
    namespace = concerning["namespace"] or "default"
    name = f"{concerning['name'][:200]}.{f'{int(now * 1000):x}' if of_now else digest}"
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {key: value for key, value in concerning.items() if value},
        "reason": reason,
        "message": message[:1000],
        "type": "Warning" if warning else "Normal",
        "source": {"component": "lockstep"},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }
    return Create("Event", namespace, name, body)
