"""Counts again what reasons say of subgroups, of layers around them, and of where the rest of a gang runs. Plain loops:
nothing of the scheduler's search."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from central.model.facts import PodSpec
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.simulation import recount
from tests.simulation.reason_counts import StateCounts
from tests.simulation.reason_patterns import NOWHERE, PARTS, WITH_THE_REST

DEVICES = re.compile(r"nvidia\.com/(gpu|mig-)|lockstep\.dev/gpu-share")
WIDTH = (
    "PCIe switch",
    "NUMA node",
    "island",
    "node",
)  # the narrowest first; then come those of the network


def unit_of(part: str | None) -> str:
    """What a sentence is about, by how it begins."""
    return {"one subgroup ": "subgroup", "one group of subgroups ": "group"}.get(part or "", "gang")


def short(level: str) -> str:
    return {"numa": "NUMA node", "pcie-switch": "PCIe switch"}.get(level, level.rpartition("/")[2])


class LayeredCounts:
    def __init__(self, counts: StateCounts) -> None:
        self.counts = counts
        labelled = () if counts.network.hypernodes else counts.scheduler.levels
        tiers = sorted(counts.network.built.levels, key=lambda each: -int(each.rpartition("-")[2]))
        self._labelled = tuple(map(short, labelled or tiers))  # the widest first
        self._width = {each: i for i, each in enumerate((*WIDTH, *reversed(self._labelled)))}

    def required(self, gang: Gang) -> str:
        """The level that all of the gang must be in one domain of; empty: none."""
        tier = gang.object.required_tier if gang.object is not None else None
        return self.level(gang, gang.required, tier)

    def level(self, gang: Gang, named: str, tier: int | None) -> str:
        """The level that a constraint of the gang names by its name or by its tier."""
        level = short(named)
        if level or tier is None:
            devices = any(
                DEVICES.match(name)
                for pod in recount.waiting(gang)
                for name, _ in pod.spec.requests
            )
            return "node" if level in PARTS and not devices else level
        if not tier:
            return "node"
        if not self.counts.network.hypernodes:
            return self._labelled[-tier] if tier <= len(self._labelled) else ""
        if tier > max(each.tier for each in self.counts.network.hypernodes.values()):
            return ""
        within = [each for each in self._labelled if int(each.rpartition("-")[2]) <= tier]
        return within[0] if within else "node"

    # --- where the rest runs ------------------------------------------------------------------

    def check_place(self, gang: Gang, unit: str, level: str, clause: str) -> bool:
        """Fails unless the clause names the domain, or domains, that the unit's members run in. Returns whether
        they are in no single one, after which nothing is counted."""
        nowhere, beside = NOWHERE.match(clause), WITH_THE_REST.match(clause)
        said: tuple[str, ...] = ()
        if found := nowhere or beside:
            assert found["unit"] == unit, f"this is about the {unit}"
            names = found["names"] or found["name"]
            said = tuple(names.partition(" and ")[0].split(", "))
            more = re.search(r" and (\d+) more", names)
            number = int(found["count"] or 1) if nowhere else 1
            assert number == len(said) + int(more[1] if more else 0), "as many as are named"
        expected = [self._places(pods, level) for pods in self._units(gang, unit)]
        outside = bool(nowhere and nowhere["outside"])
        assert any(
            said == names[: len(said)]
            and len(said) == min(len(names), 3)
            and outside == is_outside
            and bool(nowhere) == (outside or len(names) > 1)
            for names, is_outside in expected
        ), f"the rest is in {expected}"
        return nowhere is not None

    def _places(self, pods: Iterable[Pod], level: str) -> tuple[tuple[str, ...], bool]:
        """The domains of the level that pods run in, or, and then True, their nodes that are in none."""
        known = {node.name: node for node in self.counts.nodes}
        nodes = {pod.node for pod in pods if pod.alive and pod.node in known}
        if not level:
            return (), False
        at = self._labelled.index(level) + 1 if level in self._labelled else len(self._labelled)
        narrower = (*self._labelled[at:], *(("node",) if level in self._labelled else ()))
        for each in (
            level,
            *narrower,
        ):  # what is on one node is in one rack, even if it has no label
            places = {name: self.counts.place(known[name], each) for name in nodes}
            if len(found := set(places.values())) == 1 and (place := found.pop()):
                return (place,), False
        places = {name: self.counts.place(known[name], level) for name in nodes}
        outside = sorted(name for name, place in places.items() if place is None)
        if outside:
            return tuple(outside), True
        return tuple(sorted({place for place in places.values() if place})), False

    def _units(self, gang: Gang, unit: str) -> list[list[Pod]]:
        """The running members of the gang, or of each of its subgroups, or of each group of subgroups."""
        there = {
            pod.seen.uid: pod for pod in gang.members.values() if pod.node and not pod.seen.deleting
        }
        if unit == "gang":
            return [list(there.values())]
        found = defaultdict[tuple[object, ...], list[Pod]](list)
        for (policy, *values), pods in recount.subgroups(gang).items():
            keys: list[tuple[object, ...]] = [(policy, *values)]
            if unit == "group":
                (rule,) = [each for each in gang.subgroups if each.name == policy]
                keys = [
                    (policy, depth, *values[: len(layer.keys)])
                    for depth, layer in enumerate(rule.layers)
                ]
            for key in keys:
                found[key] += [pod for pod in pods if pod.seen.uid in there]
        return list(found.values())

    # --- which levels are meant -----------------------------------------------------------------

    def check_levels(self, gang: Gang, unit: str, level: str) -> None:
        """level: that all pods of the unit must be in one domain of."""
        layers = {short(layer.required) for rule in gang.subgroups for layer in rule.layers}
        if unit == "subgroup":
            own = {self.level(gang, rule.required, rule.tier) for rule in gang.subgroups}
            assert level in own, f"a subgroup needs one of {own}"
            return
        wide = self.required(gang)
        assert level in layers | ({wide} if unit == "gang" else set()), f"it needs {wide or layers}"
        if level and wide:
            assert self._width[level] <= self._width[wide], f"it needs one {wide}"

    def check_groups(self, gang: Gang, levels: Sequence[str], size: int) -> None:
        """levels: of the groups, the widest first, and of a subgroup. size: pods of a subgroup that wait."""
        expected = [
            [
                *(short(layer.required) for layer in rule.layers),
                self.level(gang, rule.required, rule.tier),
            ]
            for rule in gang.subgroups
        ]
        assert any(each[-len(levels) :] == levels for each in expected), f"{expected} are required"
        rules, sizes = {rule.name: rule.size for rule in gang.subgroups}, set[int]()
        for (name, *_), pods in recount.subgroups(gang).items():
            waits = sum(not pod.node for pod in pods)
            sizes |= {waits, rules[name] - (len(pods) - waits)}
        assert size in sizes - {0}, f"{sizes} are missing"

    # --- how many fit ----------------------------------------------------------------------------

    def most_units(
        self,
        spec: PodSpec,
        levels: Sequence[str],
        sizes: Sequence[int],
        nodes: Sequence[ClusterNode],
        held: Sequence[Reservation],
        *,
        around: str = "",
    ) -> int:
        """How many groups, or subgroups, fit on these nodes. levels: of the groups, the widest first, and of a
        subgroup. sizes: how many of the next are in each, in the end pods. around: the level of what they are in: what
        is on one node is in one rack, even if that is not known."""
        level, size = levels[0], sizes[0]
        if level and around and self._width[around] < self._width[level]:
            level = around
        total = 0
        for part in self._parts(nodes, level):
            if len(levels) > 1:
                total += (
                    self.most_units(spec, levels[1:], sizes[1:], part, held, around=level) // size
                )
            else:
                total += self._subgroups(spec, level, size, part, held)
        return total

    def most_in_one_when_empty(
        self, spec: PodSpec, around: str, levels: Sequence[str], sizes: Sequence[int]
    ) -> int:
        """How many units the best domain of the level around them takes when it is empty."""
        inside = [
            around if around and each and self._width[around] < self._width[each] else each
            for each in levels
        ]
        parts = defaultdict[str, list[ClusterNode]](list)
        for node in self.counts.nodes:
            if not recount.lasting(spec, node):
                parts[self.empty_place(node, around)].append(node)
        return max(
            (self._most_when_empty(spec, inside, sizes, part) for part in parts.values()), default=0
        )

    def _most_when_empty(
        self,
        spec: PodSpec,
        levels: Sequence[str],
        sizes: Sequence[int],
        nodes: Sequence[ClusterNode],
    ) -> int:
        """As most_units(), of empty nodes. A node in no rack is one by itself. No levels: pods."""
        if not levels:
            return sum(recount.when_empty(spec, node) for node in nodes)
        found = defaultdict[str, list[ClusterNode]](list)
        for node in nodes:
            found[self.empty_place(node, levels[0])].append(node)
        return sum(
            self._most_when_empty(spec, levels[1:], sizes[1:], part) // sizes[0]
            for part in found.values()
        )

    def empty_place(self, node: ClusterNode, level: str) -> str:
        """The node's domain of the level, or of the widest one below it that it has."""
        if not level:
            return ""
        at = self._labelled.index(level) if level in self._labelled else 0
        below = self._labelled[at:]
        for each in below if level not in ("node", *PARTS) else ():
            if place := self.counts.place(node, each):
                return f"{each} {place}"
        return node.name

    def _parts(self, nodes: Sequence[ClusterNode], level: str) -> list[list[ClusterNode]]:
        """The nodes by their domain of the level; all of them for no level."""
        found = defaultdict[str, list[ClusterNode]](list)
        for node in nodes:
            if (place := self.counts.place(node, level)) is not None:
                found[place].append(node)
        return list(found.values())

    def _subgroups(
        self,
        spec: PodSpec,
        level: str,
        size: int,
        nodes: Sequence[ClusterNode],
        held: Sequence[Reservation],
    ) -> int:
        if level not in PARTS:
            return sum(self.counts.capacity(spec, node, held) for node in nodes) // size
        (node,) = nodes
        if not (asked := spec.request(GPU)):
            return self.counts.capacity(spec, node, held) // size
        free = [len(part) for part in self.counts.free_parts(node, level, held)]
        inside = sum(gpus // asked // size for gpus in free)
        return min(self.counts.capacity(spec, node, held) // size, inside)
