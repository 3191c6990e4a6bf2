"""Scheduling classes of pods. A pod's class is its spec, with the numbers of the affinity rules that match
the pod and the volumes that it uses. Pods that no rule matches share the class of their spec, whatever
their labels are, so that filters and scores are computed once for all of them.

A rule is in use from the first pod that has it to the last one. When it comes or goes, the pods that it
matches change their class.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from central.model.facts import PodSeen, PodSpec
from central.model.pod_rules import Labels, Peers
from central.model.volumes import Volumes
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.volumes.claims import VolumeClaims

NAME = "kubernetes.io/metadata.name"  # the label that every namespace has

_CACHED = 50_000


class PodClasses:
    def __init__(self, pod_counts: MatchingPodCounts) -> None:
        self.storage = VolumeClaims(pod_counts.volumes.free)
        self._pod_counts = pod_counts
        self._used: dict[Peers, int] = {}  # by how many pods
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._matched: dict[tuple[str, Labels, bool], tuple[int, ...]] = {}
        self._pods_by_labels: dict[str, dict[Labels, set[str]]] = {}  # uids by namespace and labels
        self._interned_specs: dict[PodSpec, PodSpec] = {}
        self._classes: dict[tuple[PodSpec, tuple[int, ...]], PodSpec] = {}

    def add_spec(self, spec: PodSpec) -> tuple[Peers, ...]:
        """One more pod has the spec. Returns its rules that were not in use before: the pods that
        they match must be reclassified."""
        fresh = []
        for peers in spec.rules.peers() if spec.rules is not None else ():
            self._used[peers] = self._used.get(peers, 0) + 1
            if peers not in self._pod_counts.ids:
                self._pod_counts.track(peers)
                fresh.append(peers)
        if fresh:
            self._matched.clear()
        return tuple(fresh)

    def remove_spec(self, spec: PodSpec) -> None:
        """One pod fewer has the spec."""
        for peers in spec.rules.peers() if spec.rules is not None else ():
            self._used[peers] -= 1
            if not self._used[peers]:
                del self._used[peers]
                self._pod_counts.untrack(peers)
                self._matched.clear()

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return self._namespaces

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """labels: None if the namespace is gone. Returns whether its pods may change their class."""
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        if not any(s.namespace_labels for p in self._pod_counts.ids for s in p.selectors):
            return False
        self._matched.clear()
        return True

    def update_index(self, seen: PodSeen | None, before: PodSeen | None) -> list[str]:
        """Indexes a pod by labels and claims; seen is None if it is gone, before if it is new. Returns
        the uids of the pods that share a claim with it, now or before: their class may change."""
        mates: list[str] = []
        if (seen.claims if seen else ()) != (before.claims if before else ()):
            mates += self.storage.remove_pod(before) if before is not None else ()
            mates += self.storage.add_pod(seen) if seen is not None else ()
        if seen is None or before is None or seen.labels != before.labels:
            self._index_labels(seen, before)
        return mates

    def _index_labels(self, seen: PodSeen | None, before: PodSeen | None) -> None:
        if before is not None:
            alike = self._pods_by_labels[before.namespace]
            alike[before.labels].discard(before.uid)
            if not alike[before.labels]:
                del alike[before.labels]
        if seen is not None:
            self._pods_by_labels.setdefault(seen.namespace, {}).setdefault(seen.labels, set()).add(
                seen.uid
            )

    def class_of(self, seen: PodSeen) -> PodSpec:
        """The class of the pod: one object for all pods of the class."""
        spec = self._with_volumes(seen) if seen.claims else seen.spec
        if not self._pod_counts.ids:
            return self._interned(spec)
        key = (seen.namespace, seen.labels, seen.deleting)
        matched = self._matched.get(key)
        if matched is None:
            if len(self._matched) >= _CACHED:
                self._matched.clear()
            known = self._pod_counts.ids.items()
            matched = tuple(
                number
                for peers, number in known
                if self._match(peers, *key[:2], leaving=seen.deleting)
            )
            self._matched[key] = matched
        if not matched:
            return self._interned(spec)
        if (pod_class := self._classes.get((spec, matched))) is None:
            if len(self._classes) >= _CACHED:
                self._classes.clear()
            pod_class = self._classes[(spec, matched)] = replace(spec, matched=matched)
        return pod_class

    def matching_pods(self, fresh: Iterable[Peers]) -> list[str]:
        """The uids of the pods that one of the rules matches."""
        rules = tuple(fresh)
        return [
            uid
            for namespace, alike in (self._pods_by_labels.items() if rules else ())
            for labels, uids in alike.items()
            if any(self._match(peers, namespace, labels, leaving=False) for peers in rules)
            for uid in sorted(uids)
        ]

    def _with_volumes(self, seen: PodSeen) -> PodSpec:
        volumes = self.storage.requirements(seen)
        if volumes == Volumes():
            return seen.spec
        unsupported = seen.spec.unsupported or volumes.why
        return replace(seen.spec, volumes=volumes, unsupported=unsupported)

    def _interned(self, spec: PodSpec) -> PodSpec:
        if len(self._interned_specs) >= _CACHED:
            self._interned_specs.clear()
        return self._interned_specs.setdefault(spec, spec)

    def _match(self, peers: Peers, namespace: str, labels: Labels, *, leaving: bool) -> bool:
        namespace_labels = self._namespaces.get(namespace)
        if namespace_labels is None:
            namespace_labels = {NAME: namespace}
        return peers.match(namespace, dict(labels), namespace_labels, leaving)
