"""Names of the gangs of Kubernetes' own PodGroups, those of scheduling.k8s.io.

A namespace may have a PodGroup of scheduling.volcano.sh with the same name. So these gangs carry their kind, as
those of controllers do (deployment/web): podgroup/train."""

from collections.abc import Mapping

# The condition that says whether the minimum was placed once, by version of scheduling.k8s.io, the newest first.
CONDITIONS: Mapping[str, str] = {
    "v1beta1": "PodGroupInitiallyScheduled",
    "v1alpha2": "PodGroupScheduled",
}
_PREFIX = "podgroup/"


def gang_name(podgroup: str) -> str:
    return f"{_PREFIX}{podgroup}"


def is_native(gang: str) -> bool:
    return gang.startswith(_PREFIX)


def podgroup_name(gang: str) -> str:
    """The name of the gang's PodGroup; for any other gang, its own."""
    return gang.removeprefix(_PREFIX)
