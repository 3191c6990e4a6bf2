"""The version of Kubernetes whose meaning objects have, where versions differ.

What differs: since 1.27 a topology spread constraint whose selector is empty counts no pod, before it counted
every pod of the namespace (kube-scheduler, pkg/scheduler/framework/plugins/podtopologyspread/common.go).
"""

import re
from typing import NamedTuple

from central.model.json_types import Json

_TYPED = re.compile(r"v?(\d{1,3})\.(\d{1,3})([.+-][-+.0-9A-Za-z]*)?", re.ASCII)
_MINOR = re.compile(r"(\d{1,3})\+?", re.ASCII)


class UnknownVersion(ValueError):
    """Not a version of Kubernetes, in one sentence."""


class KubernetesVersion(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def empty_spread_counts_all(self) -> bool:
        return self < (1, 27)


NEWEST = KubernetesVersion(1, 36)  # of those that the tests run


def typed_version(text: str) -> KubernetesVersion:
    """From "1.36", "v1.27.3" or "v1.33.5-gke.100". Raises UnknownVersion."""
    match = _TYPED.fullmatch(text)
    if match is None:
        raise UnknownVersion(f'"{text[:40]}" is not a version of Kubernetes, such as {NEWEST}')
    return KubernetesVersion(int(match[1]), int(match[2]))


def served_version(document: Json) -> KubernetesVersion:
    """From the document /version, whose minor may be "27+". Raises UnknownVersion."""
    major, minor = document.get("major"), document.get("minor")
    match = _MINOR.fullmatch(minor) if isinstance(minor, str) else None
    if match is None or not isinstance(major, str):
        raise UnknownVersion(f"/version says major {major!r:.40} and minor {minor!r:.40}")
    return typed_version(f"{major}.{match[1]}")
