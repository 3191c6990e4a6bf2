"""Scheduling classes of pods. A pod's class is its spec, with the numbers of the affinity rules that match
the pod and the volumes and devices of claims that it uses. Pods that no rule matches share the class of their spec,
whatever their labels are, so that filters and scores are computed once for all of them.

A rule is in use from the first pod that has it to the last one. When it comes or goes, the pods that it
matches change their class.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from central.model.facts import PodSeen, PodSpec
from central.model.limits import RULES_ALIKE
from central.model.pod_rules import Labels, Peers
from central.model.volumes import Volumes
from central.scheduler.device_claims.pod_device_claims import DeviceClaims
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.quarantine import Quarantine
from central.scheduler.state.rule_index import LabelIndex, RuleBucket, RuleIndex
from central.scheduler.volumes.claims import VolumeClaims
from protos.names import GPU

NAME = "kubernetes.io/metadata.name"  # the label that every namespace has

_CACHED = 50_000


class PodClasses:
    def __init__(self, pod_counts: MatchingPodCounts, quarantine: Quarantine) -> None:
        self.storage = VolumeClaims(pod_counts.volumes.free, quarantine)
        self.device_claims = DeviceClaims(pod_counts.devices)
        self._pod_counts = pod_counts
        self._index = RuleIndex()
        self._labels = LabelIndex()
        # by namespace: too many rules
        self._refused: dict[str, dict[tuple[str, PodSpec], None]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._matched: dict[tuple[str, Labels, bool], tuple[int, ...]] = {}
        # One object for all equal ones.
        self._class = lru_cache(_CACHED)(_with_rules)

    def add_rules(self, seen: PodSeen) -> list[str]:
        """One more pod has the rules of this pod's spec. Returns the uids of the pods that rules match which were not
        in use before: they must be reclassified."""
        rules = seen.spec.rules
        if rules is None:
            return []
        if not seen.node and not self._index.admits(seen.namespace, rules.peers()):
            self._refused.setdefault(seen.namespace, {})[seen.uid, seen.spec] = None
            return []
        return self._track(seen)

    def _track(self, seen: PodSeen) -> list[str]:
        matched: dict[str, None] = {}
        for peers in seen.spec.rules.peers() if seen.spec.rules is not None else ():
            if self._index.add(seen.namespace, peers):
                self._pod_counts.track(peers)
                for namespace, labels in self._forget_matches(self._index.buckets_of(peers)):
                    if self._match(peers, namespace, labels, leaving=False):
                        matched.update(
                            (uid, None) for uid in sorted(self._labels.of(namespace)[labels])
                        )
        return list(matched)

    def remove_rules(self, seen: PodSeen) -> None:
        """One pod fewer has the rules of this pod's spec."""
        if seen.spec.rules is None:
            return
        refused = self._refused.get(seen.namespace)
        if refused is not None and (seen.uid, seen.spec) in refused:
            del refused[seen.uid, seen.spec]
            if not refused:
                del self._refused[seen.namespace]
            return
        for peers in seen.spec.rules.peers():
            if (buckets := self._index.remove(seen.namespace, peers)) is not None:
                self._pod_counts.untrack(peers)
                for _ in self._forget_matches(buckets):
                    pass

    def refused(self, namespace: str) -> list[str]:
        """The uids of pods of the namespace whose rules are too many."""
        return [uid for uid, _ in self._refused.get(namespace, ())]

    def admit(self, seen: PodSeen) -> list[str] | None:
        """Tracks the rules of a pod that was refused, if there are few enough now or it has a node. Returns what
        add_rules() returns; None: it is still refused."""
        refused, rules = self._refused[seen.namespace], seen.spec.rules
        if rules is None or (
            not seen.node and not self._index.admits(seen.namespace, rules.peers())
        ):
            return None
        del refused[seen.uid, seen.spec]
        if not refused:
            del self._refused[seen.namespace]
        return self._track(seen)

    def tracks(self, seen: PodSeen) -> bool:
        return (seen.uid, seen.spec) not in self._refused.get(seen.namespace, ())

    def _forget_matches(self, buckets: Iterable[RuleBucket]) -> Iterator[tuple[str, Labels]]:
        """Forgets the matches of the pods in the buckets; yields their namespaces and labels."""
        for namespace, labels in self._labels.inside(buckets):
            for leaving in (False, True):
                self._matched.pop((namespace, labels, leaving), None)
            yield namespace, labels

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
        if not self._index.reading_namespaces:
            return False
        for labels_of_pods in self._labels.of(name):
            for leaving in (False, True):
                self._matched.pop((name, labels_of_pods, leaving), None)
        return True

    def pods_of(self, namespace: str) -> list[str]:
        """The uids of all pods of the namespace."""
        return [uid for uids in self._labels.of(namespace).values() for uid in sorted(uids)]

    def update_index(self, seen: PodSeen | None, before: PodSeen | None) -> list[str]:
        """Indexes a pod by labels and claims; seen is None if it is gone, before if it is new. Returns
        the uids of the pods that share a claim with it, now or before: their class may change."""
        mates: list[str] = []
        if (seen.claims if seen else ()) != (before.claims if before else ()):
            mates += self.storage.remove_pod(before) if before is not None else ()
            mates += self.storage.add_pod(seen) if seen is not None else ()
        pod, claims = seen or before, self.device_claims
        if claims.used or claims.served or (pod is not None and pod.device_claims):
            mates += self.device_claims.update_pod(seen, before)
        if seen is None or before is None or seen.labels != before.labels:
            self._index_labels(seen, before)
        return mates

    def _index_labels(self, seen: PodSeen | None, before: PodSeen | None) -> None:
        if before is not None:
            self._labels.remove(before.namespace, before.labels, before.uid)
            if not self._labels.has(before.namespace, before.labels):
                for leaving in (False, True):
                    self._matched.pop((before.namespace, before.labels, leaving), None)
        if seen is not None:
            self._labels.add(seen.namespace, seen.labels, seen.uid)

    def class_of(self, seen: PodSeen) -> PodSpec:
        """The class of the pod: one object for all pods of the class."""
        spec = self._with_volumes(seen) if seen.claims else seen.spec
        claims = self.device_claims
        if seen.device_claims or claims.used or claims.served:
            spec = self._with_devices(seen, spec)
        if self._refused and not self.tracks(seen):
            spec = replace(spec, rules=None, unsupported=spec.unsupported or _too_many(seen))
        if not self._pod_counts.ids:
            return self._class(spec, ())
        key = (seen.namespace, seen.labels, seen.deleting)
        matched = self._matched.get(key)
        if matched is None:
            ids = self._pod_counts.ids
            matched = tuple(
                sorted(
                    ids[peers]
                    for peers in self._index.near(*key[:2])
                    if self._match(peers, *key[:2], leaving=seen.deleting)
                )
            )
            if self._labels.has(*key[:2]):  # else no change of the rules would reach it
                self._matched[key] = matched
        return self._class(spec, matched)

    def _with_volumes(self, seen: PodSeen) -> PodSpec:
        volumes = self.storage.requirements(seen)
        if volumes == Volumes():
            return seen.spec
        unsupported = seen.spec.unsupported or volumes.why
        return replace(seen.spec, volumes=volumes, unsupported=unsupported)

    def _with_devices(self, seen: PodSeen, spec: PodSpec) -> PodSpec:
        claims = self.device_claims
        served = dict(claims.by_claim(seen))
        devices, charges = claims.needs(seen), claims.charges(seen, served)
        if served:
            spec = _without(spec, served)
        if devices is None:
            return replace(spec, charges=charges) if charges else spec
        unsupported = spec.unsupported or devices.why
        return replace(spec, devices=devices, charges=charges, unsupported=unsupported)

    def _match(self, peers: Peers, namespace: str, labels: Labels, *, leaving: bool) -> bool:
        namespace_labels = self._namespaces.get(namespace)
        if namespace_labels is None:
            namespace_labels = {NAME: namespace}
        return peers.match(namespace, dict(labels), namespace_labels, leaving)


def _with_rules(spec: PodSpec, matched: tuple[int, ...]) -> PodSpec:
    """The class of pods that these rules match."""
    return replace(spec, matched=matched) if matched else spec


def _without(spec: PodSpec, served: Mapping[str, int]) -> PodSpec:
    """The class without requests that a claim serves."""
    requests = tuple(each for each in spec.requests if each[0] not in served)
    return replace(
        spec, requests=requests, gpu_containers=() if GPU in served else spec.gpu_containers
    )


def _too_many(seen: PodSeen) -> str:
    return (
        f"namespace {seen.namespace} has {RULES_ALIKE} other affinity, anti-affinity or spread rules that are compared "
        "with the same pods; select pods by a label value that few rules name, or use fewer rules"
    )
