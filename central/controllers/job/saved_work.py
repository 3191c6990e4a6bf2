"""The work of an elastic Job that checkpoints save: its coordinator reports when the newest one was complete, and
evicting a pod loses only later work. A checkpoint stays complete when the coordinator is silent."""

from central.controllers.job.job import Job
from central.scheduler.state.cluster_state import ClusterState


def record(job: Job, state: ClusterState) -> None:
    said = job.reported
    gang = state.gangs.get((job.seen.spec.namespace, job.group, True))
    if said is None or said.checkpoint is None or gang is None:
        return
    changed = [pod for pod in gang.members.values() if pod.work.saved_at != said.checkpoint]
    for pod in changed:
        pod.work = pod.work._replace(saved_at=said.checkpoint)
    if changed:
        state.pending.touch(gang)
