"""Where each kind of object is in the API: the one table for who reads, writes or simulates them."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Place:
    group: str  # "": the core's
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As an object says it: v1, batch.volcano.sh/v1alpha1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As kubectl says it: pods, jobs.batch.volcano.sh."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def word(self) -> str:
        """In sentences: job."""
        return self.kind.lower()

    def path(self, namespace: str = "", name: str = "") -> str:
        """namespace "": in all of them."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        space = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{root}{space}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


_VOLCANO = (
    Place("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    Place("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False),
    Place("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", namespaced=False),
    Place("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    Place("batch.volcano.sh", "v1alpha1", "CronJob", "cronjobs"),
    Place("bus.volcano.sh", "v1alpha1", "Command", "commands"),
    Place("flow.volcano.sh", "v1alpha1", "JobFlow", "jobflows"),
    Place("flow.volcano.sh", "v1alpha1", "JobTemplate", "jobtemplates"),
)
_KUBERNETES = (
    Place("", "v1", "Namespace", "namespaces", namespaced=False),
    Place("", "v1", "Node", "nodes", namespaced=False),
    Place("", "v1", "Pod", "pods"),
    Place("", "v1", "Service", "services"),
    Place("", "v1", "ConfigMap", "configmaps"),
    Place("", "v1", "Secret", "secrets"),
    Place("", "v1", "Event", "events"),
    Place("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Place("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Place("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False),
    Place("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False),
    Place("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
    Place("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    Place("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
    Place("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Place("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
)
_CONTROLLERS = (
    Place("apps", "v1", "ReplicaSet", "replicasets"),
    Place("apps", "v1", "StatefulSet", "statefulsets"),
    Place("batch", "v1", "Job", "jobs"),
)

# In the words of the core, where a Job is one of batch.volcano.sh.
NAMED = {place.kind: place for place in (*_VOLCANO, *_KUBERNETES)}
# By what objects say of themselves: API group and kind.
OF = {(place.group, place.kind): place for place in (*_VOLCANO, *_KUBERNETES, *_CONTROLLERS)}
