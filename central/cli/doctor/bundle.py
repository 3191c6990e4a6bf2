"""`lockstep doctor --bundle FILE`: what to attach to a report, as a tar archive.

Objects keep listed fields alone: no variables of containers, no annotations, no Secret, no ConfigMap; pods of the
installation alone. Texts (logs, arguments, messages) lose what looks like a credential.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import orjson

from central.cli.doctor.installation import Installation, meta
from central.kube.transport.http_client import Client
from central.model.json_types import Json

LOG_LINES = 2_000  # of each container, the last ones
MOST_LOG = 8 << 20  # bytes of one log
MOST_PODS = 40  # whose logs are read
_METADATA = ("name", "namespace", "labels", "creationTimestamp", "generation", "uid")
_FIELDS: dict[str, dict[str, tuple[str, ...]]] = {  # what is kept of an object beside metadata
    "Node": {
        "spec": ("taints", "unschedulable"),
        "status": ("capacity", "allocatable", "conditions", "nodeInfo"),
    },
    "Pod": {
        "spec": ("nodeName", "schedulerName", "runtimeClassName"),
        "status": ("phase", "conditions", "containerStatuses", "reason", "message"),
    },
    "Deployment": {"spec": ("replicas",), "status": ("replicas", "readyReplicas", "conditions")},
    "DaemonSet": {"status": ("desiredNumberScheduled", "numberReady", "conditions")},
    "CustomResourceDefinition": {"status": ("conditions", "storedVersions")},
    "Queue": {
        "spec": ("weight", "parent", "priority", "capability", "deserved", "guarantee"),
        "status": ("state",),
    },
    "PodGroup": {
        "spec": ("minMember", "queue", "priorityClassName"),
        "status": ("phase", "conditions"),
    },
    "Lease": {"spec": ("holderIdentity", "renewTime", "leaseTransitions")},
}
_OURS = (
    "Pod",
    "Deployment",
    "DaemonSet",
)  # kinds of which only objects of the installation are kept
_CREDENTIALS = (
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.?[\w-]*"), "REDACTED-TOKEN"),
    (
        re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL),
        "REDACTED-PEM",
    ),
    (
        re.compile(r"(?i)\b(authorization|bearer|basic)\b[\"':=\s]+[^\s\"']+( [^\s\"']+)?"),
        r"\1 REDACTED",
    ),
    (
        re.compile(
            r"(?i)([\w.-]*(?:token|passw(?:or)?d|secret|(?:api|access)[-_]?key|credential)[\w.-]*"
            r"[\"']?\s*[=:]\s*)[\"']?[^\s\"',;]+"
        ),
        r"\1REDACTED",
    ),
    (re.compile(r"(\w+://)[^\s/@\"']+@"), r"\1REDACTED@"),
)


def redacted(text: str) -> str:
    """Returns the text without what looks like a credential."""
    for pattern, instead in _CREDENTIALS:
        text = pattern.sub(instead, text)
    return text


def write(file: Path, client: Client, found: Installation, lines: list[str]) -> None:
    """Writes the archive, which must not exist, for its owner alone. lines: what the doctor said. Raises OSError,
    Unreachable, and leaves no part of a file then."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as made:
        for name, content in _contents(client, found, lines):
            data = redacted(content).encode()
            entry = tarfile.TarInfo(f"lockstep-doctor/{name}")
            entry.size, entry.mtime = len(data), int(found.now)
            made.addfile(entry, io.BytesIO(data))
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        output.write(archive.getvalue())


def _contents(client: Client, found: Installation, lines: list[str]) -> Iterator[tuple[str, str]]:
    yield "doctor.txt", "\n".join(lines) + "\n"
    about = {
        "lockstep": found.own_version,
        "kubernetes": found.api_version,
        "unread": dict(found.unread),
    }
    yield "about.json", _json(about)
    for kind in _FIELDS:
        some = found.own(kind) if kind in _OURS else found.all(kind)
        yield f"{kind.lower()}s.json", _json([_kept(kind, each) for each in some])
    for pod in found.own("Pod")[:MOST_PODS]:
        name = str(meta(pod).get("name"))
        yield f"logs/{name}.txt", _log(client, found.namespace, name)


def _kept(kind: str, obj: Json) -> Json:
    made: Json = {"metadata": {key: meta(obj)[key] for key in _METADATA if key in meta(obj)}}
    for part, names in _FIELDS[kind].items():
        has = obj.get(part) or {}
        made[part] = {name: has[name] for name in names if name in has}
    if kind in _OURS:
        spec = obj.get("spec") or {}
        spec = (spec.get("template") or {}).get("spec") or spec
        made["containers"] = [
            {key: one[key] for key in ("name", "image", "args", "resources") if key in one}
            for one in spec.get("containers") or ()
        ]
    return made


def _log(client: Client, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}/log?tailLines={LOG_LINES}&limitBytes={MOST_LOG}"
    reply = client.request("GET", path, timeout_s=30.0, most_bytes=MOST_LOG)
    if not reply.ok:
        return f"not read: {reply.error().status} {reply.error().message}\n"
    return reply.body.decode(errors="replace")


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
