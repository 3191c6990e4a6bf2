"""A Job of equal pods with one GPU each, as a manifest for a simulation."""

from typing import Any

Json = dict[str, Any]


def manifest(name: str, notes: dict[str, str], replicas: int, least: int, **spec: object) -> Json:
    requests = {"nvidia.com/gpu": "1", "cpu": "1"}
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "train", "resources": resources}
    task = {"name": "w", "replicas": replicas, "minAvailable": least}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {"schedulerName": "lockstep", **spec, "tasks": [{**task, "template": template}]},
    }
