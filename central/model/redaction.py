"""Sentences without the names of other namespaces, for readers who may not see those. Pure.

Sentences name a gang of another namespace NAMESPACE/NAME, with its kind before it: "reserved for job team-b/train"
becomes "reserved for another namespace"."""

import re
from collections.abc import Callable, Collection

ANOTHER = "another namespace"

# Kubernetes' names are bounded, and so is each repetition.
_QUALIFIED = re.compile(
    r"(?<![\w./-])"
    r"(?:(?:[A-Za-z]{0,30}(?:[Jj]ob|[Ss]et)|[Dd]eployment|PodGroup|pod|gang|PodDisruptionBudgets?) )?"
    r"(?P<namespace>[a-z0-9][-a-z0-9]{0,62})/[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
    r"(?![\w/])"
)
_REPEATED = re.compile(rf"{ANOTHER}(?:(?:,| and) {ANOTHER})+")


def redacted(text: str, namespaces: Collection[str], sees: Callable[[str], bool]) -> str:
    """namespaces: those that exist; anything else with a slash, such as a resource's name, stays. sees: whether
    the reader may see a namespace."""

    def shown(found: re.Match[str]) -> str:
        namespace = found["namespace"]
        return ANOTHER if namespace in namespaces and not sees(namespace) else found[0]

    return _REPEATED.sub(ANOTHER, _QUALIFIED.sub(shown, text))
