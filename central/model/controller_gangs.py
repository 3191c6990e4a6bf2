"""Names of gangs that are a controller's pods: kind/name (deployment/web), and kind/name/index for a gang that is one
replica of an object (leaderworkerset/serve/0)."""

from central.model import native_podgroup


def is_controllers(gang: str) -> bool:
    """Returns whether the gang is named after a controller. Names of objects and labels of gangs have no slash."""
    return "/" in gang and not native_podgroup.is_native(gang)


def object_gang(gang: str) -> str:
    """The gang's name without the index of a replica."""
    return "/".join(gang.split("/", 2)[:2])
