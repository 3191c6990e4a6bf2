"""Which objects a scenario may hold. Those that the centre watches are read as it reads them; some
others only matter to the simulated world; the rest are noted and left alone."""

from central.kube import places

Name = tuple[str, str]  # API group and kind

POD, NODE, NAMESPACE = ("", "Pod"), ("", "Node"), ("", "Namespace")
POD_GROUP = ("scheduling.volcano.sh", "PodGroup")
JOB, CRON_JOB = ("batch.volcano.sh", "Job"), ("batch.volcano.sh", "CronJob")
PRIORITY, BUDGET = ("scheduling.k8s.io", "PriorityClass"), ("policy", "PodDisruptionBudget")

MAKES_PODS = {
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
}
# Nothing that placement would ask about.
OF_NO_MATTER = {("", "Service"), ("", "ServiceAccount"), ("", "ConfigMap"), ("", "Secret")}
_NOT_LOOKED_AT = {("", "ResourceQuota"), ("", "LimitRange")}


def known(kind: Name) -> bool:
    return kind in places.OF or kind in MAKES_PODS | OF_NO_MATTER | _NOT_LOOKED_AT


def namespaced(kind: Name) -> bool:
    place = places.OF.get(kind)
    return place is None or place.namespaced


def group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]
