"""Elastic Jobs as the autoscaler sees them, and the sizes that it decides."""

from dataclasses import replace

from central.controllers.job.fitted_speeds import most_on_a_node, with_measured
from central.controllers.job.job import Job, RequestedSize
from central.controllers.job.job_store import JobStore
from central.controllers.job.state_machine import ACTIVE
from central.scheduler.elastic.elastic_gang import ElasticGang, Resize, on_its_gpus
from central.scheduler.state.cluster_state import ClusterState


def elastic_gangs(jobs: JobStore, state: ClusterState) -> list[ElasticGang]:
    """Returns the elastic gangs of Jobs whose pods may be created, in no order."""
    found = (_view(job, state) for job in jobs.elastic.values())
    return [view for view in found if view is not None]


def _view(job: Job, state: ClusterState) -> ElasticGang | None:
    """Kept until the gang or a decision about its members changes."""
    task = job.seen.spec.elastic
    if task is None or not job.admitted or job.status.phase not in ACTIVE or job.seen.error:
        return None
    gang = state.gangs.get((job.seen.spec.namespace, job.group, True))
    if gang is None or gang.object is None:
        return None
    written = job.writing is None or job.writing.members == job.status.members
    settled = written and job.resize is None and not job.set_aside
    counts = gang.counts
    step = job.reported.step if job.reported is not None and task.work_left is not None else 0
    if job.reported is not None and (cost_s := job.reported.resize_cost_s) is not None:
        task = replace(task, cost_s=cost_s)
    own = [pod for pod in counts.placed if pod.seen.part and pod.seen.part.task == task.task]
    task = on_its_gpus(task, own, state.nodes)
    if own and job.reported is not None and job.reported.speeds:
        task = with_measured(task, job.reported.speeds, most_on_a_node(own, state.nodes))
    stamp = (
        id(counts),
        len(counts.placed),
        counts.succeeded,
        job.members,
        settled,
        task,
        job.status.resized,
        step,
    )
    if job.elastic_view[0] != stamp:
        view = ElasticGang.of(
            gang, task, job.members, settled=settled, why=job.status.resized, step=step
        )
        job.elastic_view = (stamp, (view, counts))  # which keeps the id
    found: ElasticGang = job.elastic_view[1][0]
    return found


def resize(jobs: JobStore, asked: Resize) -> None:
    job = jobs.by_group.get(asked.key[:2])
    if job is not None:
        job.resize = RequestedSize(asked.members, asked.why, asked.cause, asked.leave_s)
        jobs.changed[job.key] = None
