"""Lists that go on: a row for each change; and one job, until it ends."""

import time
from collections.abc import Callable, Iterator

from central.cli.jobs.api import JOBS, Api, CannotDo, TooOld
from central.cli.jobs.describe import group_of, why_of
from central.kube.resource_paths import ResourcePath
from central.model.json_types import Json

ENDED = ("Completed", "Failed", "Aborted", "Terminated")
AGAIN_S = 1.0


def changes(
    api: Api, kind: ResourcePath, *, everywhere: bool = False, **query: str
) -> Iterator[tuple[str, Json]]:
    """LISTED for each that is there, then ADDED, MODIFIED and DELETED for ever; a list that must be
    made again says only what is new in it."""
    seen: dict[str, Json] = {}
    first = True
    while True:
        objects, version = api.all_from(kind, everywhere=everywhere, **query)
        there = {obj["metadata"]["uid"]: obj for obj in objects}
        for uid in seen.keys() - there.keys():
            yield "DELETED", seen.pop(uid)
        for uid, obj in there.items():
            if uid not in seen or _version(seen[uid]) != _version(obj):
                seen[uid] = obj
                yield ("LISTED" if first else "MODIFIED"), obj
        first = False
        try:
            while True:
                for word, obj in api.watch(kind, version, everywhere=everywhere, **query):
                    version = _version(obj)
                    if word == "BOOKMARK":
                        continue
                    if word == "DELETED":
                        seen.pop(obj["metadata"]["uid"], None)
                    else:
                        seen[obj["metadata"]["uid"]] = obj
                    yield word, obj
                time.sleep(AGAIN_S)
        except TooOld:
            continue


def _version(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])


def job(api: Api, name: str, say: Callable[[str], None]) -> int:
    """Its phase and why, at each change, until it ends: 0 when it is Completed, 1 otherwise."""
    uid = api.get(JOBS, name)["metadata"]["uid"]
    last = ""
    for word, found in changes(api, JOBS, fieldSelector=f"metadata.name={name}"):
        if found["metadata"]["uid"] != uid:
            continue
        if word == "DELETED":
            raise CannotDo(f"job {name} was deleted")
        phase = ((found.get("status") or {}).get("state") or {}).get("phase") or "Pending"
        status = found.get("status") or {}
        counts = ", ".join(
            f"{status[key]} {key}"
            for key in ("pending", "running", "succeeded", "failed")
            if status.get(key)
        )
        why = why_of(found, group_of(api, found))
        line = phase + (f" ({counts})" if counts else "") + (f": {why}" if why else "")
        if line != last:
            say(f"{time.strftime('%H:%M:%S')}  {line}")
            last = line
        if phase in ENDED:
            return 0 if phase == "Completed" else 1
    return 1
