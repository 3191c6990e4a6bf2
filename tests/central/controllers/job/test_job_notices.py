"""What `kubectl describe vcjob` shows: Events for creation, start, policies and the end, each once."""

from tests.central.controllers.job.job_api import Api, Json, job


def reasons(api: Api, kind: str = "Job") -> list[str]:
    return [e["reason"] for e in api.events() if e["involvedObject"]["kind"] == kind]


def message(api: Api, reason: str) -> Json:
    (event,) = [event for event in api.events() if event["reason"] == reason]
    return event


def test_a_job_that_completes() -> None:
    api = Api()
    api.apply(job({"w": 2}))
    api.settle()
    assert reasons(api) == ["Created", "Running"]
    assert message(api, "Created")["message"] == "queue default; pods: 2 w; at least 2 together"
    for name in api.pods():
        api.end(name)
    api.settle()
    assert reasons(api) == ["Created", "Running", "Completed"]
    assert {e["type"] for e in api.events() if e["involvedObject"]["kind"] == "Job"} == {"Normal"}


def test_a_policy_that_acts_says_so_before_its_consequence() -> None:
    api = Api()
    api.apply(job({"w": 2}, "PodFailed RestartJob"))
    api.settle()
    api.end("j-w-0", 3)
    api.settle()
    assert reasons(api) == ["Created", "Running", "ExecuteAction", "Restarting", "Running"]
    told = message(api, "ExecuteAction")["message"]
    assert told.startswith("policy for PodFailed: pod j-w-0 failed with exit code 3: RestartJob")


def test_a_policy_for_one_pod() -> None:
    api = Api()
    api.apply(job({"w": 2}, "PodFailed RestartPod"))
    api.settle()
    api.end("j-w-0", 3)
    api.settle()
    assert reasons(api) == ["Created", "Running", "ExecuteAction", "PodFailed", "Running"]


def test_a_command_is_no_policy() -> None:
    api = Api()
    api.apply(job({"w": 2}))
    api.settle()
    api.command("AbortJob")
    api.settle()
    assert reasons(api) == ["Created", "Running", "Aborting", "Aborted"]


def test_an_ignored_argument_is_a_warning_on_the_job_which_runs() -> None:
    api = Api()
    api.apply(job({"w": 1}, plugins={"ssh": ["--no-root"], "svc": []}))
    api.settle()
    assert reasons(api) == ["Created", "IgnoredArgument", "Running"]
    event = message(api, "IgnoredArgument")
    assert event["type"] == "Warning"
    assert event["message"].startswith('spec.plugins.ssh: argument "--no-root" is ignored')


def test_a_scheduler_that_restarts_writes_none_again() -> None:
    api = Api()
    api.apply(job({"w": 2}))
    api.settle()
    before = reasons(api)
    api.fall()
    api.settle()
    assert reasons(api) == before
