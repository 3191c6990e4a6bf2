"""Detects Volcano on the cluster. Its scheduler would bind the same pods, and its Job controller would act on the
same Jobs.

A label alone proves nothing, since every tenant can write it: a pod counts if its ServiceAccount may delete
pods in all namespaces, as Volcano's scheduler and controllers may.

Design: docs/design/installation.md"""

from collections.abc import Iterator
from itertools import islice
from urllib.parse import urlencode

from central.kube.transport.access_review import AccessReviewer, AccessUnknown
from central.kube.transport.http_client import Client, StatusError
from central.kube.transport.list_pages import pages
from central.model.identity import Identity
from central.model.json_types import Json

# The label `app` of the pods that Volcano's chart and manifests install.
LABELS = ("volcano-scheduler", "volcano-controller")
PAGE, MOST = 100, 500  # pods per request, and at most


def running_volcano(client: Client, reviewer: AccessReviewer) -> tuple[str, ...]:
    """Pods of Volcano's scheduler and controllers that run, as NAMESPACE/NAME; at most one of each
    ServiceAccount. Empty also where the API server refuses to say. Raises Unreachable."""
    found: dict[tuple[str, str], str] = {}
    try:
        for pod in _labelled(client):
            meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
            namespace = str(meta.get("namespace") or "")
            account = (namespace, str(spec.get("serviceAccountName") or "default"))
            if account not in found and _deletes_pods_everywhere(reviewer, *account):
                found[account] = f"{namespace}/{meta.get('name')}"
    except (StatusError, AccessUnknown):
        return ()
    return tuple(found.values())


def _labelled(client: Client) -> Iterator[Json]:
    """Pods with a label of Volcano that have not ended."""
    query = urlencode({"labelSelector": f"app in ({','.join(LABELS)})"})
    for page in islice(pages(client, f"/api/v1/pods?{query}", PAGE), MOST // PAGE):
        for pod in page.get("items") or ():
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                yield pod


def _deletes_pods_everywhere(reviewer: AccessReviewer, namespace: str, name: str) -> bool:
    user = f"system:serviceaccount:{namespace}:{name}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return reviewer.may(Identity(user, groups=groups), "delete", "pods")
