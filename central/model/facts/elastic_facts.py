"""Facts about objects of Kubernetes' own controllers whose size the scheduler decides."""

from dataclasses import dataclass

from central.model.jobspec import ElasticTask

# Which pods their controller deletes first when the size becomes smaller.
BY_INDEX, BY_COST, NEWEST = "by-index", "by-cost", "newest"


@dataclass(frozen=True, slots=True)
class ElasticSeen:
    """A Deployment, ReplicaSet, StatefulSet or batch Job with the annotation lockstep.dev/elastic-min."""

    kind: str
    namespace: str
    name: str
    uid: str
    gang: str  # of its pods: deployment/web
    task: ElasticTask  # its range; the task has the name of the object
    size: int  # that its spec has; 0: it is switched off or has ended, and nothing is decided
    leaves: str = BY_COST  # BY_INDEX, BY_COST or NEWEST
    completions: bool = False  # spec.completions of the Job follows spec.parallelism
    ends: bool = False  # when one of its pods has succeeded, no more are created
    error: str = ""  # the invalid field and why; its size stays as it is


@dataclass(frozen=True, slots=True)
class ElasticGone:
    """The object is gone, or its size is not decided here."""

    kind: str
    namespace: str
    name: str
