"""Claims, volumes, storage classes and CSI objects as facts."""

from typing import Any

from central.kube.decode import fields, pod_affinity, podspec
from central.kube.decode.quantities import parse_quantity
from central.model import limits, volumes
from central.model.json_types import Json
from central.model.pod_rules import NodeTerms, Requirement

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_ZONES = tuple(
    f"{prefix}/{kind}"
    for prefix in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
    for kind in ("zone", "region")
)


def claim_names(pod: str, spec: Json) -> tuple[str, ...]:
    """The names of the pod's claims, with those of its ephemeral volumes."""
    names = []
    for volume in fields.entries(spec, "volumes", "spec", limits.VOLUMES):
        if claim := volume.get("persistentVolumeClaim"):
            names.append(fields.text(claim, "claimName", limits.NAME))
        elif volume.get("ephemeral"):
            names.append(f"{pod}-{fields.text(volume, 'name', limits.NAME)}")
    return tuple(names)


def ephemeral_claims(raw: Json) -> tuple[volumes.ClaimSeen, ...]:
    """The claims of the pod's ephemeral volumes, as their controller creates them."""
    meta = raw["metadata"]
    found = []
    for volume in raw["spec"].get("volumes") or ():
        if own := volume.get("ephemeral"):
            name = f"{meta['name']}-{fields.text(volume, 'name', limits.NAME)}"
            place = {"namespace": meta["namespace"], "name": name, "uid": f"{meta['uid']}-{name}"}
            template = own["volumeClaimTemplate"]
            found.append(decode_claim({"metadata": place, "spec": template["spec"]}))
    return tuple(found)


def decode_claim(raw: Json) -> volumes.ClaimSeen:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = meta.get("annotations") or {}
    namespace, name, uid = fields.identity(meta)
    volume = fields.text(spec, "volumeName", limits.NAME)
    return volumes.ClaimSeen(
        namespace,
        name,
        volume,
        bound=bool(volume) and BIND_COMPLETED in annotations,
        lost=status.get("phase") == "Lost",
        deleting="deletionTimestamp" in meta,
        storage_class=_class(annotations, spec),
        selected_node=fields.text(annotations, SELECTED_NODE, limits.NAME),
        one_pod="ReadWriteOncePod" in (spec.get("accessModes") or ()),
        size=_bytes(((spec.get("resources") or {}).get("requests") or {}).get("storage")),
        uid=uid,
        modes=_modes(spec),
        block=spec.get("volumeMode") == "Block",
        selector=pod_affinity.label_expressions(spec.get("selector") or {}, "spec.selector"),
    )


def _modes(spec: Json) -> tuple[str, ...]:
    return tuple(sorted(fields.strings(spec, "accessModes", "spec", limits.OWNERS)))


def _class(annotations: Json, spec: Json) -> str:
    by_annotation = fields.text(annotations, OLD_CLASS, limits.NAME)
    return by_annotation or fields.text(spec, "storageClassName", limits.NAME)


def decode_volume(raw: Json) -> volumes.VolumeSeen:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    _, name, _ = fields.identity(meta, namespaced=False)
    labels = fields.labels(meta, "labels", "metadata", limits.LABELS)
    places: list[NodeTerms] = []
    required = (spec.get("nodeAffinity") or {}).get("required")
    if required is not None:
        places.append(podspec.node_terms(required, "spec.nodeAffinity"))
    if zones := _zones(labels):
        places.append(zones)
    kept = spec.get("claimRef")
    annotations = meta.get("annotations") or {}
    return volumes.VolumeSeen(
        name,
        tuple(places),
        fields.text(spec.get("csi") or {}, "driver", limits.NAME),
        storage_class=_class(annotations, spec),
        size=_bytes((spec.get("capacity") or {}).get("storage")),
        modes=_modes(spec),
        block=spec.get("volumeMode") == "Block",
        labels=tuple(sorted(labels.items())),
        phase=fields.text(raw.get("status") or {}, "phase"),
        claim=(fields.text(kept, "namespace"), fields.text(kept, "name")) if kept else None,
        claim_uid=fields.text(kept or {}, "uid"),
        deleting="deletionTimestamp" in meta,
    )


def _zones(labels: Json) -> NodeTerms:
    """The volume's zone and region; a node without these labels can use every volume."""
    inside = tuple(
        Requirement(key, "In", tuple(labels[key].split("__"))) for key in _ZONES if key in labels
    )
    if not inside:
        return ()
    return inside, tuple(Requirement(key, "DoesNotExist", ()) for key in _ZONES)


def decode_storage_class(raw: Json) -> volumes.StorageClassSeen:
    allowed = tuple(
        tuple(
            Requirement(fields.text(expression, "key"), "In", _values(expression))
            for expression in fields.entries(
                term, "matchLabelExpressions", "allowedTopologies", limits.EXPRESSIONS
            )
        )
        for term in fields.entries(raw, "allowedTopologies", "", limits.TERMS)
    )
    return volumes.StorageClassSeen(
        fields.identity(raw["metadata"], namespaced=False)[1],
        fields.text(raw, "provisioner", limits.NAME),
        raw.get("volumeBindingMode") == "WaitForFirstConsumer",
        allowed,
    )


def decode_capacity(raw: Json) -> volumes.CapacitySeen:
    """maximumVolumeSize takes precedence over capacity; without either there is none. Without
    nodeTopology no node can use it."""
    where = raw.get("nodeTopology")
    namespace, name, _ = fields.identity(raw["metadata"])
    return volumes.CapacitySeen(
        namespace,
        name,
        fields.text(raw, "storageClassName", limits.NAME),
        () if where is None else (_selector(where),),
        _bytes(raw.get("maximumVolumeSize") or raw.get("capacity")),
    )


def _selector(selector: Json) -> tuple[Requirement, ...]:
    by_label = (
        Requirement(key, "In", (value,))
        for key, value in sorted(
            fields.labels(selector, "matchLabels", "nodeTopology", limits.SELECTOR).items()
        )
    )
    chosen = fields.entries(selector, "matchExpressions", "nodeTopology", limits.EXPRESSIONS)
    by_expression = (
        Requirement(fields.text(each, "key"), fields.text(each, "operator"), _values(each))
        for each in chosen
    )
    return (*by_label, *by_expression)


def _values(expression: Json) -> tuple[str, ...]:
    return fields.strings(expression, "values", "", limits.VALUES)


def decode_csi_driver(raw: Json) -> volumes.DriverSeen:
    name = fields.identity(raw["metadata"], namespaced=False)[1]
    return volumes.DriverSeen(name, (raw.get("spec") or {}).get("storageCapacity") is True)


def _bytes(quantity: Any) -> int:
    return parse_quantity("storage", quantity) if quantity is not None else 0


def decode_csi_node(raw: Json) -> volumes.AttachLimits:
    drivers = fields.entries(raw.get("spec") or {}, "drivers", "spec", limits.RESOURCES)
    counts = {
        fields.text(driver, "name", limits.NAME): fields.integer(part, "count", "allocatable", 0)
        for driver in drivers
        if (part := driver.get("allocatable") or {}).get("count") is not None
    }
    name = fields.identity(raw["metadata"], namespaced=False)[1]
    return volumes.AttachLimits(name, tuple(sorted(counts.items())))
