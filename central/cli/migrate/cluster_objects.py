"""Objects that `migrate check` reads: lists of bounded length. Nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass

from central.cli import object_pages
from central.kube.resource_paths import BY_KIND, ResourcePath
from central.kube.transport.http_client import Client, StatusError
from central.model.json_types import Json

MOST = 10_000  # objects of one kind
KINDS: Mapping[str, tuple[ResourcePath, ...]] = {  # the newest version that is served counts
    "Deployment": (ResourcePath("apps", "v1", "Deployment", "deployments"),),
    "DaemonSet": (ResourcePath("apps", "v1", "DaemonSet", "daemonsets"),),
    "Pod": (BY_KIND["Pod"],),
    "Node": (BY_KIND["Node"],),
    "BatchJob": (ResourcePath("batch", "v1", "Job", "jobs"),),
    "Job": (BY_KIND["Job"],),
    "Queue": (BY_KIND["Queue"],),
    "ClusterQueue": tuple(
        ResourcePath("kueue.x-k8s.io", version, "ClusterQueue", "clusterqueues", namespaced=False)
        for version in ("v1beta2", "v1beta1")
    ),
    "LocalQueue": tuple(
        ResourcePath("kueue.x-k8s.io", version, "LocalQueue", "localqueues")
        for version in ("v1beta2", "v1beta1")
    ),
    **{
        kind: (
            ResourcePath(
                "admissionregistration.k8s.io", "v1", kind, f"{kind.lower()}s", namespaced=False
            ),
        )
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
    },
}


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    lists: Mapping[str, list[Json]]
    unread: tuple[str, ...]  # sentences about what could not be read, or not to its end

    def of(self, kind: str) -> list[Json]:
        return self.lists.get(kind, [])


def read_cluster(client: Client) -> ClusterObjects:
    """Raises Unreachable."""
    lists: dict[str, list[Json]] = {}
    unread: list[str] = []
    for kind, versions in KINDS.items():
        for path in versions:
            try:
                lists[kind], complete = object_pages.listed(client, path, MOST)
            except StatusError as error:
                if error.status != 404:  # 404: the cluster does not serve it
                    unread.append(f"{path.full_name} could not be read: {error.message}")
                    break
                continue
            if not complete:
                unread.append(f"only the first {MOST:,} {path.full_name} were read")
            break
    return ClusterObjects(lists, tuple(unread))
