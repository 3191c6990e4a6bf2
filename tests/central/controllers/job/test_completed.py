"""Pods that succeeded are not run again when they are collected, whoever leads by then."""

import pytest

from tests.central.controllers.job.job_api import Api, job


def started(replicas: int = 3, policy: str = "PodFailed RestartPod") -> Api:
    api = Api()
    api.apply(job({"w": replicas}, policy))
    api.settle()
    assert api.phase() == "Running"
    return api


def collect(api: Api, *names: str) -> None:
    """The pods succeed, and are deleted as with their nodes."""
    for name in names:
        api.end(name)
    api.settle()
    for name in names:
        api.evict(name)


@pytest.mark.parametrize("falls", [False, True])
def test_collected_pods_are_not_created_again(falls: bool) -> None:
    api = started()
    collect(api, "j-w-0", "j-w-2")
    if falls:
        api.fall()
    api.settle()
    assert api.pods() == {"j-w-1": "Running"}
    assert api.status()["completedIndexes"] == {"w": "0,2"}
    assert (api.status()["succeeded"], api.phase()) == (2, "Running")
    api.end("j-w-1")
    api.settle()
    assert (api.status()["succeeded"], api.phase()) == (3, "Completed")


def test_a_pod_that_is_collected_before_the_status_says_so() -> None:
    api = started()
    api.end("j-w-0")
    api.evict("j-w-0")
    api.settle()
    assert api.status()["completedIndexes"] == {"w": "0"}
    assert set(api.pods()) == {"j-w-1", "j-w-2"}


@pytest.mark.parametrize("falls", [False, True])
def test_a_replacement_joins_the_rest_of_the_gang(falls: bool) -> None:
    """The last pod is lost when the others are collected: alone it is no whole gang any more."""
    api = started()
    collect(api, "j-w-0", "j-w-1")
    api.settle()
    if falls:
        api.fall()
    api.evict("j-w-2")
    api.settle()
    assert api.pods() == {"j-w-2": "Running"}
    api.end("j-w-2")
    api.settle()
    assert api.phase() == "Completed"


def test_a_replacement_runs_though_the_others_were_collected_before_it_was_created() -> None:
    """For a moment the gang has no pods: that is no other run of the Job."""
    api = started(2)
    api.end("j-w-0")
    api.evict("j-w-1")
    api.evict("j-w-0")
    api.settle()
    assert api.pods() == {"j-w-1": "Running"}


def test_a_restarted_pod_runs_again() -> None:
    api = started(2, "PodFailed RestartTask")
    collect(api, "j-w-0")
    api.settle()
    api.end("j-w-1", 1)
    api.settle()
    assert api.pods() == {"j-w-0": "Running", "j-w-1": "Running"}
    assert "completedIndexes" not in api.status()


def test_a_restarted_job_runs_whole() -> None:
    api = started()
    collect(api, "j-w-0")
    api.settle()
    api.command("RestartJob")
    api.settle()
    assert set(api.pods()) == {"j-w-0", "j-w-1", "j-w-2"}
    assert "completedIndexes" not in api.status()
