"""The whole state machine, as a table: what each action makes of a Job in each phase, whether a
policy brings it or a Command. Every phase, every event, every action."""

import itertools
from dataclasses import replace

import pytest

from central.controllers.composite import jobs_of
from central.controllers.job import control, job_status, state_machine
from central.controllers.job.job import Job
from central.controllers.job.pod_tally import PodTally, TaskTally
from central.controllers.job.rate_limit import StatusRateLimiter
from central.controllers.job.state_machine import Cause
from central.kube.decode import job_decoder
from central.model.decisions import Create, Delete, SetStatus
from central.model.facts import PodSeen
from central.model.jobspec import (
    ACTIONS,
    ANY,
    EVENTS,
    FINISHED,
    GANG_UNKNOWN,
    JOB_UPDATED,
    PENDING,
    PHASES,
    POD_EVICTED,
    POD_FAILED,
    POD_PENDING,
    RESTART_POD,
    RESTARTING,
    RUNNING,
    TASK_COMPLETED,
    TASK_FAILED,
    JobMember,
    JobSpec,
    JobStatus,
    TaskSpec,
)
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.attempt import AttemptColumns
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.controllers.job import job_api

# What stands under an action is the phase that it leads to; "." changes nothing; "anew": the phase
# stays, and only the pods that are meant are made anew.
TABLE = """
             AbortJob  TerminateJob  CompleteJob  RestartJob  ResumeJob   RestartTask RestartPod RestartPartition
Pending      Aborting  Terminating   Completing   Restarting  .           anew        anew       anew
Running      Aborting  Terminating   Completing   Restarting  .           anew        anew       anew
Restarting   Aborting  Terminating   Completing   .           .           .           .          .
Aborting     .         Terminating   .            .           Restarting  .           .          .
Aborted      .         Terminating   .            .           Restarting  .           .          .
Completing   .         .             .            .           .           .           .          .
Completed    .         .             .            .           .           .           .          .
Terminating  .         .             .            .           .           .           .          .
Terminated   .         .             .            .           .           .           .          .
Failed       .         .             .            .           .           .           .          .
"""
_HEAD, *_ROWS = [line.split() for line in TABLE.strip().splitlines()]
LEADS_TO = {
    (row[0], action): cell for row in _ROWS for action, cell in zip(_HEAD, row[1:], strict=True)
}
PAIRS = list(itertools.product(PHASES, ACTIONS))


def test_the_table_is_whole() -> None:
    assert set(LEADS_TO) == set(PAIRS)


@pytest.mark.parametrize(("phase", "action"), PAIRS)
def test_an_action_leads_where_the_table_says(phase: str, action: str) -> None:
    spec, before = JobSpec("ns", "j", "u", max_retry=3), JobStatus(phase, version=1)
    after = state_machine.on_action(
        spec, before, action, Cause("PodFailed", "p failed", ("p",)), 9.0
    )
    match LEADS_TO[phase, action]:
        case ".":
            assert after is before
        case "anew":
            assert (after.phase, after.version) == (phase, 1)
            assert after.restarts == (("p", 1),)
        case to:
            assert (after.phase, after.since) == (to, 9.0)
            assert after.conditions[-1] == (to, 9.0)
            assert after.version == (2 if to == "Restarting" else 1)


# --- by policies ------------------------------------------------------------------------

NAMES = ("j-a-0", "j-b-0", "j-b-1")
NOW = 100.0


def case(phase: str, event: str, action: str) -> tuple[Job, Gang]:
    """A Job of three pods in the phase, to which that just happened."""
    timeout = " 1s" if event == POD_PENDING else ""
    raw = job_api.job({"a": 1, "b": 2}, f"{event} {action}{timeout}", maxRetry=5)
    raw["spec"]["minAvailable"] = 3 if phase == PENDING else 1
    raw["metadata"]["uid"] = "u"
    seen = job_decoder.decode_job(raw)
    old = phase == RESTARTING
    usual = PENDING if phase == PENDING else RUNNING
    phases = dict.fromkeys(NAMES, usual) | _phases(event)
    pods = {
        "uid-" + name: factories.pod(
            name,
            phase=state,
            node="" if state == PENDING else "n",
            created=NOW - 50 if event == POD_PENDING else NOW,
            part=JobMember(
                "j",
                "u",
                name.split("-")[1],
                int(name[-1]),
                version=0 if old else 1,
                restarts=3 if event == TASK_FAILED else 0,
            ),
        )
        for name, state in phases.items()
    }
    found = Job(replace(seen, status=JobStatus(phase, version=1)), pods)
    found.is_new = False
    if event == POD_EVICTED:
        found.on_pod_gone(pods["uid-j-b-0"], NOW)
    found.spec_changed = event == JOB_UPDATED
    return found, _gang(list(pods.values()), unknown=event == GANG_UNKNOWN)


def _phases(event: str) -> dict[str, str]:
    match event:
        case _ if event in (POD_FAILED, ANY):
            return {"j-b-0": "Failed"}
        case _ if event == POD_PENDING:
            return {"j-a-0": "Running", "j-b-0": "Pending", "j-b-1": "Running"}
        case _ if event == TASK_COMPLETED:
            return {"j-b-0": "Succeeded", "j-b-1": "Succeeded"}
        case _:
            return {}


def _gang(pods: list[PodSeen], *, unknown: bool) -> Gang:
    gang = Gang(("ns", "j-u", True), AttemptColumns())
    gang.object = factories.gang("j-u", 3)
    for seen in pods:
        gang.members[seen.uid] = pod = Pod(seen, seen.spec)
        pod.node = seen.node
    if unknown:
        gang.started, gang.attempt.reason = True, "no room"
        gang.object = factories.gang("j-u", 9)
        gang.members["uid-j-a-0"].seen = replace(pods[0], phase="Running", node="n")
    return gang


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(("phase", "action"), PAIRS)
def test_an_event_brings_its_action_where_policies_hold(
    phase: str, event: str, action: str
) -> None:
    """Policies hold while the Job is Pending or Running. One that is stopping, stopped or over is
    not moved by what happens to its pods: what ended stays, what runs is stopped."""
    found, gang = case(phase, event, action)
    found.gang_reason = gang.attempt.reason
    decisions = control.decide(found, gang, StatusRateLimiter(), NOW)
    [state] = [one.status for one in decisions if isinstance(one, SetStatus)]
    leads_to = LEADS_TO[phase, action] if phase in state_machine.ACTIVE else "."
    match leads_to:
        case ".":
            assert (state["state"]["phase"], state["version"]) == (phase, 1)
            assert "podRestarts" not in state
        case "anew":
            assert (state["state"]["phase"], state["version"]) == (phase, 1)
            assert set(state["podRestarts"]) == meant(event, action)
        case to:
            assert state["state"]["phase"] == to
            assert state["state"]["reason"] == (POD_FAILED if event == ANY else event)
            assert not [one for one in decisions if isinstance(one, Create) and one.kind == "Pod"]
            assert not [one for one in decisions if isinstance(one, Delete)], "first it is written"


def meant(event: str, action: str) -> set[str]:
    """Whom a targeted restart makes anew: what concerns a whole task, or the Job, restarts that."""
    if event in (GANG_UNKNOWN, JOB_UPDATED):
        return set(NAMES)
    if event == TASK_FAILED:
        return {"j-a-0"}
    if event in (POD_FAILED, POD_EVICTED, POD_PENDING, ANY) and action == RESTART_POD:
        return {"j-b-0"}
    return {"j-b-0", "j-b-1"}


# --- what becomes of a Job by itself ---------------------------------------------------

SETTLED = """
phase       pods: pending running succeeded failed  alive old   leads to
Pending           2       0       0         0       2     0     Pending
Pending           1       1       0         0       2     0     Pending
Pending           0       2       0         0       2     0     Running
Pending           0       1       1         0       1     0     Running
Pending           0       0       1         1       0     0     Running
Running           0       2       0         0       2     0     Running
Running           0       1       1         0       1     0     Running
Running           0       0       2         0       0     0     Completed
Running           0       0       1         1       0     0     Failed
Running           0       0       0         2       0     0     Failed
Running           1       1       0         0       2     0     Pending
Restarting        0       0       0         0       2     2     Restarting
Restarting        0       0       0         0       0     1     Restarting
Restarting        0       0       0         0       0     0     Pending
Aborting          0       0       0         0       1     0     Aborting
Aborting          0       0       1         0       0     0     Aborted
Completing        0       0       1         0       1     0     Completing
Completing        0       0       1         0       0     0     Completed
Terminating       0       0       0         0       1     0     Terminating
Terminating       0       0       0         1       0     0     Terminated
Aborted           0       0       0         0       0     0     Aborted
Completed         0       0       2         0       0     0     Completed
Terminated        0       0       0         0       0     0     Terminated
Failed            0       0       0         0       0     0     Failed
"""


@pytest.mark.parametrize("line", SETTLED.strip().splitlines()[1:])
def test_a_job_goes_where_its_pods_are(line: str) -> None:
    """Of a Job of two pods, both of which must start."""
    phase, *numbers, leads_to = line.split()
    pending, running, succeeded, failed, alive, old = map(int, numbers)
    counts = PodTally(pending, running, succeeded, failed, alive=alive, outdated=old)
    counts.unfinished = pending + running
    spec = JobSpec("ns", "j", "u", (TaskSpec("t", 2, 1, {}),), min_available=2)
    counts.tasks["t"] = TaskTally(succeeded=succeeded)
    before = JobStatus(phase)
    after = state_machine.on_counts(spec, before, counts, 9.0)
    assert after.phase == leads_to
    assert (after is before) == (leads_to == phase)


def test_what_is_over_stays_over() -> None:
    for phase in FINISHED:
        assert not state_machine.TRANSITIONS[phase]


def test_evictions_by_the_scheduler_count_for_no_retry_of_a_pod() -> None:
    """Also when a failure follows them, and after a restart of the scheduler."""
    spec = JobSpec("ns", "j", "u", max_retry=3, tasks=(TaskSpec("w", 1, 1, {}),))
    status = JobStatus(phase=RUNNING)
    evicted = Cause(POD_EVICTED, "evicted", ("j-w-0",), excused=True)
    for _ in range(3):
        status = state_machine.on_action(spec, status, RESTART_POD, evicted, 10.0)
    api = job_api.Api()
    api.apply(job_api.job({"w": 1}))
    api.settle()
    written = job_status.build_status(jobs_of(api.cluster).by_name["ns", "j"], status, PodTally())
    status = job_decoder.decode_job({**api.job(), "status": written}).status
    failed = Cause(POD_FAILED, "failed", ("j-w-0",))
    for _ in range(2):
        status = state_machine.on_action(spec, status, RESTART_POD, failed, 20.0)
        assert status.phase == RUNNING
    status = state_machine.on_action(spec, status, RESTART_POD, failed, 30.0)
    assert (status.phase, status.message) == (
        "Failed",
        "failed; j-w-0 was recreated 2 times (spec.maxRetry 3)",
    )
