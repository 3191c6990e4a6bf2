"""The label of the leader's pod. The Service selects it, so that agents and users reach the leader.

Written through the pod's status, as all metadata of pods is: the right to patch pods would reach their images.
"""

import logging
from urllib.parse import quote

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, StatusError, Unreachable

log = logging.getLogger(__name__)

POD = BY_KIND["Pod"]
LABEL = "lockstep.dev/leads"


def set_label(client: Client, namespace: str, pod: str, *, leads: bool) -> bool:
    """Labels the pod and removes the label from all others, or removes it from this pod. Returns
    whether that succeeded."""
    try:
        if not leads:
            _label(client, POD.path(namespace, pod), None)
            return True
        selector = f"labelSelector={quote(LABEL, safe='')}%3Dtrue"
        found = client.get(f"{POD.path(namespace)}?{selector}")
        labelled = [item["metadata"]["name"] for item in found.get("items") or ()]
        for other in labelled:
            if other != pod:
                _label(client, POD.path(namespace, other), None)
        if pod not in labelled:
            _label(client, POD.path(namespace, pod), "true")
    except (Unreachable, StatusError, KeyError, TypeError, AttributeError) as error:
        log.warning("could not set the label %s of pod %s to %s: %s", LABEL, pod, leads, error)
        return False
    return True


def _label(client: Client, path: str, value: str | None) -> None:
    patch = orjson.dumps({"metadata": {"labels": {LABEL: value}}})
    reply = client.request("PATCH", f"{path}/status", patch, MERGE, timeout_s=4.0)
    reply.accepted(404)  # a pod that is gone has no label either
