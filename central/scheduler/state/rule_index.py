"""Finds the rules between pods that may match a pod, and the labels of the pods that a rule may match.

A rule that names values of a label (In) is kept under them, and is compared only with pods that have one. All others
of a namespace are compared with each of its pods. A user who creates pods makes rules, so a namespace may have only
RULES_ALIKE rules that are compared with the same pods. Without that a new rule would cost a comparison with all pods,
a new pod one with all rules, and each pod would be matched by all of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from central.model.limits import RULES_ALIKE
from central.model.pod_rules import Labels, Peers

WIDE = ""  # the scope of rules that select namespaces by label
_ANY = ("", "")
Key = TypeVar("Key")


class RuleBucket(NamedTuple):
    """The pods of a namespace, or of all (WIDE), with this label; _ANY: whatever their labels are."""

    scope: str
    label: tuple[str, str]


class RuleIndex:
    def __init__(self) -> None:
        self.reading_namespaces = 0  # rules that read labels of namespaces
        self._rules: dict[RuleBucket, dict[Peers, None]] = {}
        self._buckets: dict[Peers, tuple[RuleBucket, ...]] = {}
        self._used: Counter[Peers] = Counter()  # by how many pods
        self._used_by: Counter[tuple[str, Peers]] = Counter()  # the same by the pods' namespace
        # rules by the namespace of their pods
        self._crowds: Counter[tuple[str, RuleBucket]] = Counter()

    def admits(self, owner: str, rules: Iterable[Peers]) -> bool:
        """Returns whether a pod of this namespace may have the rules beside those of its other pods."""
        more: Counter[RuleBucket] = Counter()
        for peers in dict.fromkeys(rules):
            if not self._used_by[owner, peers]:
                more.update(self._buckets.get(peers) or self._choose(owner, peers))
        return all(
            self._crowds[owner, bucket] + count <= RULES_ALIKE for bucket, count in more.items()
        )

    def add(self, owner: str, peers: Peers) -> bool:
        """One more pod of the namespace has the rule. Returns whether it was not in use before."""
        fresh = not self._used[peers]
        if fresh:
            self._buckets[peers] = self._choose(owner, peers)
            self.reading_namespaces += _reads_namespaces(peers)
        if not self._used_by[owner, peers]:
            for bucket in self._buckets[peers]:
                self._rules.setdefault(bucket, {})[peers] = None
                self._crowds[owner, bucket] += 1
        self._used[peers] += 1
        self._used_by[owner, peers] += 1
        return fresh

    def remove(self, owner: str, peers: Peers) -> tuple[RuleBucket, ...] | None:
        """One pod fewer has the rule. Returns its buckets if it was the last one, else None. A rule that no pod can
        match has no bucket."""
        _drop(self._used_by, (owner, peers))
        if not self._used_by[owner, peers]:
            for bucket in self._buckets[peers]:
                _drop(self._crowds, (owner, bucket))
        _drop(self._used, peers)
        if self._used[peers]:
            return None
        self.reading_namespaces -= _reads_namespaces(peers)
        buckets = self._buckets.pop(peers)
        for bucket in buckets:
            del self._rules[bucket][peers]
            if not self._rules[bucket]:
                del self._rules[bucket]
        return buckets

    def buckets_of(self, peers: Peers) -> tuple[RuleBucket, ...]:
        return self._buckets[peers]

    def near(self, namespace: str, labels: Labels) -> Iterator[Peers]:
        """The rules that may match a pod."""
        for scope in (namespace, WIDE):
            for label in (_ANY, *labels):
                yield from self._rules.get(RuleBucket(scope, label), ())

    def _choose(self, owner: str, peers: Peers) -> tuple[RuleBucket, ...]:
        """Under the values of the label that the fewest rules of the namespace name."""
        fixed = [each.namespaces for each in peers.selectors if each.namespace_labels is None]
        scopes = min(fixed, key=len) if fixed else (WIDE,)
        choices = [
            tuple(RuleBucket(scope, (each.key, value)) for scope in scopes for value in each.values)
            for selector in peers.selectors
            for each in selector.labels or ()
            if each.operator == "In"
        ]
        choices.append(tuple(RuleBucket(scope, _ANY) for scope in scopes))
        return min(
            choices,
            key=lambda some: max((self._crowds[owner, bucket] for bucket in some), default=0),
        )


class LabelIndex:
    """The uids of pods by namespace and labels."""

    def __init__(self) -> None:
        self._uids: dict[str, dict[Labels, set[str]]] = {}
        self._with: dict[RuleBucket, dict[Labels, None]] = {}

    def has(self, namespace: str, labels: Labels) -> bool:
        return labels in self._uids.get(namespace, ())

    def add(self, namespace: str, labels: Labels, uid: str) -> None:
        alike = self._uids.setdefault(namespace, {})
        if labels not in alike:
            alike[labels] = set()
            for label in labels:
                self._with.setdefault(RuleBucket(namespace, label), {})[labels] = None
        alike[labels].add(uid)

    def remove(self, namespace: str, labels: Labels, uid: str) -> None:
        alike = self._uids[namespace]
        alike[labels].discard(uid)
        if alike[labels]:
            return
        del alike[labels]
        for label in labels:
            bucket = RuleBucket(namespace, label)
            self._with[bucket].pop(labels, None)
            if not self._with[bucket]:
                del self._with[bucket]
        if not alike:
            del self._uids[namespace]

    def of(self, namespace: str) -> Mapping[Labels, set[str]]:
        return self._uids.get(namespace, {})

    def inside(self, buckets: Iterable[RuleBucket]) -> Iterator[tuple[str, Labels]]:
        """Namespace and labels of the pods in one of the buckets, each once."""
        found: dict[tuple[str, Labels], None] = {}
        for scope, label in buckets:
            for namespace in list(self._uids) if scope == WIDE else [scope]:
                alike: Iterable[Labels] = self._uids.get(namespace, ())
                if label != _ANY:
                    alike = self._with.get(RuleBucket(namespace, label), ())
                found.update(((namespace, labels), None) for labels in alike)
        yield from found


def _reads_namespaces(peers: Peers) -> bool:
    return any(selector.namespace_labels for selector in peers.selectors)


def _drop(counts: "Counter[Key]", key: Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
