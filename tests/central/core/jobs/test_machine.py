"""The whole state machine, as a table: what each action makes of a Job in each phase, whether a
policy brings it or a Command. Every phase, every event, every action."""

import itertools

import pytest

from central.core.jobs import machine
from central.core.jobs.counts import Counts, TaskCounts
from central.core.jobs.machine import Cause
from central.core.jobs.spec import (
    ACTIONS,
    ANY,
    EVENTS,
    GANG_UNKNOWN,
    JOB_UPDATED,
    OVER,
    PHASES,
    POD_EVICTED,
    POD_FAILED,
    POD_PENDING,
    TASK_COMPLETED,
    TASK_FAILED,
    JobSpec,
    JobStatus,
    TaskSpec,
)
from tests.central.core.jobs.api import Api, job

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
    after = machine.moved(spec, before, action, Cause("PodFailed", "p failed", ("p",)), 9.0)
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


# How to bring a Job into each phase, and each event about in it.
def in_phase(phase: str, *policies: str) -> Api:
    api = Api()
    api.grace_steps = 1000 if phase.endswith("ing") and phase not in ("Pending", "Running") else 0
    tasks = {"a": 1, "b": 2}
    cpu = "1000" if phase == "Pending" else "100m"  # more than any node has
    api.apply(job(tasks, *policies, cpu=cpu, maxRetry=5))
    api.settle()
    if phase in ("Pending", "Running"):
        return api
    if phase == "Completed":
        for name in api.pods():
            api.end(name)
    elif phase == "Failed":
        for name in api.pods():
            api.end(name, 1)
    else:
        action = {"Abort": "AbortJob", "Compl": "CompleteJob", "Termi": "TerminateJob"}
        api.command(action.get(phase[:5], "RestartJob"))
    api.settle(most=10)
    return api


def bring_about(api: Api, event: str) -> bool:
    """Whether that can happen to it as it is."""
    pods = api.pods()
    if not pods and event != JOB_UPDATED:
        return False
    first = next(iter(pods), "")
    match event:
        case _ if event in (POD_FAILED, ANY):
            api.end(first, 1)
        case _ if event == POD_EVICTED:
            api.evict(first)
        case _ if event == TASK_COMPLETED:
            for name in pods:
                if "-b-" in name:
                    api.end(name)
        case _ if event == TASK_FAILED:
            api.restart_container(first, 3)
        case _ if event == JOB_UPDATED:
            raw = api.job()
            api.apply({**raw, "spec": {**raw["spec"], "minAvailable": 2}})
        case _:
            return False
    return True


HAPPEN = [event for event in EVENTS if event not in (POD_PENDING, GANG_UNKNOWN)]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("event", HAPPEN)
def test_every_event_brings_its_action_where_policies_hold(phase: str, event: str) -> None:
    """Policies hold while the Job is Pending or Running: then the table says what comes. A Job that
    is stopping, stopped or over is not moved by what happens to its pods."""
    for action in ACTIONS:
        wish = f"{event} {action}"
        # The policy comes with the event, or what led into the phase would have called for it.
        api = in_phase(phase)
        assert api.phase() == phase
        raw = api.job()
        spec = {**raw["spec"], "policies": job({}, wish)["spec"]["policies"]}
        api.apply({**raw, "spec": spec})
        if event != JOB_UPDATED:
            job_of = api.cluster.jobs
            api.step()
            job_of.by_name["ns", "j"].updated = False
        version, moved = api.status()["version"], api.phase()
        if event not in (JOB_UPDATED, ANY):
            assert moved == phase
        happened = bring_about(api, event)
        api.step()
        api.step()
        api.step()
        leads_to = LEADS_TO[phase, action] if phase in machine.ACTIVE else "."
        if not happened or (phase == "Pending" and event == TASK_FAILED):
            continue
        told = (phase, event, action, api.status())
        conditions = [one["status"] for one in api.status()["conditions"]]
        if leads_to == ".":
            assert api.status()["version"] == version, told
            assert not api.status().get("podRestarts"), told
        elif leads_to == "anew":
            assert api.status()["podRestarts"], told
            assert api.status()["version"] == version, told
        else:
            assert leads_to in conditions, told


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
    counts = Counts(pending, running, succeeded, failed, alive=alive, old=old)
    counts.unended = pending + running
    spec = JobSpec("ns", "j", "u", (TaskSpec("t", 2, 1, {}),), min_available=2)
    counts.tasks["t"] = TaskCounts(succeeded=succeeded)
    before = JobStatus(phase)
    after = machine.settled(spec, before, counts, 9.0)
    assert after.phase == leads_to
    assert (after is before) == (leads_to == phase)


def test_what_is_over_stays_over() -> None:
    for phase in OVER:
        assert not machine.MOVES[phase]
