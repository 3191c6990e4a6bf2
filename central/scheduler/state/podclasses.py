"""A pod's kind: its spec, and which of the known rules speak of pods like it. Pods whom no rule
speaks of keep the plain spec, whatever their labels are, so that they are decided alike.

A rule is known from when the first pod has it until the last one goes; then the pods that it speaks
of change their kind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from central.model.facts import PodSeen, PodSpec
from central.model.pod_rules import Labels, Peers
from central.model.volumes import Volumes
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.volumes.claims import VolumeClaims

NAME = "kubernetes.io/metadata.name"  # the label that every namespace has

_KEPT = 50_000


class PodClasses:
    def __init__(self, neighbours: MatchingPodCounts) -> None:
        self.storage = VolumeClaims(neighbours.stock)
        self._neighbours = neighbours
        self._used: dict[Peers, int] = {}  # by how many pods
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._matched: dict[tuple[str, Labels, bool], tuple[int, ...]] = {}
        self._filed: dict[str, dict[Labels, set[str]]] = {}  # uids by namespace and labels
        self._plain: dict[PodSpec, PodSpec] = {}
        self._kinds: dict[tuple[PodSpec, tuple[int, ...]], PodSpec] = {}

    def learn(self, spec: PodSpec) -> tuple[Peers, ...]:
        """One more pod has the spec. Returns the rules that were not known: whoever they speak of
        must be given its kind again."""
        fresh = []
        for peers in spec.rules.peers() if spec.rules is not None else ():
            self._used[peers] = self._used.get(peers, 0) + 1
            if peers not in self._neighbours.ids:
                self._neighbours.know(peers)
                fresh.append(peers)
        if fresh:
            self._matched.clear()
        return tuple(fresh)

    def unlearn(self, spec: PodSpec) -> None:
        """One pod fewer has it."""
        for peers in spec.rules.peers() if spec.rules is not None else ():
            self._used[peers] -= 1
            if not self._used[peers]:
                del self._used[peers]
                self._neighbours.forget(peers)
                self._matched.clear()

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """None: it is gone. Says whether pods there may change their kind."""
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        if not any(s.namespace_labels for p in self._neighbours.ids for s in p.selectors):
            return False
        self._matched.clear()
        return True

    def file(self, seen: PodSeen | None, before: PodSeen | None) -> list[str]:
        """The pod that was like this is now like that, or gone. The uids of those whose kind changes
        because they share a claim with it, or did."""
        mates: list[str] = []
        if (seen.claims if seen else ()) != (before.claims if before else ()):
            mates += self.storage.unfile(before) if before is not None else ()
            mates += self.storage.file(seen) if seen is not None else ()
        if seen is None or before is None or seen.labels != before.labels:
            self._file_labels(seen, before)
        return mates

    def _file_labels(self, seen: PodSeen | None, before: PodSeen | None) -> None:
        if before is not None:
            alike = self._filed[before.namespace]
            alike[before.labels].discard(before.uid)
            if not alike[before.labels]:
                del alike[before.labels]
        if seen is not None:
            self._filed.setdefault(seen.namespace, {}).setdefault(seen.labels, set()).add(seen.uid)

    def of(self, seen: PodSeen) -> PodSpec:
        """One object for all pods of the kind."""
        spec = self._with_volumes(seen) if seen.claims else seen.spec
        if not self._neighbours.ids:
            return self._only(spec)
        key = (seen.namespace, seen.labels, seen.deleting)
        matched = self._matched.get(key)
        if matched is None:
            if len(self._matched) >= _KEPT:
                self._matched.clear()
            known = self._neighbours.ids.items()
            matched = tuple(
                number
                for peers, number in known
                if self._match(peers, *key[:2], leaving=seen.deleting)
            )
            self._matched[key] = matched
        if not matched:
            return self._only(spec)
        if (kind := self._kinds.get((spec, matched))) is None:
            if len(self._kinds) >= _KEPT:
                self._kinds.clear()
            kind = self._kinds[(spec, matched)] = replace(spec, matched=matched)
        return kind

    def spoken_of(self, fresh: Iterable[Peers]) -> list[str]:
        """The uids of the filed pods that one of the rules speaks of."""
        rules = tuple(fresh)
        return [
            uid
            for namespace, alike in (self._filed.items() if rules else ())
            for labels, uids in alike.items()
            if any(self._match(peers, namespace, labels, leaving=False) for peers in rules)
            for uid in sorted(uids)
        ]

    def _with_volumes(self, seen: PodSeen) -> PodSpec:
        volumes = self.storage.asks(seen)
        if volumes == Volumes():
            return seen.spec
        unsupported = seen.spec.unsupported or volumes.why
        return replace(seen.spec, volumes=volumes, unsupported=unsupported)

    def _only(self, spec: PodSpec) -> PodSpec:
        if len(self._plain) >= _KEPT:
            self._plain.clear()
        return self._plain.setdefault(spec, spec)

    def _match(self, peers: Peers, namespace: str, labels: Labels, *, leaving: bool) -> bool:
        about = self._namespaces.get(namespace)
        if about is None:
            about = {NAME: namespace}
        return peers.match(namespace, dict(labels), about, leaving)
