"""Claims, volumes and capacities, rich and valid. See examples.py."""

from collections.abc import Callable

from central.model.json_types import Json
from tests.central.poison import generator
from tests.central.poison.generator import WHEN

Example = Callable[[], Json]


def _bound_claim() -> Json:
    raw = generator.claim()
    raw["metadata"]["annotations"] = {
        "pv.kubernetes.io/bind-completed": "yes",
        "volume.kubernetes.io/selected-node": "n0",
        "volume.beta.kubernetes.io/storage-class": "s",
    }
    raw["metadata"]["deletionTimestamp"] = WHEN
    raw["spec"]["volumeMode"] = "Block"
    return raw


def _old_volume() -> Json:
    raw = generator.volume()
    raw["metadata"] |= {
        "annotations": {"volume.beta.kubernetes.io/storage-class": "s"},
        "deletionTimestamp": WHEN,
        "labels": {
            f"{prefix}/{key}": "a__b"
            for prefix in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
            for key in ("zone", "region")
        },
    }
    raw["spec"] |= {"volumeMode": "Block"}
    raw["spec"]["claimRef"] |= {"uid": "u-c"}
    return raw


def _csi_capacity() -> Json:
    raw = generator.KINDS["csistoragecapacities.storage.k8s.io"]()
    return raw | {"maximumVolumeSize": "1Gi"}


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "persistentvolumeclaims": (generator.claim, _bound_claim),
    "persistentvolumes": (generator.volume, _old_volume),
    "csistoragecapacities.storage.k8s.io": (_csi_capacity,),
}
