"""Claims, volumes, storage classes and CSI objects as facts."""

from typing import Any

from central.kube.decode import pod_affinity, podspec
from central.kube.decode.quantities import parse_quantity
from central.model.json_types import Json
from central.model.pod_rules import NodeTerms, Requirement
from central.model.volumes import (
    AttachLimits,
    CapacitySeen,
    ClaimSeen,
    DriverSeen,
    StorageClassSeen,
    VolumeSeen,
)

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
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            names.append(claim["claimName"])
        elif volume.get("ephemeral"):
            names.append(f"{pod}-{volume['name']}")
    return tuple(names)


def ephemeral_claims(raw: Json) -> tuple[ClaimSeen, ...]:
    """The claims of the pod's ephemeral volumes, as their controller creates them."""
    meta = raw["metadata"]
    found = []
    for volume in raw["spec"].get("volumes") or ():
        if own := volume.get("ephemeral"):
            name = f"{meta['name']}-{volume['name']}"
            place = {"namespace": meta["namespace"], "name": name, "uid": f"{meta['uid']}-{name}"}
            template = own["volumeClaimTemplate"]
            found.append(decode_claim({"metadata": place, "spec": template["spec"]}))
    return tuple(found)


def decode_claim(raw: Json) -> ClaimSeen:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = meta.get("annotations") or {}
    volume = spec.get("volumeName") or ""
    return ClaimSeen(
        meta["namespace"],
        meta["name"],
        volume,
        bound=bool(volume) and BIND_COMPLETED in annotations,
        lost=status.get("phase") == "Lost",
        deleting="deletionTimestamp" in meta,
        storage_class=annotations.get(OLD_CLASS) or spec.get("storageClassName") or "",
        selected_node=annotations.get(SELECTED_NODE) or "",
        one_pod="ReadWriteOncePod" in (spec.get("accessModes") or ()),
        size=_bytes(((spec.get("resources") or {}).get("requests") or {}).get("storage")),
        uid=meta.get("uid") or "",
        modes=_modes(spec),
        block=spec.get("volumeMode") == "Block",
        selector=pod_affinity.label_expressions(spec.get("selector") or {}, "spec.selector"),
    )


def _modes(spec: Json) -> tuple[str, ...]:
    return tuple(sorted(spec.get("accessModes") or ()))


def decode_volume(raw: Json) -> VolumeSeen:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    places: list[NodeTerms] = []
    required = (spec.get("nodeAffinity") or {}).get("required")
    if required is not None:
        places.append(podspec.node_terms(required))
    if zones := _zones(meta.get("labels") or {}):
        places.append(zones)
    kept = spec.get("claimRef")
    annotations = meta.get("annotations") or {}
    return VolumeSeen(
        meta["name"],
        tuple(places),
        (spec.get("csi") or {}).get("driver") or "",
        storage_class=annotations.get(OLD_CLASS) or spec.get("storageClassName") or "",
        size=_bytes((spec.get("capacity") or {}).get("storage")),
        modes=_modes(spec),
        block=spec.get("volumeMode") == "Block",
        labels=tuple(sorted((meta.get("labels") or {}).items())),
        phase=(raw.get("status") or {}).get("phase") or "",
        claim=(kept.get("namespace") or "", kept.get("name") or "") if kept else None,
        claim_uid=(kept or {}).get("uid") or "",
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


def decode_storage_class(raw: Json) -> StorageClassSeen:
    allowed = tuple(
        tuple(
            Requirement(expression["key"], "In", tuple(expression.get("values") or ()))
            for expression in term.get("matchLabelExpressions") or ()
        )
        for term in raw.get("allowedTopologies") or ()
    )
    return StorageClassSeen(
        raw["metadata"]["name"],
        raw.get("provisioner") or "",
        raw.get("volumeBindingMode") == "WaitForFirstConsumer",
        allowed,
    )


def decode_capacity(raw: Json) -> CapacitySeen:
    """maximumVolumeSize takes precedence over capacity; without either there is none. Without
    nodeTopology no node can use it."""
    meta, where = raw["metadata"], raw.get("nodeTopology")
    return CapacitySeen(
        meta["namespace"],
        meta["name"],
        raw.get("storageClassName") or "",
        () if where is None else (_selector(where),),
        _bytes(raw.get("maximumVolumeSize") or raw.get("capacity")),
    )


def _selector(selector: Json) -> tuple[Requirement, ...]:
    by_label = (
        Requirement(key, "In", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    by_expression = (
        Requirement(each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    )
    return (*by_label, *by_expression)


def decode_csi_driver(raw: Json) -> DriverSeen:
    return DriverSeen(
        raw["metadata"]["name"], (raw.get("spec") or {}).get("storageCapacity") is True
    )


def _bytes(quantity: Any) -> int:
    return parse_quantity("storage", quantity) if quantity is not None else 0


def decode_csi_node(raw: Json) -> AttachLimits:
    drivers = (raw.get("spec") or {}).get("drivers") or ()
    limits = {
        driver["name"]: count
        for driver in drivers
        if (count := (driver.get("allocatable") or {}).get("count")) is not None
    }
    return AttachLimits(raw["metadata"]["name"], tuple(sorted(limits.items())))
