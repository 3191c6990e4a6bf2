"""Group, version and path of each kind: the one table for all that reads, writes or simulates objects."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class ResourcePath:
    group: str  # "" is the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The version as in objects: v1, batch.volcano.sh/v1alpha1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name as in kubectl: pods, jobs.batch.volcano.sh."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        """The name for messages: job."""
        return self.kind.lower()

    def body(self, **fields: Any) -> dict[str, Any]:
        """Returns an object of this kind with these fields, as the API server takes it."""
        return {"apiVersion": self.api_version, "kind": self.kind, **fields}

    def path(self, namespace: str = "", name: str = "") -> str:
        """namespace "": all namespaces."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        space = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{root}{space}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


_VOLCANO = (
    ResourcePath("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    ResourcePath("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False),
    ResourcePath("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", namespaced=False),
    ResourcePath("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    ResourcePath("batch.volcano.sh", "v1alpha1", "CronJob", "cronjobs"),
    ResourcePath("bus.volcano.sh", "v1alpha1", "Command", "commands"),
    ResourcePath("flow.volcano.sh", "v1alpha1", "JobFlow", "jobflows"),
    ResourcePath("flow.volcano.sh", "v1alpha1", "JobTemplate", "jobtemplates"),
)
_KUBERNETES = (
    ResourcePath("", "v1", "Namespace", "namespaces", namespaced=False),
    ResourcePath("", "v1", "Node", "nodes", namespaced=False),
    ResourcePath("", "v1", "Pod", "pods"),
    ResourcePath("", "v1", "Service", "services"),
    ResourcePath("", "v1", "ConfigMap", "configmaps"),
    ResourcePath("", "v1", "Secret", "secrets"),
    ResourcePath("", "v1", "Event", "events"),
    ResourcePath("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ResourcePath("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    ResourcePath("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False),
    ResourcePath("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False),
    ResourcePath("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
    ResourcePath("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    ResourcePath("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
    ResourcePath("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ResourcePath("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
    ResourcePath("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False),
    ResourcePath("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", namespaced=False),
    ResourcePath("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
    ResourcePath("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
)
_CONTROLLERS = (
    ResourcePath("apps", "v1", "Deployment", "deployments"),
    ResourcePath("apps", "v1", "ReplicaSet", "replicasets"),
    ResourcePath("apps", "v1", "StatefulSet", "statefulsets"),
    ResourcePath("batch", "v1", "Job", "jobs"),
)

# Of other projects: controllers whose objects make their pods a gang, and whose sizes may be decided.
JOBSET = ResourcePath("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
LEADER_WORKER_SET = ResourcePath(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
RAY_CLUSTER = ResourcePath("ray.io", "v1", "RayCluster", "rayclusters")

# The version of Kubernetes 1.37; the watch finds out which one the API server has.
NATIVE_PODGROUP = ResourcePath("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups")
COMPOSITE_PODGROUP = ResourcePath(
    "scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups"
)

# Job and CronJob are those of batch.volcano.sh, PodGroup is that of scheduling.volcano.sh.
BY_KIND = {path.kind: path for path in (*_VOLCANO, *_KUBERNETES)}
# With the controllers that are only read.
BY_GROUP_KIND = {
    (path.group, path.kind): path
    for path in (*_VOLCANO, *_KUBERNETES, *_CONTROLLERS, NATIVE_PODGROUP, COMPOSITE_PODGROUP)
}
# Kinds whose sizes the scheduler can decide.
SIZED = {path.kind: path for path in (*_CONTROLLERS, JOBSET, LEADER_WORKER_SET, RAY_CLUSTER)}
