"""The network tree from HyperNode objects: the HyperNodes that contain each node, tier by tier. An invalid HyperNode is
ignored, with its error; the others stay in effect.

A node that comes, goes or has other labels changes what it is in alone. HyperNodes contain HyperNodes by their names,
so nodes change nothing there.

Design: docs/design/topology.md
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import re2

from central.model.facts import HyperNodeSeen, Member, NodeSeen

LEVEL = "tier-"  # level names: tier-2
# Patterns are those of Go's regexp, as in Volcano, and are matched in linear time. An invalid one is a
# sentence on its HyperNode, not a line of the library in the log.
_QUIET = re2.Options()
_QUIET.log_errors = False
_QUIET.max_mem = 1 << 20


class HyperNodeTree:
    def __init__(self) -> None:
        self.domains: dict[str, dict[str, str]] = {}  # by node and level: the HyperNode it is in
        self.sizes: Counter[str] = Counter()  # nodes by HyperNode
        self.tiers: dict[str, int] = {}  # by tier name
        self._counts: Counter[str] = Counter()  # nodes by level
        self._all: Mapping[str, HyperNodeSeen] = {}
        self._wrong: dict[str, str] = {}  # errors by HyperNode, whatever nodes there are
        # by HyperNode: nodes that another one has, and which
        self._twice: dict[str, dict[str, str]] = {}
        self._lost: dict[str, list[str]] = {}  # by node: those HyperNodes
        self._named_twice: dict[str, str] = {}  # errors of tier names
        self._errors: dict[str, str] | None = None
        self._above: dict[str, list[str]] = {}  # by HyperNode, those that contain it
        # HyperNodes by what selects nodes: a name, a pattern, or one of several labels.
        self._by_name: dict[str, list[str]] = {}
        self._by_pattern: dict[str, tuple[re2._Regexp, list[str]]] = {}
        self._by_label: dict[tuple[str, str], list[tuple[Member, str]]] = {}
        self._matches: dict[str, set[str]] = {}  # by node, the patterns that match its name

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels that have nodes, widest first."""
        return tuple(sorted(self._counts, key=_tier_of, reverse=True))

    @property
    def errors(self) -> dict[str, str]:
        """The errors by HyperNode; the same dict as long as they are the same."""
        if self._errors is None:
            names = {*self._wrong, *self._twice, *self._named_twice}
            self._errors = {name: self.error_of(name) for name in names}
        return self._errors

    def domains_of(self, node: NodeSeen) -> Mapping[str, str]:
        """Returns the HyperNode that the node is in at each level."""
        return self.domains.get(node.name, {})

    def error_of(self, name: str) -> str:
        """Returns what is wrong with the HyperNode; "" if nothing is."""
        if name in self._wrong or name not in self._twice:
            return self._wrong.get(name) or self._named_twice.get(name, "")
        node, other = min(self._twice[name].items())
        return f"node {node} is in HyperNode {other} of tier {self._all[name].tier} too"

    def rebuild(self, hypernodes: Mapping[str, HyperNodeSeen], nodes: Collection[NodeSeen]) -> None:
        """Reads all HyperNodes and nodes again. Names are matched only with patterns that are new."""
        self._all, self._errors = dict(hypernodes), None
        tables = (self._wrong, self._twice, self._lost, self._above, self._by_name, self._by_label)
        for table in (*tables, self.domains, self.sizes, self._counts):
            table.clear()
        before, self._by_pattern = self._by_pattern, {}
        for name, hypernode in sorted(hypernodes.items()):
            if hypernode.error:
                self._wrong[name] = hypernode.error
                continue
            for member in hypernode.members:
                self._add(hypernode, member)
        self.tiers, self._named_twice = _named_tiers(hypernodes.values())
        new, there = self._by_pattern.keys() - before.keys(), {node.name for node in nodes}
        self._matches = {name: each for name, each in self._matches.items() if name in there}
        for name, matched in self._matches.items():
            matched.intersection_update(self._by_pattern)
            matched.update(self._matching(new, name))
        for node in nodes:
            self.put(node)

    def put(self, node: NodeSeen) -> set[str]:
        """Adds a node, or replaces it. Returns the HyperNodes whose nodes or errors may be others now."""
        concerned = self._take_out(node.name)
        mine: dict[str, str] = {}
        for name in sorted(self._containing(node)):
            concerned.add(name)
            level = level_of(self._all[name].tier)
            if (other := mine.setdefault(level, name)) != name:
                self._twice.setdefault(name, {})[node.name] = other
                self._lost.setdefault(node.name, []).append(name)
                self._errors = None
        if mine:
            self.domains[node.name] = mine
            self.sizes.update(mine.values())
            self._counts.update(mine.keys())
        return concerned

    def drop(self, name: str) -> set[str]:
        """Removes a node. Returns as put() does."""
        self._matches.pop(name, None)
        return self._take_out(name)

    def _take_out(self, name: str) -> set[str]:
        mine = self.domains.pop(name, {})
        for counts, keys in ((self.sizes, mine.values()), (self._counts, mine.keys())):
            for key in keys:
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
        others = self._lost.pop(name, [])
        for each in others:
            self._errors = None
            del self._twice[each][name]
            if not self._twice[each]:
                del self._twice[each]
        return {*mine.values(), *others}

    def _containing(self, node: NodeSeen) -> set[str]:
        """Returns the HyperNodes that select the node, and those above them."""
        if (matched := self._matches.get(node.name)) is None:
            matched = self._matches[node.name] = self._matching(self._by_pattern, node.name)
        found, next_ones = set[str](), [*self._by_name.get(node.name, ())]
        for pattern in matched:
            next_ones += self._by_pattern[pattern][1]
        for label in node.labels.items() if self._by_label else ():
            for member, name in self._by_label.get(label, ()):
                if all(node.labels.get(key) == value for key, value in member.labels):
                    next_ones.append(name)
        while next_ones:
            name = next_ones.pop()
            if name not in found:
                found.add(name)
                next_ones += self._above.get(name, ())
        return found

    def _matching(self, patterns: Iterable[str], name: str) -> set[str]:
        return {each for each in patterns if self._by_pattern[each][0].fullmatch(name)}

    def _add(self, of: HyperNodeSeen, member: Member) -> None:
        try:
            pattern = re2.compile(member.pattern, _QUIET)
        except re2.error as error:
            why = error.args[0].decode() if isinstance(error.args[0], bytes) else error
            self._wrong.setdefault(of.name, f"regexMatch {member.pattern}: {why}")
            return
        if member.kind == "Node":
            if member.exact:
                self._by_name.setdefault(member.exact, []).append(of.name)
            elif member.pattern:
                self._by_pattern.setdefault(member.pattern, (pattern, []))[1].append(of.name)
            elif member.labels:
                self._by_label.setdefault(member.labels[0], []).append((member, of.name))
            return
        there = [member.exact] if member.exact else []
        if member.pattern:
            there = [name for name in self._all if pattern.fullmatch(name)]
        for name in there:
            if (other := self._all.get(name)) is None:
                self._wrong.setdefault(of.name, f"member {name} does not exist")
            elif other.tier >= of.tier:
                why = f"member {name} is of tier {other.tier}, not below {of.tier}"
                self._wrong.setdefault(of.name, why)
            else:
                self._above.setdefault(name, []).append(of.name)


def level_of(tier: int) -> str:
    return f"{LEVEL}{tier}"


def _tier_of(level: str) -> int:
    return int(level.removeprefix(LEVEL))


def _named_tiers(hypernodes: Iterable[HyperNodeSeen]) -> tuple[dict[str, int], dict[str, str]]:
    """The tier of each tier name, the narrowest if HyperNodes of several tiers have the name; and errors of the
    others."""
    tiers: dict[str, int] = {}
    errors = {}
    for hypernode in sorted(hypernodes, key=lambda one: (one.tier, one.name)):
        name = hypernode.tier_name
        if name and not hypernode.error and tiers.setdefault(name, hypernode.tier) < hypernode.tier:
            errors[hypernode.name] = f"tierName {name} is the name of tier {tiers[name]} too"
    return tiers, errors


def widest_within(levels: Iterable[str], tier: int) -> str:
    """The name of the widest level of at most this tier; empty if there is none."""
    within = [
        known for level in levels if level.startswith(LEVEL) and (known := _tier_of(level)) <= tier
    ]
    return level_of(max(within)) if within else ""
