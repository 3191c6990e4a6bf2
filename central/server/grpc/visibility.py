"""The part of the cluster that a user may see: gangs and pods of namespaces whose pods, PodGroups or Jobs they may
get, and nodes if they may get nodes. The API server's RBAC decides, as for kubectl."""

from collections.abc import Collection
from typing import Protocol

from central.model import redaction
from central.model.identity import Identity

NAMESPACED = ("pods", "podgroups.scheduling.volcano.sh", "jobs.batch.volcano.sh")
NAMESPACES_MOST = 200  # asked about for one question; the pods of others count as invisible


class Access(Protocol):
    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        """Blocks. May raise central.kube.transport.access_review.AccessUnknown."""


class Viewer:
    """One user during one question. Used in one worker thread."""

    def __init__(self, access: Access, identity: Identity, *, has_token: bool = True) -> None:
        """has_token: with which a process of their own may read the cluster."""
        self._access, self._has_token = access, has_token
        self._identity = identity
        self._seen: dict[str, bool] = {}

    def sees_nodes(self) -> bool:
        return self._may("nodes", "")

    def sees_queues(self) -> bool:
        return self._may("queues.scheduling.volcano.sh", "")

    def is_user(self, name: str) -> bool:
        """Returns whether the use of this user is visible: one's own, or everything."""
        return name == self._identity.user or self.sees_everything()

    def sees(self, namespace: str) -> bool:
        """Returns whether the namespace's gangs and pods are visible."""
        known = self._seen.get(namespace)
        if known is None:
            known = self._seen.get("", False) or (
                len(self._seen) < NAMESPACES_MOST
                and any(self._may(resource, namespace) for resource in NAMESPACED)
            )
            self._seen[namespace] = known
        return known

    def sees_everything(self) -> bool:
        if "" not in self._seen:
            self._seen[""] = self._may("pods", "")
        return self._seen[""]

    def redacted(self, text: str, namespaces: Collection[str]) -> str:
        """The sentence without names from namespaces that are not visible."""
        return redaction.redacted(text, namespaces, self.sees)

    def may_simulate(self) -> bool:
        """Returns whether what-if is open to the user. It simulates everything, and reads with the user's own token."""
        return self._has_token and self.sees_nodes() and self.sees_everything()

    def _may(self, resource: str, namespace: str) -> bool:
        return self._access.may(self._identity, "get", resource, namespace)
