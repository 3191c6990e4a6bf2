"""What a plugin has made beside the pods."""

from dataclasses import dataclass

from central.model.jobspec import JobSpec, owner
from central.model.json_types import Json


@dataclass(frozen=True, slots=True)
class PluginObject:
    kind: str  # a name of central.kube.things
    name: str
    body: Json
    follows: bool = False  # its body follows the job's size: written again when that changes
    keys: bool = False  # a fresh pair of SSH keys belongs into it (central.model.decisions.Create)


def owned_object(
    job: JobSpec, kind: str, name: str, *, follows: bool = False, keys: bool = False, **body: object
) -> PluginObject:
    """Owned by the job: it goes when the job goes."""
    meta = {"name": name, "namespace": job.namespace, "ownerReferences": [owner(job)]}
    return PluginObject(kind, name, {"metadata": meta, **body}, follows, keys)
