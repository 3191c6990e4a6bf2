"""The leader's label: the Service has agents and users reach whichever pod carries it."""

import logging
from urllib.parse import quote

import orjson

from central.kube.transport.http_client import MERGE, Client, StatusError, Unreachable

log = logging.getLogger(__name__)

LABEL = "lockstep.dev/leads"


def set_label(client: Client, namespace: str, pod: str, *, leads: bool) -> bool:
    """Labels our pod, and takes the label off all others; or takes it off ours. Whether it is done."""
    pods = f"/api/v1/namespaces/{quote(namespace)}/pods"
    try:
        if not leads:
            _label(client, f"{pods}/{quote(pod)}", None)
            return True
        found = client.get(f"{pods}?labelSelector={quote(LABEL, safe='')}%3Dtrue")
        marked = [item["metadata"]["name"] for item in found.get("items") or ()]
        for other in marked:
            if other != pod:
                _label(client, f"{pods}/{quote(other)}", None)
        if pod not in marked:
            _label(client, f"{pods}/{quote(pod)}", "true")
    except (Unreachable, StatusError) as error:
        log.warning("pod %s has not the label %s=%s yet: %s", pod, LABEL, leads, error)
        return False
    return True


def _label(client: Client, path: str, value: str | None) -> None:
    patch = orjson.dumps({"metadata": {"labels": {LABEL: value}}})
    reply = client.request("PATCH", path, patch, MERGE, timeout_s=4.0)
    if not reply.ok and reply.status != 404:  # gone: nobody reaches it either
        raise reply.error()
