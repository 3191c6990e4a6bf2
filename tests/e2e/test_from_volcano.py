"""What users of Volcano look for, on a real API server: refusals that need two objects, Events on Jobs, states of
queues, `minResources`, JobFlows without flows, and PodGroups of plain controllers. The controllers of Kubernetes
and the scheduler are real, the nodes are hollow."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from central.model.json_types import Json
from central.standalone.pod_status import runs_for_s
from protos.names import GPU, RUNS_FOR
from tests.e2e.admission_cases import BATCH, SCHEDULING, flow, job, of, queue
from tests.e2e.cluster.settings import program
from tests.e2e.controllers.gangs import Play, free, template
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues/{}"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs/{}"
FLOWS = "/apis/flow.volcano.sh/v1alpha1/namespaces/{}/jobflows/{}"
EVENTS = "/api/v1/namespaces/{}/events"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(runs_for_s, "--pod-groups-for-controllers") as made:
        made.start_all("crds", "chart/files/admission")
        yield made


@pytest.fixture(autouse=True)
def freed(stage: Stage) -> Iterator[None]:
    yield
    free(stage)
    stage.kubectl("delete", "queues.scheduling.volcano.sh", "--all", "--wait=true")


def refusal(stage: Stage, raw: Json) -> str:
    """What `kubectl apply` says of the object that it refuses; empty: it would be taken."""
    argv = [str(program("kubectl")), f"--kubeconfig={stage.kubeconfig}", "apply", "-f", "-"]
    done = subprocess.run(
        [*argv, "--dry-run=server"], input=json.dumps(raw), capture_output=True, text=True
    )
    return done.stderr if done.returncode else ""


def until_refused(stage: Stage, raw: Json, told: str) -> None:
    """The API server takes a moment to see new queues."""
    stage.wait(told, lambda: told in refusal(stage, raw))


def applied(stage: Stage, *objects: Json) -> None:
    for each in objects:
        stage.kubectl("apply", "-f", "-", stdin=json.dumps(each))


def status(stage: Stage, path: str) -> Json:
    found: Json = stage.get(path).get("status") or {}
    return found


def task(replicas: int, gpus: int, runs_for: str = "") -> Json:
    pods = template(gpus)
    pods["metadata"] = {"annotations": {RUNS_FOR: runs_for} if runs_for else {}}
    return {"name": "w", "replicas": replicas, "template": pods}


class Events:
    """Of one object: (reason, message)."""

    def __init__(self, play: Play, name: str) -> None:
        self._play, self._name = play, name

    def __call__(self) -> list[tuple[str, str]]:
        found = self._play.stage.get(EVENTS.format(self._play.namespace))["items"]
        mine = [each for each in found if each["involvedObject"]["name"] == self._name]
        return [(each["reason"], each["message"]) for each in mine]

    def until(self, reason: str, *words: str) -> str:
        def found() -> str:
            for name, message in self():
                if name == reason and all(word in message for word in words):
                    return message
            return ""

        return self._play.until(f"an Event {reason} {words}", found)


def test_a_queue_with_queues_below_it_takes_no_job(stage: Stage) -> None:
    applied(stage, queue("research"), queue("vision", parent="research"))
    told = "spec.queue is research, which has queues below it; use one of them, such as vision"
    until_refused(stage, job("a", queue="research"), told)
    until_refused(stage, of(SCHEDULING, "PodGroup", "a", {"queue": "research"}), told)
    timed = {"schedule": "* * * * *", "jobTemplate": {"spec": job("b", queue="research")["spec"]}}
    cron = of(BATCH, "CronJob", "a", timed)
    assert "spec.jobTemplate.spec.queue is research, which" in refusal(stage, cron)
    for good in (job("a", queue="vision"), job("a"), of(SCHEDULING, "PodGroup", "a", {})):
        assert not refusal(stage, good)
    stage.kubectl("delete", "queues.scheduling.volcano.sh", "vision")
    stage.wait("research to be a leaf", lambda: not refusal(stage, job("a", queue="research")))


def test_queues_that_would_be_each_others_parents_are_refused(stage: Stage) -> None:
    applied(stage, queue("a"), queue("b", parent="a"), queue("c", parent="b"))
    stage.wait(
        "the scheduler to say what is above c",
        lambda: status(stage, QUEUES.format("c")).get("ancestors") == ["b", "a"],
    )
    for parent in ("b", "c"):
        told = f"spec.parent is {parent}, which is below a itself"
        until_refused(stage, queue("a", parent=parent), told)
    assert not refusal(stage, queue("c", parent="a"))
    assert not refusal(stage, queue("d", parent="c"))


def test_a_cycle_that_comes_at_once_is_said_in_the_status(stage: Stage) -> None:
    """Nothing says yet what is above a queue that the scheduler has not seen."""
    stage.kill_scheduler()
    try:
        applied(stage, queue("x", parent="z"), queue("y", parent="x"), queue("z", parent="y"))
    finally:
        stage.start_scheduler()
        stage.wait_for_scheduler()
    paths = [QUEUES.format(name) for name in "xyz"]
    stage.wait(
        "all to be invalid",
        lambda: {status(stage, path).get("state") for path in paths} == {"Unknown"},
    )


def test_a_job_runs_with_an_argument_that_nobody_knows_and_says_what_happens(stage: Stage) -> None:
    play = Play(stage, "events")
    raw = job(
        "old",
        task(2, 4),
        schedulerName="volcano",
        plugins={"ssh": ["--no-root"], "svc": ["--publish-not-ready-addresses"], "env": []},
        policies=[{"event": "PodEvicted", "action": "RestartJob"}],
    )
    play.apply(raw)
    events = Events(play, "old")
    assert "spec.plugins.ssh" in events.until("IgnoredArgument", "--no-root")
    events.until("Created")
    play.until("its pods to run", lambda: len(play.placed()) == 2)
    events.until("Running")
    [group] = play.groups()
    least = group["spec"]["minResources"]
    assert least[GPU] == least[f"requests.{GPU}"] == "8"
    before = {each["metadata"]["uid"] for each in play.members()}
    play.delete("pod", "old-w-1")
    events.until("ExecuteAction", "RestartJob", "PodEvicted")
    play.until(
        "two new pods",
        lambda: (
            len(play.placed()) == 2
            and before.isdisjoint(each["metadata"]["uid"] for each in play.members())
        ),
    )
    play.apply(job("short", task(1, 1, "1s"), schedulerName="volcano"))
    Events(play, "short").until("Completed")


def test_a_flow_without_flows_has_succeeded(stage: Stage) -> None:
    play = Play(stage, "flows")
    play.apply(flow("empty"))
    where = FLOWS.format("flows", "empty")
    state = play.until("its state", lambda: status(stage, where).get("state"))
    assert state["phase"] == "Succeed"


def deployment(replicas: int, least: str) -> Json:
    pods = template(8, restarts=True)
    pods["metadata"] = {"labels": {"app": "web"}}
    selector = {"matchLabels": {"app": "web"}}
    raw = of("apps/v1", "Deployment", "web", {"replicas": replicas, "selector": selector})
    raw["metadata"]["annotations"] = {"scheduling.volcano.sh/group-min-member": least}
    raw["spec"]["template"] = pods
    return raw


def test_a_deployment_has_a_podgroup_for_tools(stage: Stage) -> None:
    """Which nobody reads here, which says what the gang says, and which goes with its pods."""
    play = Play(stage, "mirror")
    with play.occupied():
        play.apply(deployment(2, "2"))
        play.waits_whole("deployment/web", 2, "needs 2 pods x 8 GPUs; the cluster fits 1 of 2")
        play.until("its PodGroup", lambda: play.groups("Pending"))
    play.runs_whole("deployment/web", 2)
    [group] = play.until("it to run", lambda: play.groups("Running"))
    assert group["metadata"]["name"] == "deployment-web"
    assert group["spec"]["minMember"] == 2
    [owner] = group["metadata"]["ownerReferences"]
    assert owner["kind"] == "ReplicaSet"

    where = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{play.namespace}/podgroups"
    stage.patch(f"{where}/deployment-web", {"spec": {"minMember": 99}})
    play.delete("pod", play.members()[0]["metadata"]["name"])
    assert len(play.runs_whole("deployment/web", 2)) == 2, "its PodGroup decides nothing"

    play.delete("deployment", "web")
    play.until("pods and PodGroup to be gone", lambda: not play.members() and not play.groups())
