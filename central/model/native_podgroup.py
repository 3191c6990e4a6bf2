"""Names of the gangs of Kubernetes' own PodGroups, those of scheduling.k8s.io.

A namespace may have a PodGroup of scheduling.volcano.sh with the same name. So these gangs carry their kind, as
those of controllers do (deployment/web): podgroup/train."""

_PREFIX = "podgroup/"


def condition_type(version: str) -> str:
    """Name the condition that says whether the minimum was placed once.

    version: of scheduling.k8s.io. v1alpha2 is Kubernetes 1.36's; all later ones renamed the condition.
    """
    return "PodGroupScheduled" if version == "v1alpha2" else "PodGroupInitiallyScheduled"


def gang_name(podgroup: str) -> str:
    return f"{_PREFIX}{podgroup}"


def is_native(gang: str) -> bool:
    return gang.startswith(_PREFIX)


def podgroup_name(gang: str) -> str:
    """The name of the gang's PodGroup; for any other gang, its own."""
    return gang.removeprefix(_PREFIX)
