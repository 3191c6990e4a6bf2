"""Gangs of several PodGroups: those of scheduling.k8s.io below one CompositePodGroup are the subgroups of one gang. A
CompositePodGroup of the policy basic without a topology constraint joins nothing, so each group below it is a gang,
unless its disruption mode is all.

Facts are recorded at once and composed once per cycle, because the objects of one tree come one by one.

Design: docs/design/gangs.md
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from central.model import limits, native_podgroup
from central.model.facts import GangSeen, PodSeen, SubGroupLayer, SubGroups
from central.model.pod_rules import Expression
from central.scheduler.state.subgroups import needed_groups
from protos.names import PARTS_OF_NODE

Key = tuple[str, str]  # namespace and name, as GangSeen has them
Value = TypeVar("Value")
# CompositePodGroups around a PodGroup; the API accepts no more templates inside each other.
DEPTH = 4

_FIELD = "spec.parentCompositePodGroupName"


class _TreePart(NamedTuple):
    group: GangSeen
    path: tuple[GangSeen, ...]  # the CompositePodGroups around it, the gang's own first


class Changes(NamedTuple):
    gangs: list[tuple[Key, GangSeen | None]]  # None: it is no gang any more
    moved: list[tuple[Key, str]]  # PodGroups with the gang that their pods are in until now


class CompositeGangs:
    def __init__(self) -> None:
        self.groups: dict[Key, GangSeen] = {}  # CompositePodGroups, and PodGroups with a parent
        self.composed: dict[Key, GangSeen] = {}  # the gangs that they are
        self._gang_of: dict[Key, str] = {}  # by PodGroup, where it is another one than its own
        self._children: dict[Key, dict[str, None]] = {}
        self._changed: dict[Key, None] = {}

    def update(self, fact: GangSeen) -> bool:
        """Returns whether the group belongs to a tree, so that settle() says what gang it is."""
        key = (fact.namespace, fact.name)
        if self.groups.get(key) == fact:
            return True
        known = self.remove(key)
        if not (known or fact.parent or native_podgroup.is_composite(fact.name)):
            self.composed.pop(key, None)
            return False
        self.groups[key] = fact
        if fact.parent:
            self._children.setdefault((fact.namespace, fact.parent), {})[fact.name] = None
        self._mark(key, DEPTH)
        return True

    def remove(self, key: Key) -> bool:
        """Returns whether the group was known."""
        if key not in self.groups:
            return False
        self._mark(key, DEPTH)
        before = self.groups.pop(key)
        if before.parent:
            siblings = self._children[key[0], before.parent]
            del siblings[key[1]]
            if not siblings:
                del self._children[key[0], before.parent]
        return True

    def of_pod(self, fact: PodSeen) -> PodSeen:
        """The pod in the gang that its PodGroup belongs to now."""
        if not fact.podgroup or not native_podgroup.is_native(fact.gang):
            return fact
        own = native_podgroup.gang_name(fact.podgroup)
        gang = self._gang_of.get((fact.namespace, own), own)
        return fact if gang == fact.gang else replace(fact, gang=gang)

    def podgroup_of(self, fact: PodSeen) -> GangSeen | None:
        """The pod's own PodGroup, where it is a part of a gang."""
        return self.groups.get((fact.namespace, native_podgroup.gang_name(fact.podgroup)))

    def settle(self) -> Changes:
        """Returns what the groups that changed since the last call are now."""
        found: dict[Key, GangSeen | None] = {}
        gang_of: dict[Key, str] = {}
        while self._changed:
            key, _ = self._changed.popitem()
            if key not in self.groups:
                if key in self.composed:
                    found[key] = None
                gang_of.setdefault(key, key[1])
            elif (top := self._top(key)) is None:
                why = f"more than {DEPTH} levels of CompositePodGroups, or a circle"
                found[key] = _refused(self.groups[key], why)
                gang_of[key] = key[1]
            elif top not in found:
                self._compose(self.groups[top], found, gang_of)
        changes = Changes([], [])
        for key, gang in found.items():
            if gang is None or gang != self.composed.get(key):
                changes.gangs.append((key, gang))
                _put(self.composed, key, gang)
        for key, name in gang_of.items():
            before = self._gang_of.get(key, key[1])
            if before != name:
                changes.moved.append((key, before))
            _put(self._gang_of, key, name if name != key[1] else None)
        return changes

    def _mark(self, key: Key, depth: int) -> None:
        """The group's tree changes, and what is below it may belong to another one."""
        if (top := self._top(key)) is not None:
            self._changed[top] = None
        self._changed[key] = None
        for child in self._children.get(key, ()) if depth >= 0 else ():
            self._mark((key[0], child), depth - 1)

    def _top(self, key: Key) -> Key | None:
        """The widest group around it that exists; None: it is too deep."""
        for _ in range(DEPTH + 1):
            above = (key[0], self.groups[key].parent) if key in self.groups else key
            if above not in self.groups:
                return key
            key = above
        return None

    def _compose(
        self, top: GangSeen, found: dict[Key, GangSeen | None], gang_of: dict[Key, str]
    ) -> None:
        """Adds what each group of the tree is, and of which gang the pods of each PodGroup are."""
        key = (top.namespace, top.name)
        if not native_podgroup.is_composite(top.name):
            found[key], gang_of[key] = self._alone(top), top.name
            return
        if not (top.min_member or top.topology_required or top.evicted_whole or top.error):
            found[key] = None
            for child in self._below(key):
                self._compose(child, found, gang_of)
            return
        parts, composites = list[_TreePart](), list[GangSeen]()
        for part in self._parts(top, ()):
            own, group = (top.namespace, part.group.name), part.group
            found[own] = None
            if native_podgroup.is_composite(group.name):
                composites.append(group)
            elif group.error:  # its pods wait with it, and the others do not
                found[own], gang_of[own] = group, group.name
            else:
                gang_of[own] = top.name
                parts.append(part)
        found[key] = _gang(self._alone(top), parts, composites) if parts else None

    def _alone(self, group: GangSeen) -> GangSeen:
        parent = (group.namespace, group.parent)
        if not group.parent or parent in self.groups:
            return group
        name = native_podgroup.podgroup_name(group.parent)
        return _refused(group, f"CompositePodGroup {name} does not exist")

    def _below(self, key: Key) -> Iterator[GangSeen]:
        return (self.groups[key[0], name] for name in sorted(self._children.get(key, ())))

    def _parts(self, group: GangSeen, path: tuple[GangSeen, ...]) -> Iterator[_TreePart]:
        """All groups below it, as deep as is accepted."""
        path = (*path, group)
        for child in self._below((group.namespace, group.name)) if len(path) <= DEPTH else ():
            yield _TreePart(child, path)
            yield from self._parts(child, path)


def _put(known: dict[Key, Value], key: Key, value: Value | None) -> None:
    """value: None: there is no entry."""
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _refused(group: GangSeen, why: str) -> GangSeen:
    return replace(group, error=group.error or f"{_FIELD}: {why}")


def _gang(top: GangSeen, parts: Sequence[_TreePart], composites: Sequence[GangSeen]) -> GangSeen:
    """The gang of all these PodGroups. composites: those below the widest one."""
    error = top.error or next(filter(None, map(_inner_error, composites)), "")
    policies = _policies(parts)
    if len(parts) > limits.TASKS or len(policies) > limits.SUBGROUPS:
        error = error or (
            f"{len(parts)} PodGroups of {len(policies)} kinds are below it; at most {limits.TASKS} of "
            f"{limits.SUBGROUPS} kinds are accepted"
        )
        policies = ()
    groups = [part.group for part in parts]
    return replace(
        top,
        min_member=needed_groups(policies, ()).pods,
        subgroups=policies,
        queue=top.queue or next(filter(None, (group.queue for group in groups)), ""),
        preemptable=False if any(g.preemptable is False for g in groups) else top.preemptable,
        error=error,
    )


def _inner_error(group: GangSeen) -> str:
    name = f"CompositePodGroup {native_podgroup.podgroup_name(group.name)}"
    if group.topology_required in PARTS_OF_NODE:
        return f"{name}: {group.topology_required} is not a level around groups"
    return group.error and f"{name}: {group.error}"


def _policies(parts: Sequence[_TreePart]) -> tuple[SubGroups, ...]:
    """One policy for the equal PodGroups of each CompositePodGroup, with one subgroup for each of them."""
    equal: dict[tuple[tuple[GangSeen, ...], int, str], list[str]] = {}
    for group, path in parts:
        names = equal.setdefault((path, group.min_member, group.topology_required), [])
        names.append(native_podgroup.podgroup_name(group.name))
    found: dict[str, SubGroups] = {}
    for (path, size, required), names in equal.items():
        own = native_podgroup.podgroup_name(path[-1].name)
        name = own if own not in found else f"{own}/{names[0]}"
        found[name] = SubGroups(
            name,
            size,
            0,
            (Expression(native_podgroup.KEY, "In", tuple(names)),),
            (native_podgroup.KEY,),
            required,
            None,
            tuple(
                SubGroupLayer((), each.topology_required, of=each.name)
                for each in path[1:]
                if each.topology_required
            ),
            tuple((native_podgroup.podgroup_name(e.name), max(e.min_member, 1)) for e in path),
        )
    return tuple(found.values())
