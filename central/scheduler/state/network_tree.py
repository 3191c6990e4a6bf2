"""The network tree of the cluster. HyperNode objects define it if any exist, node labels otherwise."""

from collections.abc import Iterable

from central.model.facts import HyperNodeGone, HyperNodeSeen, NodeSeen
from central.scheduler.inventory import hypernode_tree
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import NODE


class NetworkTree:
    def __init__(self, label_levels: tuple[str, ...]) -> None:
        self.hypernodes: dict[str, HyperNodeSeen] = {}
        self.built = hypernode_tree.HyperNodeTree()
        self._stale = False  # a HyperNode changed
        self._concerned: set[str] = set()  # HyperNodes whose nodes changed
        self._label_levels = label_levels

    def apply(self, fact: HyperNodeSeen | HyperNodeGone) -> None:
        if isinstance(fact, HyperNodeSeen):
            self._stale |= self.hypernodes.get(fact.name) != fact
            self.hypernodes[fact.name] = fact
        elif self.hypernodes.pop(fact.name, None) is not None:
            self._stale = True
            self._concerned.add(fact.name)

    def put_node(self, node: NodeSeen) -> None:
        """A node came or has other labels. Its row in the snapshot follows."""
        if self.hypernodes and not self._stale:
            self._concerned |= self.built.put(node)

    def drop_node(self, name: str) -> None:
        if self.hypernodes and not self._stale:
            self._concerned |= self.built.drop(name)

    def rebuild(self, nodes: Iterable[ClusterNode], snapshot: Snapshot) -> list[str]:
        """Builds the tree again if a HyperNode changed, or another level has nodes. Returns the HyperNodes whose
        status may have changed since the last time."""
        if self._stale:
            seen = [node.seen for node in nodes if node.seen is not None]
            self.built.rebuild(self.hypernodes, seen)
            self._concerned |= self.hypernodes.keys()
        if not self._concerned:
            return []
        levels = self.built.levels if self.hypernodes else self._label_levels
        if self._stale or levels != snapshot.columns.domains.levels:
            snapshot.relevel(levels, self.built.domains_of if self.hypernodes else NodeSeen.levels)
        gone = sorted(self._concerned - self.hypernodes.keys())
        concerned = [*filter(self._concerned.__contains__, self.hypernodes), *gone]
        self._stale, self._concerned = False, set()
        return concerned

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
