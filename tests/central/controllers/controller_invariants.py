"""Invariants of the controllers after every cycle, recomputed from scratch. Raises AssertionError."""

from central.controllers.command import CommandController, _target
from central.controllers.composite import BatchControllers
from central.controllers.elastic_objects import ElasticObjects
from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.job.state_machine import TRANSITIONS
from central.model.jobspec import FINISHED
from central.scheduler.state.cluster_state import ClusterState


def check(controllers: BatchControllers, state: ClusterState) -> None:
    _commands(controllers.commands)
    _elastic_objects(controllers.elastic)
    for each in (controllers.crons, controllers.flows):
        name = type(each).__name__
        assert each._alarms.keys() <= each.by_name.keys(), f"{name}: an alarm for a deleted object"
        assert not each._changed, f"{name}: a changed object was not reconciled"
    _jobs(controllers.jobs, state)


def _commands(commands: CommandController) -> None:
    issued, handled = commands._issued, commands._handled
    assert issued | handled <= commands.by_name.keys(), "state is kept for a deleted Command"
    targets = [_target(commands.by_name[key]) for key in issued - handled]
    assert len(targets) == len(set(targets)), "two Commands for one target are in progress"


def _elastic_objects(elastic: ElasticObjects) -> None:
    for name, known in elastic.by_name.items():
        assert known.name == name
        assert elastic.by_gang.get(known.key) is not None, "an elastic object has no entry"


def _jobs(jobs: JobStore, state: ClusterState) -> None:
    theirs: dict[tuple[str, str], dict[str, object]] = {}
    for pod in state.pods.values():
        if (part := pod.seen.part) is not None:
            theirs.setdefault((pod.seen.namespace, part.job_uid), {})[pod.seen.uid] = pod.seen
    for key, job in jobs.by_name.items():
        assert key == job.key, f"Job {job.key} is filed under {key}"
        assert job.pods == theirs.get((key[0], job.spec.uid), {}), (
            f"Job {key} has other pods than the state"
        )
        assert jobs.by_group.get((key[0], job.group)) is job, (
            f"Job {key} is not filed under its group"
        )
        _job(jobs, state, job)
    assert len(jobs.by_group) == len(jobs.by_name), "groups of deleted Jobs are kept"
    assert jobs.unadmitted.keys() <= jobs.by_name.keys(), "a deleted Job waits for admission"


def _job(jobs: JobStore, state: ClusterState, job: Job) -> None:
    key, status = job.key, job.status
    assert not status.phase or status.phase in TRANSITIONS, f"Job {key} is {status.phase}"
    if key in jobs.unadmitted:
        assert not job.admitted, f"Job {key} is admitted and waits for admission"
    made = {name for verb, (kind, name) in job.in_flight if (verb, kind) == ("Create", "Pod")}
    assert not made or job.admitted, f"Job {key} creates pods without admission"
    gang = state.gangs.get((key[0], job.group, True))
    if gang is None or gang.object is None or key in jobs.changed:  # the next cycle reconciles it
        return
    if status.phase in FINISHED and job.is_written:
        assert gang.published.override is not None, f"Job {key} is finished and its gang is not"
        assert gang.published.override[0] == "Completed", (
            f"Job {key} is finished and its gang {gang.published.override[0]}"
        )
