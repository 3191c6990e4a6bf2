"""The network tree of the cluster. HyperNode objects define it if any exist, node labels otherwise."""

from collections.abc import Iterable

from central.model.facts import HyperNodeGone, HyperNodeSeen
from central.scheduler.inventory import hypernode_tree
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import NODE


class NetworkTree:
    def __init__(self, label_levels: tuple[str, ...]) -> None:
        self.hypernodes: dict[str, HyperNodeSeen] = {}
        self.built = hypernode_tree.HyperNodeTree()  # the tree of the last rebuild
        self.stale = False
        self._label_levels = label_levels

    def apply(self, fact: HyperNodeSeen | HyperNodeGone) -> None:
        if isinstance(fact, HyperNodeSeen):
            self.stale |= self.hypernodes.get(fact.name) != fact
            self.hypernodes[fact.name] = fact
        else:
            self.stale |= self.hypernodes.pop(fact.name, None) is not None

    def node_changed(self) -> None:
        """A node came, went or has other labels. HyperNodes select nodes by name and label."""
        self.stale |= bool(self.hypernodes)

    def rebuild(self, nodes: Iterable[ClusterNode], snapshot: Snapshot) -> bool:
        """Builds the tree if it is stale. Returns whether it was."""
        if not self.stale:
            return False
        self.stale = False
        seen = [node.seen for node in nodes if node.seen is not None]
        self.built = hypernode_tree.build(self.hypernodes, seen)
        if self.hypernodes:
            domains = self.built.domains
            snapshot.relevel(self.built.levels, lambda node: domains.get(node.name, {}))
        else:
            snapshot.relevel(self._label_levels, lambda node: node.levels())
        return True

    def level_named(self, name: str, levels: tuple[str, ...]) -> str:
        """The level that a constraint names, itself or by the tierName of a HyperNode; else the name."""
        tier = self.built.tiers.get(name)
        return name if name in levels or tier is None else self.level_of_tier(tier, levels)

    def level_of_tier(self, tier: int, levels: tuple[str, ...]) -> str:
        """The level of a tier; tiers count from the narrowest, 0 is a node. Empty for a tier above the widest
        level, which limits nothing."""
        if tier == 0:
            return NODE
        if self.hypernodes:
            if tier > max(hypernode.tier for hypernode in self.hypernodes.values()):
                return ""
            return hypernode_tree.widest_within(levels, tier) or NODE
        return levels[-tier] if tier <= len(levels) else ""
