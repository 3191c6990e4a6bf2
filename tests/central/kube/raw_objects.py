"""Short ways to write raw objects as an API server sends them."""

from typing import Any

from central.kube.decode.decoder import Decoder
from central.model.json_types import Json
from protos import names

LEVELS = (names.ZONE, names.BLOCK, names.RACK)


def reader() -> Decoder:
    return Decoder(("lockstep", "volcano"), LEVELS)


def pod(name: str = "w-3", *containers: Json, **spec: Any) -> Json:
    meta = {"name": name, "namespace": "ns", "uid": f"u-{name}"} | spec.pop("metadata", {})
    return {
        "metadata": meta,
        "spec": {
            "schedulerName": "lockstep",
            "containers": list(containers) or [container("main", gpu=2)],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def container(name: str = "main", gpu: int = 0, **more: Any) -> Json:
    requests = {"cpu": "1", "memory": "1Gi"} | ({names.GPU: str(gpu)} if gpu else {})
    return {"name": name, "resources": {"requests": requests}, **more}


def requests(raw: Json) -> dict[str, int]:
    return dict(reader().pod(raw).spec.requests)


def gang(spec: Json, annotations: Json | None = None, status: Json | None = None) -> Json:
    meta = {"name": "g", "namespace": "ns", "uid": "u", "annotations": annotations}
    return {"metadata": meta, "spec": spec, "status": status}
