"""A Job from its first word to its last."""

from tests.central.controllers.job.job_api import Api, job


def test_a_job_runs_and_completes() -> None:
    api = Api()
    api.apply(job({"ps": 1, "worker": 2}))
    api.settle()
    assert api.phase() == "Running"
    assert api.pods() == {"j-ps-0": "Running", "j-worker-0": "Running", "j-worker-1": "Running"}
    [group] = api.names("PodGroup")
    spec = api.there["PodGroup", group]["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (3, {"ps": 1, "worker": 2})
    for name in api.pods():
        api.end(name)
    api.settle()
    status = api.status()
    assert api.phase() == "Completed"
    assert (status["succeeded"], status["running"], status["pending"]) == (3, 0, 0)
    assert status["taskStatusCount"] == {
        "ps": {"phase": {"Succeeded": 1}},
        "worker": {"phase": {"Succeeded": 2}},
    }
    assert [one["status"] for one in status["conditions"]] == ["Pending", "Running", "Completed"]
    assert len(api.pods()) == 3, "their output may still be read"
