"""The kinds that the in-memory API serves: a table of built-in ones, and a registry for CustomResourceDefinitions.
The shipped definitions are served from the start."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from central.kube.resource_paths import ResourcePath
from central.model.json_types import Json
from central.standalone.api_errors import invalid

ResourceKey = tuple[str, str]  # group, plural
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of kubectl get, as in additionalPrinterColumns."""

    name: str
    type: str
    path: str  # .spec.minMember
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Resource(ResourcePath):
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ("status",)
    columns: tuple[PrinterColumn, ...] = ()
    schema: Mapping[str, Any] | None = None
    scale: Mapping[str, str] = field(default_factory=dict)  # paths of its fields in the object
    custom: bool = False  # defined by a CustomResourceDefinition
    fields: tuple[str, ...] = ()  # allowed in field selectors besides name and namespace

    @property
    def key(self) -> ResourceKey:
        return (self.group, self.plural)


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *(
        f"involvedObject.{name}"
        for name in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
AGE = PrinterColumn("Age", "date", ".metadata.creationTimestamp")
_PHASE = PrinterColumn("Status", "string", ".status.phase")
_NAMESPACE: dict[str, Any] = {"columns": (_PHASE, AGE), "fields": ("status.phase",)}
POD_SUBRESOURCES = ("status", "binding", "eviction", "log", "resize")


def _counts(*names: str) -> tuple[PrinterColumn, ...]:
    """Returns columns for fields of the status, and the age."""
    columns = [
        PrinterColumn(name, "integer", f".status.{name[0].lower()}{name[1:].replace(' ', '')}")
        for name in names
    ]
    return (*columns, AGE)


_SCALED: dict[str, Any] = {
    "subresources": ("status", "scale"),
    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    "columns": (
        PrinterColumn("Desired", "integer", ".spec.replicas"),
        *_counts("Replicas", "Ready Replicas"),
    ),
}
BUILT_IN = (
    Resource("", "v1", "Pod", "pods", True, ("po",), POD_SUBRESOURCES, fields=_POD_FIELDS),
    Resource("", "v1", "Node", "nodes", False, ("no",), fields=("spec.unschedulable",)),
    Resource("", "v1", "Namespace", "namespaces", False, ("ns",), **_NAMESPACE),
    Resource("", "v1", "Event", "events", True, ("ev",), (), fields=_EVENT_FIELDS),
    Resource("", "v1", "ConfigMap", "configmaps", True, ("cm",), ()),
    Resource("", "v1", "Secret", "secrets", True, (), (), fields=("type",)),
    Resource("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",), ("token",)),
    Resource("", "v1", "Service", "services", True, ("svc",)),
    Resource("", "v1", "Endpoints", "endpoints", True, ("ep",), ()),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",)),
    Resource("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",)),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, ("netpol",), ()),
    Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, ("sc",), ()),
    Resource("storage.k8s.io", "v1", "CSINode", "csinodes", False, (), ()),
    Resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, (), ()),
    Resource("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", True, (), ()),
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",), ()),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",)),
    Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, (), ()),
    Resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, (), ()),
    Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", True, (), ()),
    Resource(
        "batch",
        "v1",
        "Job",
        "jobs",
        columns=_counts("Active", "Succeeded", "Failed"),
        fields=("status.successful",),
    ),
    Resource("apps", "v1", "Deployment", "deployments", short=("deploy",), **_SCALED),
    Resource("apps", "v1", "ReplicaSet", "replicasets", short=("rs",), **_SCALED),
    Resource("apps", "v1", "StatefulSet", "statefulsets", short=("sts",), **_SCALED),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        ("crd", "crds"),
    ),
)


class Registry:
    """The currently served resources."""

    def __init__(self, definitions: Iterable[Json] = ()) -> None:
        self._always = (*BUILT_IN, *map(defined, definitions))
        self._served = {(r.group, r.version, r.plural): r for r in self._always}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def by_key(self, key: ResourceKey) -> Resource:
        return next(r for r in self._served.values() if r.key == key)

    def define(self, definition: Json) -> Resource:
        """Serves a definition's stored version; replaces a resource of the same name."""
        resource = defined(definition)
        self.forget(definition, restore=False)
        self._served[(resource.group, resource.version, resource.plural)] = resource
        return resource

    def forget(self, definition: Json, *, restore: bool = True) -> None:
        spec = definition["spec"]
        key = (spec["group"], spec["names"]["plural"])
        self._served = {at: r for at, r in self._served.items() if r.key != key}
        if restore:
            self._served |= {
                (r.group, r.version, r.plural): r for r in self._always if r.key == key
            }


def defined(definition: Json) -> Resource:
    """The resource that a CustomResourceDefinition describes (its stored version only)."""
    name = definition.get("metadata", {}).get("name", "")
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    versions = [v for v in spec.get("versions") or [] if v.get("storage") and v.get("served", True)]
    wrong = [
        (field, "Required value")
        for field, value in (
            ("spec.group", spec.get("group")),
            ("spec.names.plural", names.get("plural")),
            ("spec.names.kind", names.get("kind")),
            ("spec.scope", spec.get("scope")),
            ("spec.versions", versions),
        )
        if not value
    ]
    if not wrong and name != f"{names['plural']}.{spec['group']}":
        wrong = [("metadata.name", "must be spec.names.plural + '.' + spec.group")]
    if wrong:
        raise invalid("CustomResourceDefinition", "apiextensions.k8s.io", name, wrong)
    version = versions[0]
    columns = tuple(
        PrinterColumn(c["name"], c.get("type", "string"), c["jsonPath"], c.get("priority", 0) > 0)
        for c in version.get("additionalPrinterColumns") or []
    )
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short=tuple(names.get("shortNames") or ()),
        subresources=tuple(version.get("subresources") or ()),
        scale=(version.get("subresources") or {}).get("scale") or {},
        columns=columns,
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        custom=True,
    )


FOLDER = Path(__file__).parent / "crds"  # a link to the definitions in daemonset
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def shipped() -> tuple[Json, ...]:
    texts = [path.read_text() for path in sorted(FOLDER.glob("*.yaml"))]
    return tuple(d for text in texts for d in yaml.load_all(text, _LOADER) if d)


def served_by(definition: Json) -> tuple[str, str, str]:
    """Group, version and plural of the resource that it defines."""
    spec = definition["spec"]
    version = next(one["name"] for one in spec["versions"] if one.get("storage"))
    return spec["group"], version, spec["names"]["plural"]
