"""JobFlows around one core; the centre may fall at any call."""

from typing import Any

import pytest

from central.model.decisions import Create, Decision
from central.model.json_types import json_merge
from tests.central.controllers.job.job_api import Api, job

Json = dict[str, Any]


def step(name: str, *after: str, probe: Json | None = None, **patch: Any) -> Json:
    depends: Json = {"targets": list(after)} if after else {}
    if probe:
        depends["probe"] = probe
    return {"name": name, "dependsOn": depends, **({"patch": {"jobSpec": patch}} if patch else {})}


def flow(*steps: Json, **spec: Any) -> Json:
    return {"kind": "JobFlow", "metadata": {"name": "f"}, "spec": {"flows": list(steps), **spec}}


def template(name: str, **spec: Any) -> Json:
    meta = {"name": name, "labels": {"volcano.sh/job-type": "MPI"}}
    return {"kind": "JobTemplate", "metadata": meta, "spec": {**job({"w": 1})["spec"], **spec}}


def started(*steps: Json, calls_left: int | None = None, **spec: Any) -> Api:
    api = Api(calls_left=calls_left)
    for name in dict.fromkeys(one["name"] for one in steps):
        api.apply(template(name))
    api.apply(flow(*steps, **spec))
    api.settle()
    return api


def status(api: Api) -> Json:
    found: Json = api.there["JobFlow", "f"].get("status") or {}
    return found


def state(api: Api) -> tuple[str, str]:
    found = status(api)["state"]
    return found["phase"], found.get("message", "")


def finish(api: Api, *names: str, code: int = 0) -> None:
    for name in names:
        api.end(f"f-{name}-w-0", code)
    api.settle()


DIAMOND = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


@pytest.mark.long
def test_one_after_the_other() -> None:
    api = started(*DIAMOND)
    assert api.names("Job") == ["f-a"]
    assert state(api) == ("Running", "b: waiting for a; c: waiting for a; d: waiting for b")
    finish(api, "a")
    assert api.names("Job") == ["f-a", "f-b", "f-c"]
    finish(api, "b")
    assert "f-d" not in api.names("Job")
    finish(api, "c")
    assert status(api)["completedJobs"] == ["f-a", "f-b", "f-c"]
    assert status(api)["runningJobs"] == ["f-d"]
    finish(api, "d")
    assert state(api) == ("Succeed", "")
    assert len(api.names("Job")) == 4
    [first, *_] = status(api)["jobStatusList"]
    assert (first["name"], first["state"], first["restartCount"]) == ("f-a", "Completed", 0)
    assert [one["state"] for one in first["runningHistories"]][-1] == "Completed"
    assert status(api)["conditions"]["f-a"]["taskStatusCount"] == {"w": {"phase": {"Succeeded": 1}}}
    assert api.there["JobTemplate", "a"]["status"] == {"jobDependsOnList": ["f-a"]}


def test_a_step_that_stands_twice_has_one_job() -> None:
    """It is created when one of the two has no unmet dependency, and is listed once."""
    api = started(step("a"), step("b", "a"), step("c"), step("b", "c"), step("a", "b"))
    assert api.names("Job") == ["f-a", "f-c"]
    assert state(api) == ("Running", "b: waiting for c")
    assert status(api)["pendingJobs"] == ["f-b"]
    finish(api, "a")
    assert api.names("Job") == ["f-a", "f-b", "f-c"]
    assert state(api) == ("Running", "")
    assert status(api)["runningJobs"] == ["f-b", "f-c"]
    finish(api, "b", "c")
    assert state(api) == ("Succeed", "")
    assert status(api)["completedJobs"] == ["f-a", "f-b", "f-c"]
    assert [one["name"] for one in status(api)["jobStatusList"]] == ["f-a", "f-b", "f-c"]


def test_a_job_carries_where_it_comes_from() -> None:
    api = started(step("a", minAvailable=1, queue="q"))
    raw = api.job("f-a")
    marks = {"volcano.sh/createdByJobTemplate": "ns.a", "volcano.sh/createdByJobFlow": "ns.f"}
    assert raw["metadata"]["labels"] == {"volcano.sh/job-type": "MPI", **marks}
    assert raw["metadata"]["annotations"] == marks
    assert raw["spec"]["queue"] == "q"
    assert raw["metadata"]["ownerReferences"][0]["kind"] == "JobFlow"


def test_jobs_may_go_when_all_is_done() -> None:
    api = started(step("a"), step("b", "a"), jobRetainPolicy="delete")
    finish(api, "a")
    assert api.names("Job") == ["f-a", "f-b"]
    finish(api, "b")
    assert (api.names("Job"), state(api)[0]) == ([], "Succeed")
    assert status(api)["completedJobs"] == ["f-a", "f-b"]


def test_a_job_that_is_done_and_deleted_is_not_made_again() -> None:
    api = started(step("a"), step("b", "a"))
    finish(api, "a")
    api.delete_job("f-a")
    api.settle()
    assert api.names("Job") == ["f-b"]
    finish(api, "b")
    assert state(api)[0] == "Succeed"


def test_a_failure_ends_the_flow() -> None:
    api = started(step("a"), step("b", "a"))
    finish(api, "a", code=1)
    assert state(api) == ("Failed", "f-a did not complete")
    assert api.names("Job") == ["f-a"]


def test_a_task_that_runs_may_be_enough() -> None:
    probe = {"taskStatusList": [{"taskName": "w", "phase": "Running"}]}
    api = started(step("a"), step("b", "a", probe=probe))
    api.settle()
    assert api.names("Job") == ["f-a", "f-b"]


HTTP = {"taskName": "w", "port": 80, "path": "/up", "httpHeader": {"name": "A", "value": "b"}}


def probe_of(api: Api, job_name: str, container: int = 0) -> Json:
    [task, *_] = api.job(job_name)["spec"]["tasks"]
    found: Json = task["template"]["spec"]["containers"][container].get("readinessProbe") or {}
    return found


def test_a_task_that_answers_may_be_enough() -> None:
    api = Api()
    api.answering = False
    api.apply(template("a", **job({"w": 2})["spec"]))
    api.apply(template("b"))
    api.apply(flow(step("a"), step("b", "a", probe={"httpGetList": [HTTP]})))
    api.settle()
    get = {"path": "/up", "port": 80, "httpHeaders": [{"name": "A", "value": "b"}]}
    assert probe_of(api, "f-a") == {"httpGet": get, "periodSeconds": 2}
    waits = "b: waiting for a: {} of 2 pods of task w pass http :80/up"
    assert state(api) == ("Running", waits.format(0))
    api.answers("f-a-w-0")
    api.settle()
    assert (api.names("Job"), state(api)[1]) == (["f-a"], waits.format(1))
    api.fall()
    api.answers("f-a-w-1")
    api.settle()
    assert api.names("Job") == ["f-a", "f-b"]
    assert probe_of(api, "f-b") == {}


def test_an_open_port_is_looked_for_where_it_is_declared() -> None:
    one, two = {"name": "a", "image": "i"}, {"name": "b", "image": "i"}
    template_ = {"spec": {"containers": [one, {**two, "ports": [{"containerPort": 9}]}]}}
    api = Api()
    tasks = [{"name": "w", "replicas": 1, "template": template_}]
    api.apply(template("a", tasks=tasks))
    api.apply(template("b"))
    api.apply(flow(step("a"), step("b", "a", probe={"tcpSocketList": [{"port": 9}]})))
    api.settle()
    assert api.names("Job") == ["f-a", "f-b"]
    assert probe_of(api, "f-a") == {}
    assert probe_of(api, "f-a", 1) == {"tcpSocket": {"port": 9}, "periodSeconds": 2}


def test_a_container_has_one_probe() -> None:
    probe = {"tcpSocketList": [{"taskName": "w", "port": 1}, {"taskName": "w", "port": 2}]}
    api = started(step("a"), step("b", "a", probe=probe))
    why = "its container already has another readiness probe"
    assert api.names("Job") == []
    assert state(api) == ("Pending", f"a: cannot check tcp :2 on task w: {why}; b: waiting for a")


def test_a_template_that_comes_later() -> None:
    api = Api()
    api.apply(flow(step("a")))
    api.settle()
    assert state(api) == ("Pending", "a: JobTemplate a does not exist")
    api.apply(template("a"))
    api.settle()
    assert api.names("Job") == ["f-a"]


def test_a_refused_job_is_reported_and_retried() -> None:
    refusals = iter(["quota"])

    def refuses(decision: Decision) -> str:
        makes = isinstance(decision, Create) and decision.kind == "Job"
        return next(refusals, "") if makes else ""

    api = Api()
    api.refuses = refuses
    api.apply(template("a"))
    api.apply(flow(step("a")))
    api.settle(seconds=0.1)
    assert state(api) == ("Pending", "a: could not create Job f-a: quota")
    api.wait(11.0)
    assert api.names("Job") == ["f-a"]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([step("a", "b"), step("b", "a")], "spec.flows: dependsOn has a cycle: a, b"),
        ([step("a", "x")], "spec.flows[0].dependsOn.targets: there is no step x"),
        (
            [step("a", probe={"tcpSocketList": [{"port": 0}]})],
            "spec.flows[0].dependsOn.probe.tcpSocketList[0].port: 0 is not a port from 1 to 65535",
        ),
        (
            [step("a", probe={"httpGetList": [{"port": 80, "path": "healthz"}]})],
            'spec.flows[0].dependsOn.probe.httpGetList[0].path: "healthz" does not begin with /',
        ),
    ],
)
def test_impossible_flows_report_why(steps: list[Json], why: str) -> None:
    api = started(*steps)
    assert (api.names("Job"), state(api)) == ([], ("Pending", why))


def test_a_merge_patch() -> None:
    whole = {"a": 1, "b": {"c": 2, "d": 3}, "e": [1]}
    assert json_merge(whole, {"a": None, "b": {"c": 4}, "e": [2], "f": {"g": None, "h": 1}}) == {
        "b": {"c": 4, "d": 3},
        "e": [2],
        "f": {"h": 1},
    }


@pytest.mark.parametrize("calls", range(0, 60, 3))
def test_the_centre_falls_anywhere(calls: int) -> None:
    """Every step has its Job, none has two, and all is done at the end."""
    api = started(*DIAMOND, calls_left=calls, jobRetainPolicy="delete")
    for _ in range(8):
        for name, phase in api.pods().items():
            if phase == "Running":
                api.end(name)
        api.settle(seconds=3.0)
    made = {name: count for (kind, name, *_), count in api.made.items() if kind == "Job"}
    assert made == {f"f-{name}": 1 for name in "abcd"}
    assert (api.names("Job"), state(api)[0]) == ([], "Succeed")


def test_a_flow_without_flows_has_succeeded() -> None:
    api = started()
    assert state(api) == ("Succeed", "")
    bare = Api()
    bare.apply({"kind": "JobFlow", "metadata": {"name": "f"}, "spec": {}})
    bare.settle()
    assert state(bare) == ("Succeed", "")


def test_a_flow_that_is_wrong_has_not() -> None:
    api = Api()
    api.apply(flow({"name": "a", "dependsOn": {"targets": ["nosuch"]}}))
    api.settle()
    phase, told = state(api)
    assert phase == "Pending"
    assert "nosuch" in told
