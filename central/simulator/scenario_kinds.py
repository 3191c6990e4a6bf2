"""The kinds of objects that a scenario may contain: those that the scheduler watches, those that only the
simulated world needs, and those that are ignored, some of them with a warning."""

from central.kube import resource_paths
from central.kube.decode import elastic_parts
from central.kube.decode.gang_rules import WELL_KNOWN

GroupKind = tuple[str, str]  # API group and kind

POD, NODE, NAMESPACE = ("", "Pod"), ("", "Node"), ("", "Namespace")
POD_GROUP = ("scheduling.volcano.sh", "PodGroup")
NATIVE_POD_GROUP = ("scheduling.k8s.io", "PodGroup")
CLAIM_TEMPLATE = ("resource.k8s.io", "ResourceClaimTemplate")
JOB, CRON_JOB = ("batch.volcano.sh", "Job"), ("batch.volcano.sh", "CronJob")
PRIORITY, BUDGET = ("scheduling.k8s.io", "PriorityClass"), ("policy", "PodDisruptionBudget")

DEPLOYMENT, REPLICA_SET = ("apps", "Deployment"), ("apps", "ReplicaSet")
# Controllers that are simulated.
CONTROLLERS = {REPLICA_SET, ("apps", "StatefulSet"), ("batch", "Job")}
# Controllers that are not; their pods may be in the input.
_OTHER_CONTROLLERS = {("apps", "DaemonSet"), ("batch", "CronJob")}
# Irrelevant to placement.
OF_NO_MATTER = {("", "Service"), ("", "ServiceAccount"), ("", "ConfigMap"), ("", "Secret")}
_QUOTAS = {("", "ResourceQuota"), ("", "LimitRange")}


# Of gangs whose size the live scheduler decides, and whose controllers are not simulated.
RIGID = {
    (path.group, kind)
    for kind, path in resource_paths.SIZED.items()
    if kind in elastic_parts.READERS
}
_GANGS_OBJECTS = {(rule.resource.group, rule.resource.kind) for rule in WELL_KNOWN}


def known(kind: GroupKind) -> bool:
    others = _OTHER_CONTROLLERS | OF_NO_MATTER | _QUOTAS | _GANGS_OBJECTS
    return (
        kind in resource_paths.BY_GROUP_KIND
        or kind in (DEPLOYMENT, CLAIM_TEMPLATE)
        or kind in others
    )


def namespaced(kind: GroupKind) -> bool:
    place = resource_paths.BY_GROUP_KIND.get(kind)
    return place is None or place.namespaced


def unread(kind: GroupKind) -> str:
    """Returns why the kind is ignored."""
    return "the controller is not simulated" if kind in _OTHER_CONTROLLERS else "not simulated"


def group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]
