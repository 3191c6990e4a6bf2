"""Names of the gangs of Kubernetes' own PodGroups, those of scheduling.k8s.io, and of CompositePodGroups.

A namespace may have a PodGroup of scheduling.volcano.sh with the same name. So these gangs carry their kind, as
those of controllers do (deployment/web): podgroup/train."""

# The name of a pod's PodGroup among its labels; no label has such a key.
KEY = "spec/schedulingGroup/podGroupName"
_PREFIX, _COMPOSITE = "podgroup/", "compositepodgroup/"


def condition_type(version: str, gang: str = _PREFIX) -> str:
    """Name the condition that says whether the minimum was placed once.

    version: of scheduling.k8s.io. v1alpha2 is Kubernetes 1.36's; all later ones renamed the condition.
    """
    if is_composite(gang):
        return "CompositePodGroupInitiallyScheduled"
    return "PodGroupScheduled" if version == "v1alpha2" else "PodGroupInitiallyScheduled"


def gang_name(podgroup: str) -> str:
    return f"{_PREFIX}{podgroup}"


def composite_name(composite: str) -> str:
    """The gang of the pods of all PodGroups below a CompositePodGroup."""
    return f"{_COMPOSITE}{composite}"


def is_native(gang: str) -> bool:
    return gang.startswith((_PREFIX, _COMPOSITE))


def is_composite(gang: str) -> bool:
    return gang.startswith(_COMPOSITE)


def podgroup_name(gang: str) -> str:
    """The name of the gang's PodGroup or CompositePodGroup; for any other gang, its own."""
    return gang.removeprefix(_PREFIX).removeprefix(_COMPOSITE)
