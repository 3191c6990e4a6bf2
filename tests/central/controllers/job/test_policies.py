"""Policies: which event brings which action, for whom, and when."""

from dataclasses import replace

import pytest

from central.controllers.job.state_machine import Cause, on_action
from central.kube.decode.quantities import parse_time
from central.model.jobspec import RESTART_JOB, RUNNING, JobSpec, JobStatus
from central.scheduler.inventory.pods import EVICTED
from tests.central.controllers.job.job_api import Api, Json, job

DONE = {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}


def started(raw: Json, **more: int) -> Api:
    api = Api(**more)
    api.apply(raw)
    api.settle()
    assert api.phase() == "Running"
    return api


def uids(api: Api) -> dict[str, str]:
    return {name: api.there["Pod", name]["metadata"]["uid"] for name in api.pods()}


def recreated(api: Api, before: dict[str, str]) -> set[str]:
    return {name for name, uid in uids(api).items() if before.get(name) != uid}


def test_the_master_is_done_and_the_workers_are_cleaned() -> None:
    api = started(job({"m": 1, "w": 3}, of={"m": DONE}))
    api.end("j-m-0")
    api.settle()
    assert api.phase() == "Completed"
    assert api.pods() == {"j-m-0": "Succeeded"}, "its output is kept"
    assert api.status()["succeeded"] == 1
    [group] = api.names("PodGroup")
    gang = api.cluster.state.gangs["ns", group, True]
    assert gang.published.state[0] == "Completed", "not Unschedulable"
    assert "job j is Completed: all 1 pods of task m succeeded" in str(gang.published.state[1])


def test_one_pods_restart_is_not_noticed_by_the_others() -> None:
    api = started(job({"w": 3}, "PodFailed RestartPod"))
    before = uids(api)
    api.end("j-w-1", 7)
    api.settle()
    assert recreated(api, before) == {"j-w-1"}
    assert api.phase() == "Running"
    assert api.status()["podRestarts"] == {"j-w-1": 1}
    assert (api.status()["version"], api.status()["retryCount"]) == (0, 0)
    assert [one["status"] for one in api.status()["conditions"]] == ["Pending", "Running"]


def test_every_pod_has_its_own_restarts() -> None:
    """maxRetry is no budget that many pods share."""
    api = started(job({"w": 4}, "PodFailed RestartPod", maxRetry=2))
    for name in ("j-w-0", "j-w-1", "j-w-2"):
        api.end(name, 1)
        api.settle()
        assert api.phase() == "Running"
    api.end("j-w-0", 1)
    api.settle()
    assert api.phase() == "Failed"
    assert "j-w-0 was recreated 1 times (spec.maxRetry 2)" in api.status()["state"]["message"]


def test_a_task_or_a_partition_is_recreated() -> None:
    parts = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}
    api = started(job({"m": 1, "w": 4}, "3 RestartTask", "4 RestartPartition", of={"w": parts}))
    before = uids(api)
    api.end("j-w-3", 4)
    api.settle()
    assert recreated(api, before) == {"j-w-2", "j-w-3"}
    before = uids(api)
    api.end("j-w-0", 3)
    api.settle()
    assert recreated(api, before) == {f"j-w-{i}" for i in range(4)}


def test_a_job_restarts_as_a_whole_and_only_so_often() -> None:
    api = started(job({"m": 1, "w": 2}, "PodFailed RestartJob", maxRetry=3))
    for version in ("1", "2"):
        before = uids(api)
        api.end("j-w-0", 1)
        api.settle()
        if version == "2":
            api.wait(15.0)
        assert recreated(api, before) == set(before)
        assert api.annotation("j-m-0", "volcano.sh/job-version") == version
        assert api.phase() == "Running"
    api.end("j-w-0", 1)
    api.settle()
    assert api.phase() == "Failed"
    assert api.status()["retryCount"] == 3
    assert api.pods() == {"j-w-0": "Failed"}, "the last failure stays to be read"
    assert api.status()["state"]["message"].endswith("restart 3 of at most 3")


@pytest.mark.long
@pytest.mark.parametrize("falls", [False, True])
def test_a_job_that_fails_soon_waits_longer_before_each_restart(falls: bool) -> None:
    """Its GPUs are free meanwhile. A restart of the scheduler changes no time."""
    api = started(job({"w": 2}, "PodFailed RestartJob", maxRetry=9))
    for least in (0, 10, 20, 40, 80, 160, 300, 300):
        before, failed_at = uids(api), api.now
        api.end("j-w-0", 1)
        api.settle()
        if least:
            assert (api.phase(), api.pods()) == ("Restarting", {})
            retry_at = api.status()["retryAt"]
            assert api.status()["state"]["message"].endswith(f"not before {retry_at}")
            if falls:
                api.fall()
            while api.now + 1 < parse_time(retry_at):
                api.step()
                assert api.pods() == {}
            assert least <= api.now + 1 - failed_at <= 1.5 * least + 3
        api.settle()
        assert recreated(api, before) == set(before)
        assert api.phase() == "Running"
        assert "retryAt" not in api.status()


def test_jobs_that_fail_together_do_not_restart_together() -> None:
    spec = JobSpec("ns", "j", "")
    failed = replace(JobStatus(RUNNING, since=0.0), retries=4, conditions=((RUNNING, 0.0),))
    cause = Cause("PodFailed", "")
    times = {
        on_action(
            replace(spec, uid=f"uid-{number}", max_retry=9), failed, RESTART_JOB, cause, 5.0
        ).retry_at
        for number in range(200)
    }
    assert (min(filter(None, times)), max(filter(None, times))) == (85.0, 124.0)
    assert len(times) > 30


@pytest.mark.parametrize(("ran_s", "waits"), [(599.0, True), (600.0, False)])
def test_a_job_that_ran_for_ten_minutes_restarts_at_once(ran_s: float, waits: bool) -> None:
    spec = JobSpec("ns", "j", "u", max_retry=9)
    failed = replace(JobStatus(RUNNING), retries=4, conditions=((RUNNING, 100.0),))
    after = on_action(spec, failed, RESTART_JOB, Cause("PodFailed", ""), 100.0 + ran_s)
    assert (after.retry_at is not None) is waits
    for reason in ("Command", "JobUpdated"):
        asked = on_action(spec, failed, RESTART_JOB, Cause(reason, ""), 101.0)
        assert asked.retry_at is None


def test_a_pod_that_the_scheduler_evicts_is_no_failure() -> None:
    """However often somebody more urgent comes."""
    api = started(job({"w": 2}, "PodEvicted RestartJob", maxRetry=2))
    for version in ("1", "2", "3"):
        api.cluster.state.pods[uids(api)["j-w-0"]].advance(EVICTED)  # as preemption does
        api.evict("j-w-0")
        api.settle()
        assert api.phase() == "Running"
        assert api.annotation("j-w-1", "volcano.sh/job-version") == version
    assert api.status()["retryCount"] == 0
    for _ in range(2):  # somebody else's eviction counts
        api.evict("j-w-0")
        api.settle()
    assert api.phase() == "Failed"


def test_old_pods_leave_before_new_ones_come() -> None:
    api = started(job({"w": 2}, "PodFailed RestartJob"))
    api.grace_steps = 5
    api.end("j-w-0", 1)
    api.step()
    api.step()
    api.step()
    assert api.phase() == "Restarting"
    assert api.status()["terminating"] == 1, "what had failed is gone already"
    api.settle()
    assert api.phase() == "Running"


def test_the_tasks_own_policy_goes_first() -> None:
    own = {"policies": [{"event": "PodFailed", "action": "RestartPod"}]}
    api = started(job({"a": 1, "b": 1}, "* AbortJob", of={"a": own}))
    api.end("j-a-0", 1)
    api.settle()
    assert api.phase() == "Running"
    api.end("j-b-0", 1)
    api.settle()
    assert api.phase() == "Aborted"


def test_what_is_finished_counts_before_what_broke() -> None:
    api = started(job({"m": 1, "w": 2}, "PodEvicted RestartJob", of={"m": DONE}))
    api.end("j-m-0")
    api.evict("j-w-0")
    api.settle()
    assert api.phase() == "Completed"


def test_exit_codes() -> None:
    api = started(job({"w": 2}, "137 RestartPod", "1 AbortJob", "PodFailed TerminateJob"))
    before = uids(api)
    api.end("j-w-0", 137)
    api.settle()
    assert recreated(api, before) == {"j-w-0"}
    api.end("j-w-0", 1)
    api.settle()
    assert api.phase() == "Aborted"
    assert "pod j-w-0 failed with exit code 1: AbortJob" in api.status()["state"]["message"]
    other = started(job({"w": 2}, "137 RestartPod", "PodFailed TerminateJob"))
    other.end("j-w-0", 2)
    other.settle()
    assert other.phase() == "Terminated"


@pytest.mark.parametrize("grace", [0, 40])
def test_an_evicted_pod_counts_as_soon_as_it_must_go(grace: int) -> None:
    api = started(job({"w": 2}, "PodEvicted AbortJob"))
    api.grace_steps = grace
    api.evict("j-w-0")
    api.step()
    api.step()
    api.step()
    assert api.phase() == ("Aborting" if grace else "Aborted")


def test_a_timeout_gives_time_to_recover() -> None:
    api = started(job({"w": 2}, "PodFailed AbortJob 60s"))
    api.end("j-w-0", 1)
    api.settle()
    api.wait(30)
    assert api.phase() == "Running"
    api.wait(60)
    assert api.phase() == "Aborted"
    # An evicted pod that runs again in time is forgiven.
    other = started(job({"w": 2}, "PodEvicted AbortJob 60s"))
    other.evict("j-w-0")
    other.settle()
    assert other.pods()["j-w-0"] == "Running"
    other.wait(200)
    assert other.phase() == "Running"


def test_a_pod_that_stays_pending() -> None:
    """As users write it: fail, or start again, where no room is found for so long."""
    raw = job({"w": 2}, "PodPending AbortJob 10m", cpu="1000")
    api = Api()
    api.apply(raw)
    api.settle()
    api.wait(500)
    assert api.phase() == "Pending"
    api.wait(200)
    assert api.phase() == "Aborted"
    assert "is pending: AbortJob" in api.status()["state"]["message"]


def test_containers_that_restart_too_often_fail_their_task() -> None:
    failed = {"policies": [{"event": "TaskFailed", "action": "TerminateJob"}], "maxRetry": 5}
    api = started(job({"w": 2}, of={"w": failed}))
    api.restart_container("j-w-0", 2)
    api.restart_container("j-w-1", 2)
    api.settle()
    assert api.phase() == "Running"
    api.restart_container("j-w-1", 3)
    api.settle()
    assert api.phase() == "Terminated"


def test_a_gang_that_can_not_be_whole_again() -> None:
    """Unknown: some of it run, and no room is left for a pod that was lost."""
    api = Api(nodes=2, cpu=2000)
    api.apply(job({"w": 4}, "Unknown AbortJob", cpu="1"))
    api.settle()
    assert api.phase() == "Running"
    where = api.there["Pod", "j-w-0"]["spec"]["nodeName"]
    api.cordon(where)
    api.evict("j-w-0")
    api.settle()
    assert api.phase() == "Aborted"
    assert "of the gang are missing" in api.status()["state"]["message"]


def test_a_job_that_is_changed() -> None:
    api = started(job({"w": 2}, "JobUpdated RestartJob"))
    raw = api.job()
    [task] = raw["spec"]["tasks"]
    api.apply({**raw, "spec": {**raw["spec"], "tasks": [{**task, "replicas": 3}]}})
    api.settle()
    assert api.status()["version"] == 1
    assert len(api.pods()) == 3


def test_without_policies_what_is_lost_is_made_again_and_what_failed_stays() -> None:
    api = started(job({"w": 3}))
    api.evict("j-w-0")
    api.settle()
    assert len(api.pods()) == 3
    api.end("j-w-1", 1)
    api.settle()
    assert api.phase() == "Running"
    api.end("j-w-0")
    api.end("j-w-2")
    api.settle()
    assert api.phase() == "Failed"
    assert api.status()["state"]["reason"] == "TaskFailed"


def lost_unseen(api: Api, *pods: str) -> None:
    """They are deleted while no scheduler runs."""
    for _ in range(15):
        api.step()
    for name in pods:
        del api.there["Pod", name]
    api.fall()
    for _ in range(50):
        api.step()


def test_each_task_that_lost_pods_while_no_scheduler_ran_is_restarted() -> None:
    api = Api()
    api.apply(job({"a": 2, "b": 2}, "PodEvicted RestartTask"))
    lost_unseen(api, "j-a-0", "j-b-0")
    assert api.status()["podRestarts"] == {"j-a-0": 1, "j-a-1": 1, "j-b-0": 1, "j-b-1": 1}


def test_a_job_completes_whose_lost_pods_came_back_before_their_policy_was_due() -> None:
    api = Api()
    api.apply(job({"a": 2}, "PodEvicted RestartPod 20s"))
    lost_unseen(api, "j-a-0")
    for name in ("j-a-0", "j-a-1"):
        api.end(name)
    for _ in range(20):
        api.step()
    assert api.phase() == "Completed"
