"""Which objects a scenario may hold. Those that the centre watches are read as it reads them; some
others only matter to the simulated world; the rest are noted and left alone."""

from collections.abc import Iterable

from central.kube.kinds import Kind

VOLCANO = "scheduling.volcano.sh"

# By API group and kind: the name in the API's paths. Versions are not told apart.
PLURALS = {
    ("", "Node"): "nodes",
    ("", "Pod"): "pods",
    (VOLCANO, "PodGroup"): "podgroups",
    (VOLCANO, "Queue"): "queues",
    ("batch.volcano.sh", "Job"): "jobs",
    ("batch.volcano.sh", "CronJob"): "cronjobs",
    ("bus.volcano.sh", "Command"): "commands",
    ("flow.volcano.sh", "JobFlow"): "jobflows",
    ("flow.volcano.sh", "JobTemplate"): "jobtemplates",
    ("topology.volcano.sh", "HyperNode"): "hypernodes",
    ("scheduling.k8s.io", "PriorityClass"): "priorityclasses",
    ("policy", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("", "Namespace"): "namespaces",
    ("", "ResourceQuota"): "resourcequotas",
    ("", "LimitRange"): "limitranges",
    ("", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("", "PersistentVolume"): "persistentvolumes",
    ("storage.k8s.io", "StorageClass"): "storageclasses",
    ("storage.k8s.io", "CSINode"): "csinodes",
    ("storage.k8s.io", "CSIDriver"): "csidrivers",
    ("storage.k8s.io", "CSIStorageCapacity"): "csistoragecapacities",
    ("", "Service"): "services",
    ("", "ServiceAccount"): "serviceaccounts",
    ("", "ConfigMap"): "configmaps",
    ("", "Secret"): "secrets",
    ("batch", "Job"): "jobs",
    ("batch", "CronJob"): "cronjobs",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "DaemonSet"): "daemonsets",
}
MAKES_PODS = {
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
}
UNSCOPED = {
    "nodes",
    "queues",
    "hypernodes",
    "priorityclasses",
    "namespaces",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
    "csidrivers",
}
# What the world itself makes use of.
OF_THE_WORLD = {"priorityclasses", "poddisruptionbudgets"}
# Nothing that placement would ask about.
OF_NO_MATTER = {"namespaces", "services", "serviceaccounts", "configmaps", "secrets"}

Name = tuple[str, str]  # API group and kind


def watched(kinds: Iterable[Kind]) -> dict[Name, Kind]:
    """The centre's kinds by what objects call themselves."""
    by_path = {_group_and_plural(kind.path): kind for kind in kinds}
    return {
        name: by_path[name[0], plural]
        for name, plural in PLURALS.items()
        if (name[0], plural) in by_path
    }


def _group_and_plural(path: str) -> tuple[str, str]:
    """/api/v1/pods; /apis/scheduling.volcano.sh/v1beta1/podgroups"""
    parts = path.strip("/").split("/")
    return ("" if parts[0] == "api" else parts[1], parts[-1])


def group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]
