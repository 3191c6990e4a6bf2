"""Discovery documents: versions, groups and resources, as kubectl requests them. Pure."""

from central.model.json_types import Json
from central.standalone.served_kinds import VERBS, Registry, Resource

VERSION: Json = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0-lockstep",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
# Answered but not stored: group, version, plural, kind.
REVIEWS = (
    ("authentication.k8s.io", "v1", "tokenreviews", "TokenReview"),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
)
_SUBRESOURCE_KINDS = {
    "binding": ("Binding", "", "v1"),
    "eviction": ("Eviction", "policy", "v1"),
    "scale": ("Scale", "autoscaling", "v1"),
    "token": ("TokenRequest", "authentication.k8s.io", "v1"),
}


def document(path: list[str], registry: Registry) -> Json | None:
    """The document at this path, split at slashes; None: not a discovery document."""
    match path:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", "v1"]:
            return _resources("", "v1", registry)
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(group, registry) for group in _groups(registry)],
            }
        case ["apis", group] if group in _groups(registry):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, registry)}
        case ["apis", group, version] if version in _groups(registry).get(group, ()):
            return _resources(group, version, registry)
        case _:
            return None


def _groups(registry: Registry) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    served = [(r.group, r.version) for r in registry if r.group]
    for group, version in [*served, *((review[0], review[1]) for review in REVIEWS)]:
        versions = groups.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return groups


def _group(name: str, registry: Registry) -> Json:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in _groups(registry)[name]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(group: str, version: str, registry: Registry) -> Json:
    listed: list[Json] = []
    for resource in registry:
        if (resource.group, resource.version) == (group, version):
            listed += _entries(resource)
    for of_group, of_version, plural, kind in REVIEWS:
        if (of_group, of_version) == (group, version):
            entry = {"name": plural, "singularName": "", "namespaced": False, "kind": kind}
            listed.append({**entry, "verbs": ["create"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def _entries(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    entries = [entry]
    for name in resource.subresources:
        kind, group, version = _SUBRESOURCE_KINDS.get(name, (resource.kind, "", ""))
        one: Json = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": ["get", "patch", "update"] if name in ("status", "scale") else ["create"],
        }
        entries.append({**one, "group": group, "version": version} if version else one)
    return entries
