"""What an active Job has: its gang, its objects, its pods, as many as it wants; and what it says when
it can't have them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from central.controllers.composite import jobs_of
from central.model.decisions import Create, Decision, Delete, Patch, SetStatus
from central.model.facts import NamespaceSeen, PrioritySeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.server.queries import explain
from tests.central import factories
from tests.central.controllers.job.job_api import Api, job


def test_delayed_pods_come_when_the_queue_takes_the_gang() -> None:
    api = Api()
    api.tell(QueueSeen("small", capability=(("cpu", 300),)))
    api.apply(job({"w": 2}, name="a", queue="small"))
    api.settle()
    assert api.phase("a") == "Running"
    api.apply(job({"w": 2}, name="b", queue="small"))
    api.settle()
    assert list(api.pods()) == ["a-w-0", "a-w-1"]
    why = "queue small uses 0.2 of its capability of 0.3 cpu; 0.2 more are needed"
    assert api.status("b")["state"]["message"] == why
    assert (api.phase("b"), api.status("b")["state"]["reason"]) == ("Pending", "Waiting")
    [group] = [name for name in api.names("PodGroup") if name.startswith("b-")]
    assert api.cluster.state.gangs["ns", group, True].published.state[:2] == ("Pending", why)
    api.end("a-w-0")
    api.end("a-w-1")
    api.settle()
    assert api.phase("b") == "Running"


def test_admitted_jobs_leave_quota_for_jobs_ahead() -> None:
    """A node is missing: nobody runs, and still only as many pods are made as the queue takes."""
    api = Api(nodes=0)
    api.tell(QueueSeen("q", capability=(("cpu", 400),)))
    for number in range(6):
        api.apply(job({"w": 2}, name=f"j{number}", queue="q"))
    api.settle()
    assert sorted(api.pods()) == ["j0-w-0", "j0-w-1", "j1-w-0", "j1-w-1"]
    assert "is already claimed by jobs ahead of this one" in api.status("j2")["state"]["message"]


def test_a_more_urgent_job_gets_pods_where_it_may_replace_one_of_its_queue() -> None:
    api = Api()
    api.tell(QueueSeen("small", capability=(("cpu", 300),)))
    api.tell(PrioritySeen("high", 10))
    api.apply(job({"w": 2}, name="a", queue="small"))
    api.settle()
    api.apply(job({"w": 2}, name="equal", queue="small"))
    api.apply(job({"w": 2}, name="urgent", queue="small", priorityClassName="high"))
    api.settle()
    assert {"urgent-w-0", "urgent-w-1"} <= set(api.pods())
    assert not {"equal-w-0", "equal-w-1"} & set(api.pods())


def test_a_closed_queue_takes_no_new_job() -> None:
    api = Api()
    api.tell(QueueSeen("q", closed=True))
    api.apply(job({"w": 1}, queue="q"))
    api.settle()
    assert not api.pods()
    assert api.status()["state"]["message"] == "queue q is closed"
    api.tell(QueueSeen("q"))
    api.settle()
    assert api.phase() == "Running"


def test_tasks_wait_for_those_they_depend_on() -> None:
    after = {"dependsOn": {"name": ["ps"]}}
    api = Api()
    api.apply(job({"ps": 1, "w": 2}, of={"w": after}))
    api.step()
    api.step()
    api.step()
    assert list(api.pods()) == ["j-ps-0"], "the minimum that goes without saying is no deadlock"
    api.settle()
    assert api.phase() == "Running"
    [group] = api.names("PodGroup")
    spec = api.there["PodGroup", group]["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (3, {"ps": 1, "w": 2})


def test_a_task_that_waits_for_one_that_failed_will_not_come() -> None:
    after = {"dependsOn": {"name": ["a"]}}
    api = Api()
    raw = job({"a": 1, "b": 1}, of={"b": after})
    raw["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"no": "where"}
    api.apply(raw)
    api.settle()
    api.end("j-a-0", 1)
    api.settle()
    assert api.phase() == "Failed"
    assert "1 pods wait for tasks that have ended" in api.status()["state"]["message"]


def test_scaled_while_it_runs() -> None:
    api = Api()
    api.apply(job({"w": 2}, plugins={"svc": []}))
    api.settle()

    def scale(replicas: int, least: int) -> None:
        raw = api.job()
        [task] = raw["spec"]["tasks"]
        tasks = [{**task, "replicas": replicas}]
        api.apply({**raw, "spec": {**raw["spec"], "minAvailable": least, "tasks": tasks}})
        api.settle()

    scale(4, 2)
    assert list(api.pods()) == [f"j-w-{i}" for i in range(4)]
    assert api.phase() == "Running"
    hosts = api.there["ConfigMap", "j-svc"]["data"]["w.host"]
    assert hosts.split() == [f"j-w-{i}.j" for i in range(4)]
    scale(1, 1)
    assert list(api.pods()) == ["j-w-0"]
    [group] = api.names("PodGroup")
    assert api.there["PodGroup", group]["spec"]["minMember"] == 1


def test_a_lower_minimum_no_longer_asks_for_that_of_each_task() -> None:
    """A patch of the PodGroup leaves what it does not name."""
    api = Api()
    raw = job({"big": 1, "w": 2})
    raw["spec"]["tasks"][0]["template"]["spec"] = {
        **raw["spec"]["tasks"][0]["template"]["spec"],
        "nodeSelector": {"no": "where"},
    }
    api.apply(raw)
    api.settle()
    assert not [name for name, phase in api.pods().items() if phase == "Running"]
    [group] = api.names("PodGroup")
    assert api.there["PodGroup", group]["spec"]["minTaskMember"] == {"big": 1, "w": 2}
    raw = api.job()
    api.apply({**raw, "spec": {**raw["spec"], "minAvailable": 2}})
    api.settle()
    assert api.there["PodGroup", group]["spec"]["minTaskMember"] == {}
    assert api.phase() == "Running"


def test_a_pod_that_is_let_go_is_not_lost() -> None:
    """Even if it is wanted again before it has gone."""
    api = Api()
    api.grace_steps = 20
    api.apply(job({"w": 2}, "PodEvicted AbortJob"))
    api.settle()
    raw = api.job()
    [task] = raw["spec"]["tasks"]
    fewer = {**raw["spec"], "minAvailable": 1, "tasks": [{**task, "replicas": 1}]}
    api.apply({**raw, "spec": fewer})
    for _ in range(4):
        api.step()
    assert list(api.pods()) == ["j-w-0"]
    api.apply({**raw, "spec": {**fewer, "tasks": [task]}})
    api.settle()
    assert (api.phase(), list(api.pods())) == ("Running", ["j-w-0", "j-w-1"])


def test_min_success_is_enough() -> None:
    api = Api()
    api.apply(job({"w": 3}, minSuccess=2))
    api.settle()
    api.end("j-w-0")
    api.end("j-w-1")
    api.settle()
    assert api.phase() == "Completed"
    assert api.pods() == {"j-w-0": "Succeeded", "j-w-1": "Succeeded"}


def test_what_is_over_goes_after_its_time() -> None:
    api = Api()
    api.apply(job({"w": 1}, ttlSecondsAfterFinished=100))
    api.settle()
    api.end("j-w-0")
    api.settle()
    assert api.phase() == "Completed"
    api.wait(50)
    assert api.names("Job") == ["j"]
    api.wait(60)
    assert [kind for kind, _ in api.there if kind != "Event"] == []


def test_a_finished_job_goes_with_its_objects_at_the_end_of_its_time() -> None:
    """In that very second, for which a cycle is planned; what it owns is deleted before it."""
    api = Api()
    api.apply(job({"w": 1}, ttlSecondsAfterFinished=100))
    api.settle()
    api.end("j-w-0")
    api.settle()
    (found,) = jobs_of(api.cluster).by_name.values()
    end = found.status.since + 100
    assert schedule_once(api.cluster, [], end - 0.5) == []
    (deletion,) = schedule_once(api.cluster, [], end)
    assert isinstance(deletion, Delete)
    assert (deletion.kind, deletion.name, deletion.foreground) == ("Job", "j", True)
    assert deletion.why == "Completed for ttlSecondsAfterFinished"


def test_aborted_jobs_stay_however_old() -> None:
    api = Api()
    api.apply(job({"w": 1}, ttlSecondsAfterFinished=100))
    api.settle()
    api.command("AbortJob")
    api.settle()
    api.wait(1000)
    assert api.phase() == "Aborted"


def test_suspended_and_resumed() -> None:
    api = Api()
    api.apply(job({"w": 2}, maxRetry=2))
    api.settle()
    for version in ("1", "2", "3"):
        api.command("AbortJob")
        api.settle()
        assert (api.phase(), api.pods()) == ("Aborted", {})
        [group] = api.names("PodGroup")
        told = api.cluster.state.gangs["ns", group, True].published.state
        assert told[:2] == ("Pending", "job j is Aborted; resume it to continue")
        api.command("ResumeJob")
        api.settle()
        assert api.phase() == "Running"
        assert api.annotation("j-w-0", "volcano.sh/job-version") == version
    assert api.status()["retryCount"] == 0, "who is suspended has not failed"


def test_volumes_are_claimed_once_and_mounted_everywhere() -> None:
    claim = {"accessModes": ["ReadWriteOnce"]}
    volumes = [
        {"mountPath": "/data", "volumeClaim": claim},
        {"mountPath": "/old", "volumeClaimName": "there"},
    ]
    api = Api()
    api.apply({"kind": "PersistentVolumeClaim", "metadata": {"name": "there"}, "spec": claim})
    api.apply(job({"w": 2}, volumes=volumes))
    api.settle()
    assert api.phase() == "Running"
    made, there = api.names("PersistentVolumeClaim")
    assert (made.startswith("j-pvc-"), there) == (True, "there")
    pod = api.there["Pod", "j-w-1"]["spec"]
    assert [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"]] == [made, there]
    paths = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert paths == ["/data", "/old"]
    assert api.status()["controlledResources"] == {"volume-pvc-there": "there"}


def test_a_job_that_gets_something_wrong_says_so_and_has_nothing() -> None:
    api = Api()
    api.apply(job({"w": 1}, plugins={"nosuch": []}))
    api.settle()
    state = api.status()["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "InvalidSpec")
    assert state["message"].startswith("spec.plugins.nosuch: unknown plugin")
    assert [kind for kind, _ in api.there if kind != "Event"] == ["Job"]
    assert [event["reason"] for event in api.events()] == ["InvalidSpec"]


@pytest.mark.long
def test_a_refused_call_is_reported_and_retried() -> None:
    api = Api()

    def refuses(decision: Decision) -> str:
        return "exceeded quota: pods=1" if _is_second_pod(decision) else ""

    api.refuses = refuses
    asked: list[float] = []
    api.apply(job({"w": 2}))
    for _ in range(200):
        asked += [api.now for one in api.step() if _is_second_pod(one)]
    state = api.status()["state"]
    assert (state["reason"], state["message"]) == (
        "ApiRefuses",
        "Pod j-w-1: exceeded quota: pods=1",
    )
    gaps = [round(b - a) for a, b in pairwise(asked)]
    assert gaps == sorted(gaps), "patience grows"
    assert 60 <= max(gaps) <= 62
    api.refuses = lambda _: ""
    for _ in range(70):
        api.step()
    assert api.phase() == "Running"


@pytest.mark.parametrize("pods", [("j-w-1",), ("j-w-0", "j-w-1")])
def test_every_view_says_why_pods_cannot_be_created(pods: tuple[str, ...]) -> None:
    """explain said for 25 minutes that they were being created, where `job view` named the missing class."""
    api = Api()
    why = "no PriorityClass with name high was found"
    api.refuses = lambda one: why if isinstance(one, Create) and one.name in pods else ""
    api.apply(job({"w": 2}))
    for _ in range(5):
        api.step()
    found = explain(api.cluster, "ns", "j")
    assert found is not None
    assert why in api.status()["state"]["message"]
    assert found.reason == api.status()["state"]["message"]
    api.refuses = lambda _: ""
    for _ in range(70):
        api.step()
    found = explain(api.cluster, "ns", "j")
    assert found is not None
    assert (found.phase, why in found.reason) == ("Running", False)


def test_a_gang_that_could_not_be_resized_is_resized_later() -> None:
    api = Api()
    api.apply(job({"ps": 1, "w": 2}, of={"w": {"dependsOn": {"name": ["ps"]}}}))
    api.refuses = lambda one: "no" if isinstance(one, Patch) else ""
    for _ in range(10):
        api.step()
    [group] = api.names("PodGroup")
    assert api.there["PodGroup", group]["spec"]["minMember"] == 1
    api.refuses = lambda _: ""
    for _ in range(20):
        api.step()
    assert api.there["PodGroup", group]["spec"]["minMember"] == 3


def test_a_watch_that_is_late_makes_nobody_do_things_twice() -> None:
    api = Api()
    api.lag = lambda: 5
    api.apply(job({"w": 3}, "PodFailed RestartJob"))
    api.settle()
    api.end("j-w-0", 1)
    asked = [one for _ in range(40) for one in api.step()]
    created = [one.name for one in asked if isinstance(one, Create) and one.kind == "Pod"]
    assert sorted(created) == ["j-w-0", "j-w-1", "j-w-2"]
    deleted = [one.uid for one in asked if isinstance(one, Delete)]
    assert len(deleted) == len(set(deleted)) == 3
    assert max(api.made.values()) == 1
    assert api.phase() == "Running"


def _is_second_pod(decision: Decision) -> bool:
    return isinstance(decision, Create) and (decision.kind, decision.name) == ("Pod", "j-w-1")


def test_a_status_that_can_not_be_written_stops_what_depends_on_it() -> None:
    """Nothing is killed before it stands written why."""
    api = Api()
    api.apply(job({"w": 2}, "PodFailed RestartJob"))
    api.settle()
    api.refuses = lambda one: "no" if isinstance(one, SetStatus) else ""
    api.end("j-w-0", 1)
    api.settle()
    assert api.pods() == {"j-w-0": "Failed", "j-w-1": "Running"}
    api.refuses = lambda _: ""
    api.settle(most=200)
    assert api.phase() == "Running"
    assert api.annotation("j-w-1", "volcano.sh/job-version") == "1"


def test_pods_that_another_scheduler_places() -> None:
    api = Api()
    raw = job({"w": 1})
    raw["spec"]["schedulerName"] = "default-scheduler"
    api.apply(raw)
    api.settle()
    [group] = api.names("PodGroup")
    told = api.cluster.state.gangs["ns", group, True].published.state
    assert told[:2] == ("Running", "the pods of job j are placed by another scheduler")
    api.end("j-w-0")
    api.settle()
    assert api.phase() == "Completed"


def test_deleted_jobs_get_no_more_pods() -> None:
    api = Api()
    api.apply(job({"w": 2}))
    api.settle()
    api.delete_job()
    api.settle()
    assert [kind for kind, _ in api.there if kind != "Event"] == []
    assert not jobs_of(api.cluster).by_name
    assert not api.cluster.state.pods
    api.apply(job({"w": 1}))
    api.settle()
    assert api.phase() == "Running", "another of its name"


def test_a_finished_pods_work_is_not_done_twice() -> None:
    """A pod that succeeded stays while the others go on; and counts are written as they change."""
    api = Api()
    api.apply(job({"w": 3}))
    api.settle()
    api.end("j-w-0")
    api.settle()
    status = api.status()
    assert (status["running"], status["succeeded"]) == (2, 1)
    assert api.made["Pod", "j-w-0", "0", ""] == 1


@pytest.mark.long
def test_counts_are_not_written_at_every_step() -> None:
    api = Api(nodes=1, cpu=64_000)
    api.apply(job({"w": 50}))
    writes = 0
    for _ in range(100):
        writes += sum(isinstance(one, SetStatus) for one in api.step(0.05))
    assert api.phase() == "Running"
    assert writes <= 8


def test_a_status_names_no_gang_of_another_namespace() -> None:
    api = Api()
    secret = replace(factories.pod("secret", 9, queue="q"), namespace="team-b")
    for fact in (NamespaceSeen("team-b"), QueueSeen("q", fifo=True), secret):
        api.tell(fact)
    api.settle()
    api.apply(job({"w": 1}, name="a", queue="q"))
    api.settle()
    assert "another namespace is ahead of it" in api.status("a")["state"]["message"]
    assert "secret" not in str(api.status("a"))
