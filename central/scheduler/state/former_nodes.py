"""The nodes that pods of a controller have left: pods that replace them find images and caches there.

A pod that failed leaves no trace, because its node may be the cause. What is remembered is bounded, and a new leader
begins without it.

Design: docs/design/placement.md
"""

from dataclasses import dataclass, field

from central.model.facts import PodSeen

OWNERS_MOST = 10_000
NODES_MOST = 64  # of one owner, the latest

Owner = tuple[str, str]  # namespace, deployment/web


@dataclass(slots=True)
class FormerNodes:
    by_owner: dict[Owner, dict[str, None]] = field(default_factory=dict)  # nodes, the latest last

    def left(self, owner: Owner, node: str) -> None:
        """Takes note that a pod of the owner ran on the node and leaves it."""
        nodes = self.by_owner.pop(owner, {})
        nodes.pop(node, None)
        nodes[node] = None
        if len(nodes) > NODES_MOST:
            del nodes[next(iter(nodes))]
        self.by_owner[owner] = nodes
        if len(self.by_owner) > OWNERS_MOST:
            del self.by_owner[next(iter(self.by_owner))]

    def nodes(self, owner: Owner) -> tuple[str, ...]:
        """Returns the nodes that its pods have left, the latest last."""
        return tuple(self.by_owner.get(owner, ()))


def was_running(before: PodSeen | None, fact: PodSeen) -> bool:
    """Returns whether the pod ran until its deletion, which the newer fact is the first to show."""
    return (
        before is not None and fact.deleting and not before.deleting and before.phase == "Running"
    )
