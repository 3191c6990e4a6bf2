"""Kubernetes' own controllers, as far as placement is concerned: batch Jobs, ReplicaSets (also of Deployments)
and StatefulSets. They say how many pods should exist and which one comes next; the simulator and the local cluster
create and delete them.

Design: docs/design/simulation.md
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from central.model.json_types import Json

INDEX = "batch.kubernetes.io/job-completion-index"
NO_END = 10**9  # completions of a Job that ends when one of its pods has succeeded


@dataclass(slots=True)
class BuiltinController:
    kind: str  # Job, ReplicaSet, StatefulSet
    raw: Json
    pods: dict[str, str] = field(default_factory=dict)  # names by uid, of pods that have not ended
    done: set[str] = field(default_factory=set)  # names of succeeded pods
    names: set[str] = field(default_factory=set)  # taken names
    upcoming: int = 0  # all lower numbers are taken
    over: bool = False

    @property
    def place(self) -> tuple[str, str]:
        meta = self.raw["metadata"]
        return meta["namespace"], meta["name"]

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def wanted(self) -> int:
        """Returns how many pods should run now."""
        spec = self.raw["spec"]
        if self.over or spec.get("suspend") is True:
            return 0
        if self.kind != "Job":
            return int(spec.get("replicas", 1))
        left = self.completions - len(self.done)
        if self.completions == NO_END and self.done:
            return len(self.pods)  # the work is done; the other pods end by themselves
        return min(int(spec.get("parallelism", 1)), left)

    @property
    def completions(self) -> int:
        spec = self.raw["spec"]
        return int(spec.get("completions", NO_END if "parallelism" in spec else 1))

    @property
    def numbered(self) -> bool:
        """Returns whether pods have identities: a recreated pod keeps its number."""
        indexed = self.raw["spec"].get("completionMode") == "Indexed"
        return self.kind == "StatefulSet" or indexed

    @property
    def one_by_one(self) -> bool:
        """Returns whether the next pod is created only when all others run."""
        parallel = self.raw["spec"].get("podManagementPolicy") == "Parallel"
        return self.kind == "StatefulSet" and not parallel

    def completed(self) -> bool:
        """Returns whether the Job has just completed."""
        if self.kind != "Job" or self.over or self.pods or not self.done:
            return False
        self.over = self.completions == NO_END or len(self.done) >= self.completions
        return self.over

    def next(self) -> Json:
        """The manifest of one more pod."""
        name = self.raw["metadata"]["name"]
        while f"{name}-{self.upcoming}" in self.names:
            self.upcoming += 1
        return pod_of(self.kind, self.raw, self.upcoming)

    def add(self, uid: str, name: str, phase: str) -> None:
        if phase == "Failed":
            return  # it is replaced
        self.names.add(name)
        if phase == "Succeeded":
            self.done.add(name)
        else:
            self.pods[uid] = name

    def remove(self, uid: str, *, done: bool = False) -> None:
        name = self.pods.pop(uid, None)
        if name is not None and done:
            self.done.add(name)
        elif name is not None and self.numbered:
            self.names.discard(name)
            self.upcoming = 0

    def too_many(self) -> list[str]:
        """uids of pods to delete, highest number first. Of a ReplicaSet, replica_order says which."""
        uids = list(self.pods)
        if self.numbered:
            uids.sort(key=lambda uid: (len(self.pods[uid]), self.pods[uid]))
        return uids[self.wanted :][::-1]


class BuiltinControllers:
    """All controllers, and those that may have something to do."""

    def __init__(self) -> None:
        self._by_uid: dict[str, BuiltinController] = {}
        self._changed: dict[str, None] = {}

    def add(self, raw: Json) -> None:
        """Adds or changes a controller; its pods stay."""
        found = self._by_uid.setdefault(raw["metadata"]["uid"], BuiltinController(raw["kind"], raw))
        found.raw = raw
        found.over = found.over or _ended(raw)
        self._changed[found.uid] = None

    def resize(self, uid: str, size: int, *, completions: bool) -> Json | None:
        """The controller with this size; None: it is gone."""
        if (found := self._by_uid.get(uid)) is None:
            return None
        new = {"parallelism" if found.kind == "Job" else "replicas": size}
        new |= {"completions": size} if completions else {}
        found.raw = {**found.raw, "spec": {**found.raw["spec"], **new}}
        self._changed[uid] = None
        return found.raw

    def raw_of(self, uid: str) -> Json | None:
        found = self._by_uid.get(uid)
        return found.raw if found is not None else None

    def remove(self, uid: str) -> list[str]:
        """Removes a controller. Returns the uids of its pods, which are deleted with it."""
        found = self._by_uid.pop(uid, None)
        return list(found.pods) if found is not None else []

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def is_numbered(self, uid: str) -> bool:
        return uid in self._by_uid and self._by_uid[uid].numbered

    def pod_created(self, owner: str, uid: str, name: str, phase: str) -> None:
        if (found := self._by_uid.get(owner)) is not None:
            found.add(uid, name, phase)
            self._changed[owner] = None

    def pod_ended(self, owner: str, uid: str) -> None:
        if (found := self._by_uid.get(owner)) is not None:
            found.remove(uid, done=True)
            self._changed[owner] = None

    def pod_lost(self, owner: str, uid: str) -> None:
        if (found := self._by_uid.get(owner)) is not None:
            found.remove(uid)
            self._changed[owner] = None

    def pod_started(self, owner: str) -> None:
        """One of its pods runs now."""
        if (found := self._by_uid.get(owner)) is not None and found.one_by_one:
            self._changed[owner] = None

    def mark(self, uid: str) -> None:
        """Marks the controller for another look."""
        if uid in self._by_uid:
            self._changed[uid] = None

    def changed(self) -> Iterator[BuiltinController]:
        """Yields the controllers that may have something to do."""
        while self._changed:
            uid = next(iter(self._changed))
            del self._changed[uid]
            if uid in self._by_uid:
                yield self._by_uid[uid]


def replica_set(deployment: Json) -> Json:
    """A Deployment's ReplicaSet. It has the Deployment's name and annotations."""
    meta, spec = deployment["metadata"], deployment["spec"]
    owner = {"apiVersion": deployment["apiVersion"], "kind": "Deployment", "name": meta["name"]}
    return {
        "apiVersion": deployment["apiVersion"],
        "kind": "ReplicaSet",
        "metadata": {
            "name": meta["name"],
            "namespace": meta.get("namespace") or "default",
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [{**owner, "uid": meta.get("uid", ""), "controller": True}],
        },
        "spec": {"replicas": spec.get("replicas"), "template": spec.get("template")},
    }


def _ended(raw: Json) -> bool:
    """Returns whether the status, in a dump of a cluster, says that the Job has ended."""
    given = (raw.get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in given)


def pod_of(kind: str, raw: Json, number: int) -> Json:
    """The pod with this number, as the controller would create it."""
    meta, template = raw["metadata"], raw["spec"]["template"]
    given = template.get("metadata") or {}
    name = f"{meta['name']}-{number}"
    labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    if kind == "StatefulSet":
        labels |= {"statefulset.kubernetes.io/pod-name": name}
        labels |= {"apps.kubernetes.io/pod-index": str(number)}
    elif kind == "Job":
        labels |= {"job-name": meta["name"], "batch.kubernetes.io/job-name": meta["name"]}
        if raw["spec"].get("completionMode") == "Indexed":
            labels[INDEX] = annotations[INDEX] = str(number)
    owner = {"apiVersion": raw["apiVersion"], "kind": kind, "name": meta["name"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{**owner, "uid": meta["uid"], "controller": True}],
        },
        "spec": dict(template["spec"]),
    }
