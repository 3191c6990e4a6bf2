"""CronJobs around one core; the centre may fall at any call."""

from typing import Any

import pytest

from central.model.decisions import Create, Decision
from tests.central.controllers.job.job_api import Api, job

Json = dict[str, Any]
MINUTE = 60.0


def cron(schedule: str = "* * * * *", tasks: int = 1, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": job({"w": tasks})["spec"]}
    return {
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


def started(calls_left: int | None = None, **spec: Any) -> Api:
    """20 seconds before the first time."""
    api = Api(calls_left=calls_left)
    api.apply(cron(**spec))
    api.settle(seconds=0.01)
    return api


def status(api: Api) -> Json:
    found: Json = api.there["CronJob", "c"].get("status") or {}
    return found


def finish(api: Api, code: int = 0) -> None:
    for name, phase in api.pods().items():
        if phase == "Running":
            api.end(name, code)
    api.settle(seconds=0.01)


def run(api: Api, seconds: float) -> None:
    api.step(seconds)
    api.settle(seconds=0.01)


def test_a_job_at_each_time() -> None:
    api = started()
    assert api.names("Job") == []
    run(api, MINUTE)
    [first] = api.names("Job")
    assert first == f"c-{int(api.now) // 60}"
    meta = api.job(first)["metadata"]
    assert meta["labels"] == {"a": "b"}
    assert meta["annotations"]["volcano.sh/cronjob-scheduled-timestamp"] == "1970-01-12T13:47:00Z"
    assert [one["name"] for one in status(api)["active"]] == [first]
    assert status(api)["lastScheduleTime"] == "1970-01-12T13:47:00Z"
    assert api.phase(first) == "Running"
    finish(api)
    assert "active" not in status(api)
    assert status(api)["lastSuccessfulTime"]
    run(api, MINUTE)
    assert len(api.names("Job")) == 2


def test_the_centre_wakes_by_itself() -> None:
    api = started()
    for _ in range(70):
        api.step()
    assert len(api.names("Job")) == 1


def test_allowed_beside_each_other() -> None:
    api = started()
    run(api, MINUTE)
    run(api, MINUTE)
    assert len(api.names("Job")) == 2
    assert len(status(api)["active"]) == 2


def test_forbidden_beside_each_other_and_made_up_for() -> None:
    api = started(concurrencyPolicy="Forbid")
    run(api, MINUTE)
    run(api, MINUTE)
    [only] = api.names("Job")
    told = [e["reason"] for (kind, _), e in api.there.items() if kind == "Event"]
    assert "ForbidConcurrent" in told
    finish(api)
    run(api, 1.0)
    assert [name for name in api.names("Job") if name != only] == [f"c-{int(api.now) // 60}"]


def test_one_takes_the_others_place() -> None:
    api = started(concurrencyPolicy="Replace")
    run(api, MINUTE)
    [first] = api.names("Job")
    run(api, MINUTE)
    [second] = api.names("Job")
    assert second != first
    assert api.phase(second) == "Running"


@pytest.mark.long
def test_what_is_old_is_forgotten() -> None:
    api = started(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=0)
    for _ in range(4):
        run(api, MINUTE)
        finish(api)
    run(api, 1.0)
    assert [api.phase(name) for name in api.names("Job")] == ["Completed", "Completed"]
    run(api, MINUTE)
    for name in list(api.names("Pod")):
        api.command("TerminateJob", name.rpartition("-w-")[0])
        break
    api.settle()
    assert {api.phase(name) for name in api.names("Job")} <= {"Completed", "Running"}


def test_suspended() -> None:
    api = started(suspend=True)
    run(api, 5 * MINUTE)
    assert api.names("Job") == []
    api.apply(cron(suspend=False))
    run(api, 1.0)
    assert len(api.names("Job")) == 1  # the last of the five; not one each


def test_too_late_is_not_made_up_for() -> None:
    api = started(suspend=True, startingDeadlineSeconds=10)
    run(api, 4.5 * MINUTE)
    api.apply(cron(suspend=False, startingDeadlineSeconds=10))
    run(api, 1.0)
    assert api.names("Job") == []
    run(api, 55.0)
    assert len(api.names("Job")) == 1


def test_an_invalid_cronjob_reports_why() -> None:
    api = started(schedule="often")
    assert status(api)["message"] == 'spec.schedule: "often" does not have the five fields of cron'
    api.apply(cron())
    run(api, MINUTE)
    assert len(api.names("Job")) == 1
    assert "message" not in status(api)


def test_a_refused_job_is_reported_and_retried() -> None:
    api = started()
    refusals = iter(["quota"])

    def refuses(decision: Decision) -> str:
        makes = isinstance(decision, Create) and decision.kind == "Job"
        return next(refusals, "") if makes else ""

    api.refuses = refuses
    run(api, MINUTE)
    assert status(api)["message"].endswith(": quota")
    assert "lastScheduleTime" not in status(api)
    run(api, 12.0)
    assert len(api.names("Job")) == 1
    assert "message" not in status(api)


def test_a_cronjob_that_goes_takes_its_alarm_along() -> None:
    api = started()
    api._take(("CronJob", "c"))
    run(api, 3 * MINUTE)
    assert api.names("Job") == []


@pytest.mark.long
@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
@pytest.mark.parametrize("calls", range(0, 40, 2))
def test_the_centre_falls_anywhere(policy: str, calls: int) -> None:
    """Each time has its Job, and none has two."""
    api = started(calls, concurrencyPolicy=policy)
    for _ in range(3):
        run(api, MINUTE)
        finish(api)
    run(api, 1.0)
    made = {name: count for (kind, name, *_), count in api.made.items() if kind == "Job"}
    assert len(made) == 3
    assert set(made.values()) == {1}
    assert status(api)["lastScheduleTime"] == "1970-01-12T13:49:00Z"
    assert "active" not in status(api)
