"""The user of a Job's pods is the Job's, which an admission policy writes. Templates, which anybody writes, have
none."""

from typing import Any

import pytest

from protos.names import USER
from tests.central.controllers.job.job_api import Api, job
from tests.central.controllers.test_cronjob import cron
from tests.central.controllers.test_jobflow import flow, template

FORGED = {"annotations": {USER: "mallory"}}


def task(**more: Any) -> dict[str, Any]:
    raw = job({"w": 1}, **more)
    raw["spec"]["tasks"][0]["template"]["metadata"] = FORGED
    return raw


@pytest.mark.parametrize("user", ["ann", ""])
def test_pods_have_the_user_of_their_job(user: str) -> None:
    api, raw = Api(), task()
    if user:
        raw["metadata"]["annotations"] = {USER: user}
    api.apply(raw)
    api.settle()
    [name] = api.pods()
    found = api.there["Pod", name]["metadata"]["annotations"]
    assert found.get(USER, "") == user


def test_jobs_of_a_jobflow_have_no_user() -> None:
    api = Api()
    source = template("a", **job({"w": 1})["spec"])
    source["metadata"].update(FORGED)
    api.apply(source)
    api.apply(flow({"name": "a"}))
    api.settle()
    [name] = api.names("Job")
    assert USER not in api.job(name)["metadata"]["annotations"]


def test_jobs_of_a_cronjob_have_no_user() -> None:
    """Its template's would be trusted, because the scheduler creates the Job."""
    api, raw = Api(), cron()
    raw["spec"]["jobTemplate"]["metadata"] = FORGED
    api.apply(raw)
    for _ in range(3):
        api.wait(60.0)
    assert api.names("Job")
    for name in api.names("Job"):
        assert USER not in api.job(name)["metadata"]["annotations"]
