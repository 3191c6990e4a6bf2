"""Which objects a scenario may hold. Those that the centre watches are read as it reads them; some
others only matter to the simulated world; the rest are noted and left alone."""

from central.kube import resource_paths

GroupKind = tuple[str, str]  # API group and kind

POD, NODE, NAMESPACE = ("", "Pod"), ("", "Node"), ("", "Namespace")
POD_GROUP = ("scheduling.volcano.sh", "PodGroup")
JOB, CRON_JOB = ("batch.volcano.sh", "Job"), ("batch.volcano.sh", "CronJob")
PRIORITY, BUDGET = ("scheduling.k8s.io", "PriorityClass"), ("policy", "PodDisruptionBudget")

DEPLOYMENT, REPLICA_SET = ("apps", "Deployment"), ("apps", "ReplicaSet")
# Their pods are made here.
CONTROLLERS = {REPLICA_SET, ("apps", "StatefulSet"), ("batch", "Job")}
# Their pods are not, but may be in the input.
_OTHER_CONTROLLERS = {("apps", "DaemonSet"), ("batch", "CronJob")}
# Nothing that placement would ask about.
OF_NO_MATTER = {("", "Service"), ("", "ServiceAccount"), ("", "ConfigMap"), ("", "Secret")}
_QUOTAS = {("", "ResourceQuota"), ("", "LimitRange")}


def known(kind: GroupKind) -> bool:
    others = _OTHER_CONTROLLERS | OF_NO_MATTER | _QUOTAS
    return kind in resource_paths.BY_GROUP_KIND or kind == DEPLOYMENT or kind in others


def namespaced(kind: GroupKind) -> bool:
    place = resource_paths.BY_GROUP_KIND.get(kind)
    return place is None or place.namespaced


def unread(kind: GroupKind) -> str:
    """Why it counts for nothing."""
    return "its controller is not simulated" if kind in _OTHER_CONTROLLERS else "not looked at"


def group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]
