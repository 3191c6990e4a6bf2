"""Facts about objects of controllers of pods whose size the scheduler decides."""

from dataclasses import dataclass
from typing import NamedTuple

from central.model.jobspec import ElasticTask

# Which pods their controller deletes first when the size becomes smaller: the highest numbers, those with the lowest
# deletion cost, the newest, or those that are named when the size is written.
BY_INDEX, BY_COST, NEWEST, BY_NAME = "by-index", "by-cost", "newest", "by-name"


class SizedKind(NamedTuple):
    api_version: str
    field: str  # that has the size, for messages


SIZED_KINDS = {
    "Deployment": SizedKind("apps/v1", "spec.replicas"),
    "ReplicaSet": SizedKind("apps/v1", "spec.replicas"),
    "StatefulSet": SizedKind("apps/v1", "spec.replicas"),
    "Job": SizedKind("batch/v1", "spec.parallelism"),
    "JobSet": SizedKind("jobset.x-k8s.io/v1alpha2", "the parallelism of a replicatedJob"),
    "LeaderWorkerSet": SizedKind("leaderworkerset.x-k8s.io/v1", "spec.replicas"),
    "RayCluster": SizedKind("ray.io/v1", "the replicas of a worker group"),
}


@dataclass(frozen=True, slots=True)
class ElasticSeen:
    """An object of one of SIZED_KINDS with the annotation lockstep.dev/elastic-min. Its sizes count pods here; what is
    written are units of equally many pods."""

    kind: str
    namespace: str
    name: str
    uid: str
    gang: str  # of its pods: deployment/web
    task: ElasticTask  # its range in pods; the task has the name of the object
    size: int  # pods that its spec asks for; 0: it is switched off or has ended, and nothing is decided
    leaves: str = BY_COST  # BY_INDEX, BY_COST, NEWEST or BY_NAME
    completions: bool = False  # spec.completions of the Job follows spec.parallelism
    ends: bool = False  # when one of its pods has succeeded, no more are created
    error: str = ""  # the invalid field and why; its size stays as it is
    role: str = ""  # of the pods whose number varies; empty: of all
    unit: int = 1  # pods that come and go together: of a LeaderWorkerSet a group
    # Labels of pods: the index of the unit, and of the pod in it. Empty: the pod's rank, and 0.
    indexes: tuple[str, str] = ("", "")
    place: int = 0  # of the role in the object's list of them
    ceiling: int = (
        0  # an autoscaler of the object's own decides the size up to this; 0: there is none
    )

    @property
    def set_size(self) -> int:
        """Pods, by the field that is written."""
        return self.ceiling or self.size


@dataclass(frozen=True, slots=True)
class ElasticGone:
    """The object is gone, or its size is not decided here."""

    kind: str
    namespace: str
    name: str
