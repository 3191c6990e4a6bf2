"""The pods that name a device claim, and those of them whose queues are charged for its devices.

A claim is charged once: to one of its pods with a node. While none has a node, it is charged to one pod of each gang,
because each gang must have room for it in its queue.

Design: docs/design/device-claims.md
"""

Gang = tuple[str, str, bool] | None  # PodSeen.gang_key
_WITH_NODES = ("", "", True)  # in place of a gang: all pods with nodes


class ClaimUsers:
    def __init__(self) -> None:
        self.pods: dict[str, Gang] = {}  # by uid; those that have not ended
        self._with_nodes: set[str] = set()
        self._charged: dict[Gang, str] = {}  # the least uid of each gang, or of the pods with nodes

    def add(self, uid: str, gang: Gang) -> set[str]:
        """Returns the uids of the pods whose charge changed, as the methods below do."""
        before = self._charged.get(gang)
        self.pods[uid] = gang
        if self._with_nodes or (before is not None and before < uid):
            return set()
        self._charged[gang] = uid
        return {uid} if before is None else {uid, before}

    def remove(self, uid: str) -> set[str]:
        gang = self.pods.pop(uid)
        self._with_nodes.discard(uid)
        return self._charge_again() if self.is_charged(uid, gang) else set()

    def set_gang(self, uid: str, gang: Gang) -> set[str]:
        """The pod is in another gang now."""
        self.pods[uid] = gang
        return {uid, *self._charge_again()}

    def set_node(self, uid: str, has_node: bool) -> set[str]:
        """Says whether the pod, which may be unknown here, has a node."""
        if uid not in self.pods or (uid in self._with_nodes) == has_node:
            return set()
        (self._with_nodes.add if has_node else self._with_nodes.discard)(uid)
        return self._charge_again()

    def is_over(self, uid: str, most: int) -> bool:
        """Returns whether so many others use the claim, or are to use it before the pod, which has no node."""
        if len(self.pods) <= most:
            return False
        others = sorted(self.pods.keys() - self._with_nodes)
        return uid in others[max(most - len(self._with_nodes), 0) :]

    def is_charged(self, uid: str, gang: Gang) -> bool:
        return uid in (self._charged.get(gang), self._charged.get(_WITH_NODES))

    def _charge_again(self) -> set[str]:
        before = self._charged
        if self._with_nodes:
            self._charged = {_WITH_NODES: min(self._with_nodes)}
        else:
            self._charged = {}
            for uid, gang in self.pods.items():
                self._charged[gang] = min(uid, self._charged.get(gang, uid))
        return {*before.values()} ^ {*self._charged.values()}
