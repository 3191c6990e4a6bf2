"""The network tree from HyperNode objects: the nodes of each HyperNode, tier by tier. An invalid HyperNode is
ignored, with its error; the others stay in effect.

Design: docs/design/topology.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import re2

from central.model.facts import HyperNodeSeen, Member, NodeSeen

LEVEL = "tier-"  # level names: tier-2
# Patterns are those of Go's regexp, as in Volcano, and are matched in linear time. An invalid one is a
# sentence on its HyperNode, not a line of the library in the log.
_QUIET = re2.Options()
_QUIET.log_errors = False
_QUIET.max_mem = 1 << 20


@dataclass(frozen=True, slots=True)
class HyperNodeTree:
    """levels: widest first. domains: by node and level, the HyperNode that contains the node."""

    levels: tuple[str, ...] = ()
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)  # by HyperNode
    sizes: Mapping[str, int] = field(default_factory=dict)  # number of nodes by HyperNode
    tiers: Mapping[str, int] = field(default_factory=dict)  # by tier name


def build(hypernodes: Mapping[str, HyperNodeSeen], nodes: Iterable[NodeSeen]) -> HyperNodeTree:
    nodes_of = _Nodes(hypernodes, list(nodes))
    domains: dict[str, dict[str, str]] = {}
    tiers: set[int] = set()
    for name, hypernode in sorted(hypernodes.items()):
        level = level_of(hypernode.tier)
        for node in sorted(nodes_of.of(name)):
            mine = domains.setdefault(node, {})
            if (other := mine.setdefault(level, name)) != name:
                nodes_of.add_error(
                    name, f"node {node} is in HyperNode {other} of tier {hypernode.tier} too"
                )
            else:
                tiers.add(hypernode.tier)
    levels = tuple(level_of(tier) for tier in sorted(tiers, reverse=True))
    sizes = Counter(name for mine in domains.values() for name in mine.values())
    named = _named_tiers(hypernodes.values(), nodes_of.add_error)
    return HyperNodeTree(levels, domains, nodes_of.errors, sizes, named)


def level_of(tier: int) -> str:
    return f"{LEVEL}{tier}"


def _named_tiers(
    hypernodes: Iterable[HyperNodeSeen], add_error: Callable[[str, str], None]
) -> dict[str, int]:
    """The tier of each tier name; the narrowest if HyperNodes of several tiers have the name."""
    tiers: dict[str, int] = {}
    for hypernode in sorted(hypernodes, key=lambda one: (one.tier, one.name)):
        name = hypernode.tier_name
        if name and not hypernode.error and tiers.setdefault(name, hypernode.tier) < hypernode.tier:
            add_error(hypernode.name, f"tierName {name} is the name of tier {tiers[name]} too")
    return tiers


def widest_within(levels: Iterable[str], tier: int) -> str:
    """The name of the widest level of at most this tier; empty if there is none."""
    tiers = [int(level.removeprefix(LEVEL)) for level in levels if level.startswith(LEVEL)]
    within = [known for known in tiers if known <= tier]
    return level_of(max(within)) if within else ""


class _Nodes:
    """The nodes of each HyperNode, cached."""

    def __init__(self, hypernodes: Mapping[str, HyperNodeSeen], nodes: list[NodeSeen]) -> None:
        self.errors: dict[str, str] = {}
        self._all = hypernodes
        self._nodes = {node.name: node for node in nodes}
        self._known: dict[str, frozenset[str]] = {}
        self._path: list[str] = []

    def add_error(self, name: str, why: str) -> None:
        self.errors.setdefault(name, why)

    def of(self, name: str) -> frozenset[str]:
        if name in self._known:
            return self._known[name]
        if name in self._path:
            self.add_error(name, f"it contains itself: {' in '.join([*self._path, name])}")
            return frozenset()
        hypernode = self._all[name]
        if hypernode.error:
            self.add_error(name, hypernode.error)
            return frozenset()
        self._path.append(name)
        found: set[str] = set()
        for member in hypernode.members:
            found |= self._members(hypernode, member)
        self._path.pop()
        self._known[name] = frozenset(found)
        return self._known[name]

    def _members(self, of: HyperNodeSeen, member: Member) -> set[str]:
        nodes = member.kind == "Node"
        there: Iterable[str] = self._nodes if nodes else self._all
        if member.exact:
            there = [member.exact] if member.exact in there else []
            if not there and not nodes:
                self.add_error(of.name, f"member {member.exact} does not exist")
        try:
            picks = _picker(member)
        except re2.error as error:
            why = error.args[0].decode() if isinstance(error.args[0], bytes) else error
            self.add_error(of.name, f"regexMatch {member.pattern}: {why}")
            return set()
        if nodes:
            return {name for name in there if picks(name, self._nodes[name].labels)}
        found: set[str] = set()
        for name in there:
            if not picks(name, {}):
                continue
            other = self._all[name]
            if other.tier >= of.tier:
                self.add_error(
                    of.name, f"member {name} is of tier {other.tier}, not below {of.tier}"
                )
            else:
                found |= self.of(name)
        return found


def _picker(member: Member) -> Callable[[str, Mapping[str, str]], bool]:
    if member.pattern:
        pattern = re2.compile(member.pattern, _QUIET)
        return lambda name, labels: pattern.fullmatch(name) is not None
    if member.labels:
        wanted = member.labels
        return lambda name, labels: all(labels.get(key) == value for key, value in wanted)
    return lambda name, labels: name == member.exact
