"""Sentences without the names of other namespaces, for readers who may not see those. Pure.

Sentences name an object of another namespace as qualified() writes it, NAMESPACE/NAME with its kind before it:
"reserved for job team-b/train" becomes "reserved for another namespace". A name may have a kind in it:
team-b/deployment/web."""

import re
from collections.abc import Callable, Collection

ANOTHER = "another namespace"

# Kubernetes' names are bounded, and so is each repetition.
_KINDS = "[Dd]eployment|PodGroup|pod|gang|claim|queue|PodDisruptionBudgets?"
_KIND = rf"(?:[A-Za-z]{{0,30}}(?:[Jj]ob|[Ss]et|[Cc]luster)|{_KINDS})"
_NAME = r"[A-Za-z0-9](?:[-\w./]{0,600}[A-Za-z0-9])?"
_WHOLE_KIND, _WHOLE_NAME = re.compile(_KIND), re.compile(_NAME, re.ASCII)
_QUALIFIED = re.compile(
    rf"(?<![\w./-])(?:{_KIND} )?(?P<namespace>[a-z0-9][-a-z0-9]{{0,62}})/{_NAME}(?![\w/])", re.ASCII
)
_REPEATED = re.compile(rf"{ANOTHER}(?:(?:,| and) {ANOTHER})+")


def qualified(namespace: str, name: str, kind: str = "") -> str:
    """The object for readers of other namespaces. redacted() finds it whatever its owner calls it: labels, annotations
    and owner references give gangs names and kinds of any text, of which other characters are replaced or left out."""
    if not _WHOLE_NAME.fullmatch(name):
        name = re.sub(r"[^-\w./]", "_", name[:600], flags=re.ASCII).strip("-_./") or "unnamed"
    return f"{kind} {namespace}/{name}" if _WHOLE_KIND.fullmatch(kind) else f"{namespace}/{name}"


def redacted(text: str, namespaces: Collection[str], sees: Callable[[str], bool]) -> str:
    """namespaces: those that exist; anything else with a slash, such as a resource's name, stays. sees: whether
    the reader may see a namespace."""

    def shown(found: re.Match[str]) -> str:
        namespace = found["namespace"]
        return ANOTHER if namespace in namespaces and not sees(namespace) else found[0]

    return _REPEATED.sub(ANOTHER, _QUALIFIED.sub(shown, text))
