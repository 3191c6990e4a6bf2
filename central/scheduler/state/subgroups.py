"""The subgroups of a gang (spec.subGroupPolicy of its PodGroup): which pod belongs to which, which are
complete, and which pods to start next. A subgroup starts as a whole or not at all.

Design: docs/design/subgroups.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from central.model import native_podgroup, wording
from central.model.facts import SubGroups
from central.model.pod_rules import Labels
from central.scheduler.inventory.pods import Pod

Values = tuple[str, ...]
# Policy or CompositePodGroup, layer, and what its subgroups agree in.
BundleKey = tuple[str, int, Values]


@dataclass(slots=True)
class Subgroup:
    policy: SubGroups
    values: Values
    placed: list[Pod] = field(default_factory=list)
    waiting: list[Pod] = field(default_factory=list)  # in rank order

    @property
    def name(self) -> str:
        return "-".join((self.policy.name, *self.values))

    def bundles(self) -> list["BundleKey"]:
        """Returns the keys of the bundles that it belongs to, each in one domain, the widest first."""
        known = dict(zip(self.policy.keys, self.values, strict=True))
        return [
            (layer.of or self.policy.name, depth, tuple(known[key] for key in layer.keys))
            for depth, layer in enumerate(self.policy.layers)
        ]

    def composite_to_start(self, needs: Mapping[str, "NeededGroups"]) -> str:
        """Returns the widest CompositePodGroup around it, below the gang's own, that has needs; empty: none."""
        return next((name for name, _ in self.policy.within[1:] if name in needs), "")

    @property
    def lacks(self) -> int:
        """The number of further pods that complete it."""
        return max(0, self.policy.size - len(self.placed))

    @property
    def completable(self) -> bool:
        return self.lacks <= len(self.waiting)


Unit = tuple[Subgroup | None, list[Pod]]  # pods that start together; None: in no subgroup


class NeededGroups(NamedTuple):
    """The groups that start together. absent: the CompositePodGroup that has fewer groups than it needs, as a clause;
    empty: none."""

    absent: str
    late: bool  # pods of them do not exist yet
    pods: int  # that they lack
    least: Mapping[str, int]  # groups by policy


@dataclass(slots=True)
class SubgroupDivision:
    policies: Sequence[SubGroups]
    groups: list[Subgroup]  # by policy, then by the first rank
    ungrouped: list[Pod]  # waiting pods in no subgroup
    needed: NeededGroups

    @classmethod
    def of(
        cls, policies: Sequence[SubGroups], waiting: Iterable[Pod], placed: Iterable[Pod]
    ) -> "SubgroupDivision":
        found: dict[tuple[int, Values], Subgroup] = {}
        by_labels: dict[tuple[Labels, str], Subgroup | None] = {}
        ungrouped: list[Pod] = []

        def group_of(pod: Pod) -> Subgroup | None:
            key = labels, podgroup = pod.seen.labels, pod.seen.podgroup
            if key not in by_labels:
                where = _group_of(policies, {**dict(labels), native_podgroup.KEY: podgroup})
                by_labels[key] = where and found.setdefault(
                    where, Subgroup(policies[where[0]], where[1])
                )
            return by_labels[key]

        for pod in waiting:
            group = group_of(pod)
            (group.waiting if group is not None else ungrouped).append(pod)
        for pod in placed:
            if (group := group_of(pod)) is not None:
                group.placed.append(pod)
        groups = [found[where] for where in sorted(found, key=lambda where: where[0])]
        return cls(policies, groups, ungrouped, needed_groups(policies, groups))

    def placed_by_bundle(self) -> dict[BundleKey, list[Pod]]:
        found: dict[BundleKey, list[Pod]] = {}
        for group in self.groups:
            for key in group.bundles():
                found.setdefault(key, []).extend(group.placed)
        return found

    def missing(self) -> int:
        """Returns how many more pods must be placed for the groups that the gang needs."""
        return self.needed.pods

    def shortage(self) -> str:
        """Names a policy that has fewer groups than needed with the existing pods; empty: none."""
        for policy in self.policies if not self.needed.absent else ():
            mine = [group for group in self.groups if group.policy is policy]
            completable = sum(group.completable for group in mine)
            least = self.needed.least[policy.name]
            if completable < least:
                what, unit = "subGroupPolicy " + policy.name, "subgroup"
                if policy.within:
                    what, unit = "CompositePodGroup " + policy.within[-1][0], "PodGroup"
                return (
                    f"{what} needs {wording.counted(least, unit)} of "
                    f"{wording.counted(policy.size, 'pod')} to start, the existing pods complete {completable}"
                )
        return self.needed.absent

    def incomplete_group(self) -> str:
        """Names a subgroup that lacks pods, or a CompositePodGroup that lacks groups; empty: none does."""
        group = next((group for group in self.groups if not group.completable), None)
        if group is None:
            return next((needs.absent for needs in self._inner_needs().values()), "")
        exist = len(group.placed) + len(group.waiting)
        return f"subgroup {group.name} has {exist} of {group.policy.size} pods"

    def units(self) -> list[Unit]:
        """The units that may start now, in rank order: the pods that complete a subgroup together,
        further pods of a complete subgroup and pods in no subgroup each alone."""
        units: list[Unit] = [(None, [pod]) for pod in self.ungrouped]
        needs = self._inner_needs()
        for group in self.groups:
            inner = group.composite_to_start(needs)
            if group.completable and not (inner and (needs[inner].absent or needs[inner].late)):
                lacks = group.lacks
                units += [(group, group.waiting[:lacks])] if lacks else []
                units += [(group, [pod]) for pod in group.waiting[lacks:]]
        return sorted(units, key=lambda unit: unit[1][0].seen.order)

    def steps(self) -> list[list[Unit]]:
        """Returns the units() one by one, except that a CompositePodGroup inside the gang's own that has not started
        starts with all units that it needs. Its other units come once it has."""
        steps, needs = list[list[Unit]](), self._inner_needs()
        together: dict[str, list[Unit]] = {}
        for unit in self.units():
            inner = unit[0].composite_to_start(needs) if unit[0] is not None else ""
            if inner in together:
                together[inner].append(unit)
                continue
            steps.append([unit])
            if inner:
                together[inner] = steps[-1]
        for inner, units in together.items():
            left = Counter(needs[inner].least)
            left.subtract(group.policy.name for group in self.groups if not group.lacks)
            chosen = []
            for unit in sorted(units, key=lambda unit: len(unit[1])):
                if unit[0] is not None and left[unit[0].policy.name] > 0:
                    left[unit[0].policy.name] -= 1
                    chosen.append(unit)
            units[:] = chosen
        return steps

    def _inner_needs(self) -> dict[str, NeededGroups]:
        """Returns what each CompositePodGroup inside the gang's own needs, if it lacks something to start."""
        found: dict[str, list[SubGroups]] = {}
        depths: dict[str, int] = {}
        for policy in self.policies:
            for depth, (name, _) in enumerate(policy.within[1:], 1):
                found.setdefault(name, []).append(policy)
                depths[name] = depth
        needs = {name: _needed_inside(found[name], self.groups, depths[name]) for name in found}
        return {name: each for name, each in needs.items() if each.absent or each.pods}

    def units_to_start(self, missing: int, tasks: Mapping[str, int]) -> list[Unit]:
        """The first units that reach the gang's minimum: missing pods in total, tasks more pods of each
        task, and the groups that are needed of each policy. Empty: too few pods or groups exist."""
        units = self.units() if not self.needed.absent else []
        short, chosen = dict(tasks), dict[int, Unit]()
        needs = {
            policy.name: self.needed.least[policy.name]
            - sum(not group.lacks for group in self.groups if group.policy is policy)
            for policy in self.policies
        }

        def choose(index: int) -> None:
            unit = chosen[index] = units[index]
            for task, count in Counter(pod.seen.task for pod in unit[1]).items():
                short[task] = short.get(task, 0) - count

        for index, (group, _) in enumerate(units):
            wanted = group is not None and needs[group.policy.name] > 0
            if group is not None and wanted and _makes_whole(group, units[index]):
                needs[group.policy.name] -= 1
                choose(index)
        for index, (_, pods) in enumerate(units):
            if index not in chosen and any(short.get(pod.seen.task, 0) > 0 for pod in pods):
                choose(index)
        count = sum(len(pods) for _, pods in chosen.values())
        for index, (_, pods) in enumerate(units):
            if index not in chosen and count < missing:
                choose(index)
                count += len(pods)
        done = (
            not self.needed.absent
            and count >= missing
            and all(n <= 0 for n in (*short.values(), *needs.values()))
        )
        return [chosen[index] for index in sorted(chosen)] if done else []


def needed_groups(policies: Sequence[SubGroups], groups: Sequence[Subgroup]) -> NeededGroups:
    """The groups that start together and lack the fewest pods. groups: those that have pods."""
    if policies and policies[0].within:
        return _needed_inside(policies, groups, 0)
    pods, least = 0, {policy.name: policy.least for policy in policies}
    for policy in policies:
        lacks = [group.lacks for group in groups if group.policy is policy]
        pods += sum(sorted([*lacks, *[policy.size] * policy.least])[: policy.least])
    return NeededGroups("", False, pods, least)


def _needed_inside(
    policies: Sequence[SubGroups], groups: Sequence[Subgroup], depth: int
) -> NeededGroups:
    """Chooses as many of the groups right below a CompositePodGroup as it needs, first those whose pods exist."""
    found: list[NeededGroups] = []
    inner: dict[str, list[SubGroups]] = {}
    for policy in policies:
        if len(policy.within) > depth + 1:
            inner.setdefault(policy.within[depth + 1][0], []).append(policy)
            continue
        mine, one = [group for group in groups if group.policy is policy], {policy.name: 1}
        found += [NeededGroups("", not each.completable, each.lacks, one) for each in mine]
        without_pods = len(policy.labels[0].values) - len(mine)
        found += [NeededGroups("", True, policy.size, one)] * without_pods
    found += [_needed_inside(each, groups, depth + 1) for each in inner.values()]
    name, least = policies[0].within[depth]
    chosen = sorted(found, key=lambda each: (bool(each.absent), each.late, each.pods))[:least]
    absent = next(filter(None, (each.absent for each in chosen)), "")
    if len(chosen) < least:
        needs = wording.counted(least, "group")
        absent = f"CompositePodGroup {name} needs {needs} to start, {len(found)} exist"
    sums = Counter[str](dict.fromkeys((policy.name for policy in policies), 0))
    for each in chosen:
        sums.update(each.least)
    late = any(each.late for each in chosen)
    return NeededGroups(absent, late, sum(each.pods for each in chosen), sums)


def _makes_whole(group: Subgroup, unit: Unit) -> bool:
    return group.lacks > 0 and unit[1][0] is group.waiting[0]


def _group_of(
    policies: Sequence[SubGroups], labels: Mapping[str, str]
) -> tuple[int, Values] | None:
    """Index of the first policy that selects the labels, and its subgroup; None: no policy does."""
    for index, policy in enumerate(policies):
        values = tuple(labels.get(key, "") for key in policy.keys)
        if all(values) and all(expression.matches(labels) for expression in policy.labels):
            return index, values
    return None
