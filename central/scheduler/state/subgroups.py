"""The subgroups of a gang (spec.subGroupPolicy of its PodGroup): which pod belongs to which, which are
complete, and which pods to start next. A subgroup starts as a whole or not at all.

Design: docs/design/subgroups.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from central.model import wording
from central.model.facts import SubGroups
from central.model.pod_rules import Labels
from central.scheduler.inventory.pods import Pod

Values = tuple[str, ...]
BundleKey = tuple[str, int, Values]  # policy, layer, and what its subgroups agree in


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
        """What it shares a domain with others by, the widest first."""
        known = dict(zip(self.policy.keys, self.values, strict=True))
        return [
            (self.policy.name, depth, tuple(known[key] for key in layer.keys))
            for depth, layer in enumerate(self.policy.layers)
        ]

    @property
    def lacks(self) -> int:
        """How many more pods complete it."""
        return max(0, self.policy.size - len(self.placed))

    @property
    def completable(self) -> bool:
        return self.lacks <= len(self.waiting)


Unit = tuple[Subgroup | None, list[Pod]]  # pods that start together; None: in no subgroup


@dataclass(slots=True)
class SubgroupDivision:
    groups: list[Subgroup]  # by policy, then by the first rank
    ungrouped: list[Pod]  # waiting pods in no subgroup

    @classmethod
    def of(
        cls, policies: Sequence[SubGroups], waiting: Iterable[Pod], placed: Iterable[Pod]
    ) -> "SubgroupDivision":
        found: dict[tuple[int, Values], Subgroup] = {}
        by_labels: dict[Labels, Subgroup | None] = {}
        division = cls([], [])

        def group_of(labels: Labels) -> Subgroup | None:
            if labels not in by_labels:
                where = _group_of(policies, dict(labels))
                by_labels[labels] = where and found.setdefault(
                    where, Subgroup(policies[where[0]], where[1])
                )
            return by_labels[labels]

        for pod in waiting:
            group = group_of(pod.seen.labels)
            (group.waiting if group is not None else division.ungrouped).append(pod)
        for pod in placed:
            if (group := group_of(pod.seen.labels)) is not None:
                group.placed.append(pod)
        division.groups = [found[where] for where in sorted(found, key=lambda where: where[0])]
        return division

    def placed_by_bundle(self) -> dict[BundleKey, list[Pod]]:
        found: dict[BundleKey, list[Pod]] = {}
        for group in self.groups:
            for key in group.bundles():
                found.setdefault(key, []).extend(group.placed)
        return found

    def missing(self, policies: Sequence[SubGroups]) -> int:
        """How many more pods must be placed to reach the minSubGroups of each policy."""
        return sum(
            sum(sorted(lacks)[: policy.least])
            for policy in policies
            if (
                lacks := [g.lacks for g in self.groups if g.policy is policy]
                + [policy.size] * policy.least
            )
        )

    def shortage(self, policies: Sequence[SubGroups]) -> str:
        """Names a policy that cannot reach its minSubGroups with the existing pods; empty: none."""
        for policy in policies:
            mine = [group for group in self.groups if group.policy is policy]
            completable = sum(group.completable for group in mine)
            if completable < policy.least:
                subgroups = wording.counted(policy.least, "subgroup")
                return (
                    f"subGroupPolicy {policy.name} needs {subgroups} of "
                    f"{wording.counted(policy.size, 'pod')} to start, the existing pods complete {completable}"
                )
        return ""

    def incomplete_group(self) -> str:
        """Names a subgroup that lacks pods; empty: none does."""
        group = next((group for group in self.groups if not group.completable), None)
        if group is None:
            return ""
        exist = len(group.placed) + len(group.waiting)
        return f"subgroup {group.name} has {exist} of {group.policy.size} pods"

    def units(self) -> list[Unit]:
        """The units that may start now, in rank order: the pods that complete a subgroup together,
        further pods of a complete subgroup and pods in no subgroup each alone."""
        units: list[Unit] = [(None, [pod]) for pod in self.ungrouped]
        for group in self.groups:
            if group.completable:
                lacks = group.lacks
                units += [(group, group.waiting[:lacks])] if lacks else []
                units += [(group, [pod]) for pod in group.waiting[lacks:]]
        return sorted(units, key=lambda unit: unit[1][0].seen.order)

    def units_to_start(
        self, policies: Sequence[SubGroups], missing: int, tasks: Mapping[str, int]
    ) -> list[Unit]:
        """The first units that reach the gang's minimum: missing pods in total, tasks more pods of each
        task, and minSubGroups subgroups of each policy. Empty: too few pods exist."""
        units = self.units()
        short, chosen = dict(tasks), dict[int, Unit]()
        needs = {
            policy.name: policy.least
            - sum(not group.lacks for group in self.groups if group.policy is policy)
            for policy in policies
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
        done = count >= missing and all(n <= 0 for n in (*short.values(), *needs.values()))
        return [chosen[index] for index in sorted(chosen)] if done else []


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
