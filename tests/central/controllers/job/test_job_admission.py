"""Which Jobs get pods: quota is asked for the minimum, in the order of the queue."""

from typing import Any

import pytest

from central.model.facts import QueueSeen
from tests.central.controllers.job.job_api import Api, job


def first_pods(api: Api) -> list[str]:
    """Of the first step in which any are made."""
    for _ in range(10):
        api.step()
        if api.pods():
            return list(api.pods())
    return []


def test_all_that_fit_are_admitted_at_once() -> None:
    """Each counts once, and up to the last unit."""
    api = Api(nodes=0)
    api.tell(QueueSeen("q", capability=(("cpu", 600),)))
    for number in range(4):
        api.apply(job({"w": 2}, name=f"j{number}", queue="q"))
    assert first_pods(api) == [f"j{number}-w-{pod}" for number in range(3) for pod in range(2)]
    api.settle()
    assert len(api.pods()) == 6


def test_pods_that_are_pending_count_once() -> None:
    api = Api(nodes=0)
    api.tell(QueueSeen("q", capability=(("cpu", 600),)))
    api.apply(job({"w": 2}, name="first", queue="q"))
    api.settle()
    api.apply(job({"w": 4}, name="second", queue="q"))
    api.apply(job({"w": 1}, name="third", queue="q"))
    api.settle()
    assert len(api.pods()) == 6
    assert not [name for name in api.pods() if name.startswith("third")]


def test_a_bound_on_what_a_job_does_not_need_is_no_bound_for_it() -> None:
    """A queue may use more than its capability: that was lowered meanwhile."""
    gpus = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "4"}}
    template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": gpus}]}}
    api = Api()
    api.tell(QueueSeen("q", capability=(("nvidia.com/gpu", 4),)))
    api.apply(job({"w": 1}, of={"w": {"template": template}}, name="trains", queue="q"))
    api.settle()
    api.tell(QueueSeen("q", capability=(("nvidia.com/gpu", 1),)))
    api.apply(job({"w": 1}, name="plain", queue="q"))
    api.settle()
    assert (api.phase("trains"), api.phase("plain")) == ("Running", "Running")


@pytest.mark.parametrize(("cpu", "there"), [(1000, []), (1100, ["j-big-0", "j-small-0"])])
def test_the_least_of_each_task_is_what_counts(cpu: int, there: list[str]) -> None:
    """Two pods of the first task would fit, but one of each is needed."""
    big = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    api = Api(nodes=0)
    api.tell(QueueSeen("q", capability=(("cpu", cpu),)))
    least: dict[str, Any] = {"minAvailable": 1}
    of = {"small": least, "big": {**least, "template": {"spec": {"containers": [big]}}}}
    api.apply(job({"small": 2, "big": 1}, of=of, queue="q", minAvailable=2))
    api.settle()
    assert [name for name in api.pods() if name != "j-small-1"] == there


def test_a_job_with_pods_was_admitted() -> None:
    """Also by a scheduler before this one, whatever has become of the queue."""
    api = Api()
    api.apply(job({"w": 2}, "PodEvicted RestartPod", queue="q"))
    api.tell(QueueSeen("q"))
    api.settle()
    api.fall()
    api.tell(QueueSeen("q", capability=(("cpu", 100),)))
    api.settle()
    api.evict("j-w-1")
    api.settle()
    assert list(api.pods()) == ["j-w-0", "j-w-1"]


def test_the_error_of_a_job_is_not_the_refusal_of_the_next_one() -> None:
    """All three ask for the same."""
    api = Api(nodes=0)
    api.tell(QueueSeen("q", capability=(("cpu", 300),)))
    api.apply(job({"w": 2}, name="first", queue="q"))
    api.settle()
    wrong = job({"w": 2}, name="b", queue="q")
    wrong["metadata"]["annotations"] = {"lockstep.dev/placement": "here"}
    for each in (job({"w": 2}, name="a", queue="q"), wrong, job({"w": 2}, name="c", queue="q")):
        api.apply(each)
    api.settle()
    a, b, c = (api.there["Job", name]["status"]["state"]["message"] for name in "abc")
    assert a == c == "queue q: capability of 0.3 cpu is already claimed by jobs ahead of this one"
    assert b == 'annotation lockstep.dev/placement: "here" is not one of pack, spread, balance'


def test_more_min_resources_are_another_question() -> None:
    """Somebody has changed those of one PodGroup."""
    api = Api(nodes=0)
    api.tell(QueueSeen("q", capability=(("cpu", 300),)))
    api.apply(job({"w": 2}, name="first", queue="q"))
    api.settle()
    for name in "ab":
        api.apply(job({"w": 2}, name=name, queue="q"))
    api.settle()
    group = next(
        raw for (kind, name), raw in api.there.items() if kind == "PodGroup" and name[0] == "a"
    )
    group["spec"]["minResources"]["cpu"] = "5"
    api.apply(group)
    api.tell(QueueSeen("q", capability=(("cpu", 301),)))
    api.settle()
    a, b = (api.there["Job", name]["status"]["state"]["message"] for name in "ab")
    assert "can never start" in a
    assert b == "queue q: capability of 0.301 cpu is already claimed by jobs ahead of this one"
