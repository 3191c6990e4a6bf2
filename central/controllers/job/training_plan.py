"""The scheduler's plan for the coordinator of an elastic Job: its members, the places of their pods, and who leaves
by when.

Design: docs/design/coordinator.md
"""

from dataclasses import dataclass

from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.job.pod_tally import ENDED
from central.controllers.job.state_machine import ACTIVE
from central.model.facts import PodSeen
from central.model.jobspec import RESTARTING
from central.model.resources import GPU_UNITS
from central.model.work_left import STEPS
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The place of a member's pod. path: its domains, widest first, then the node, in an order that can be compared."""

    member: int
    pod: str
    uid: str
    path: tuple[str, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """leave_by: in seconds since 1970; None: no member leaves."""

    namespace: str
    name: str
    uid: str
    generation: int
    members: tuple[int, ...]
    places: tuple[PodPlace, ...]
    least: int
    leave_by: float | None = None
    reason: str = ""
    over: bool = False
    cause: str = ""  # of the latest change of members, as a label of metrics; empty: unknown
    queue: str = ""
    gpus: float = 0.0  # GPU equivalents of one member
    counts_steps: bool = False  # the scheduler wants to know how many were taken


def changed(
    jobs: JobStore, state: ClusterState, currency: GpuCurrency
) -> dict[tuple[str, str], dict[str, TrainingPlan]]:
    """Returns the plans of the Jobs that were reconciled since the last call, by the uid of each pod that may ask for
    them. Empty if the Job is gone or has no coordinator."""
    found = {}
    for key in jobs.replanned:
        job = jobs.by_name.get(key)
        asking = _coordinators(job) if job is not None else []
        found[key] = (
            dict.fromkeys(asking, plan_of(job, state, currency))
            if job is not None and asking
            else {}
        )
    jobs.replanned.clear()
    return found


def _coordinators(job: Job) -> list[str]:
    elastic = job.seen.spec.elastic
    if elastic is None or not elastic.coordinator:
        return []
    return [
        uid
        for uid, pod in job.pods.items()
        if pod.part is not None
        and pod.part.task == elastic.coordinator
        and pod.part.version == job.status.version
    ]


def plan_of(job: Job, state: ClusterState, currency: GpuCurrency) -> TrainingPlan:
    elastic, spec, status = job.seen.spec.elastic, job.seen.spec, job.status
    assert elastic is not None
    members = job.members
    places: dict[int, PodPlace] = {}
    worth = 0
    for pod in job.pods.values():
        part = pod.part
        if part is None or part.task != elastic.task or part.version != status.version:
            continue
        known = places.get(part.index)
        if known is None or known.ended:
            places[part.index] = _place(pod, part.index, state)
            worth = currency.worth(pod.spec.requests)
    gang = state.gangs.get((spec.namespace, job.group, True))
    return TrainingPlan(
        spec.namespace,
        spec.name,
        spec.uid,
        status.generation,
        members,
        tuple(places[number] for number in sorted(places.keys() & set(members))),
        elastic.least,
        min(job.leave_by.values(), default=None),
        status.resized,
        status.phase not in (*ACTIVE, RESTARTING),
        status.cause,
        gang.queue_name if gang is not None else "",
        worth / GPU_UNITS,
        elastic.work_left is not None and elastic.work_left.kind == STEPS,
    )


def _place(pod: PodSeen, member: int, state: ClusterState) -> PodPlace:
    row = state.snapshot.columns.row.get(pod.node) if pod.node else None
    domains = state.snapshot.columns.domains
    path = (*domains.path(row), pod.node) if row is not None else ()
    ended = pod.deleting or pod.phase in ENDED
    return PodPlace(member, pod.name, pod.uid, path, ended)
