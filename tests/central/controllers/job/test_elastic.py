"""A Job whose size the scheduler decides, through the API."""

from typing import Any

import pytest

from central.model import member_numbers
from central.model.facts import QueueSeen
from tests.central import factories
from tests.central.controllers.job.job_api import Api, job

Json = dict[str, Any]


def elastic(least: int = 2, most: int = 12, name: str = "j", **more: Any) -> Json:
    raw = job({"worker": most}, name=name, cpu="8")
    raw["spec"]["tasks"][0]["minAvailable"] = least
    raw["spec"]["minAvailable"] = least
    raw["spec"]["plugins"] = {"elastic": more.pop("arguments", [])}
    raw["metadata"]["annotations"] = {"lockstep.dev/resize-cost": "1s"}
    raw["spec"] |= more
    return raw


def members(api: Api, name: str = "j") -> str:
    return str(api.status(name)["elastic"]["worker"]["members"])


def test_it_takes_what_there_is() -> None:
    api = Api(nodes=1)
    api.apply(elastic())
    api.settle()
    assert members(api) == "0-7"
    assert len(api.pods()) == 8
    assert api.status()["elastic"]["worker"]["size"] == 8


@pytest.mark.long
def test_two_share_evenly() -> None:
    api = Api(nodes=1)
    api.apply(elastic())
    api.settle()
    api.apply(elastic(name="k"))
    for _ in range(60):
        api.step(10.0)
    api.settle()
    sizes = [api.status(name)["elastic"]["worker"]["size"] for name in ("j", "k")]
    assert sizes == [4, 4]


def test_a_member_that_is_lost_shrinks_the_job() -> None:
    api = Api(nodes=1)
    api.apply(elastic(most=4))
    api.settle()
    assert members(api) == "0-3"
    api.evict("j-worker-1")
    api.step()
    api.cordon("n0")  # nobody comes in its place
    api.settle()
    assert members(api) == "0,2-3"
    assert api.phase() == "Running"
    assert api.status()["retryCount"] == 0


def test_a_policy_for_evictions_is_kept() -> None:
    api = Api(nodes=1)
    api.apply(elastic(most=4, policies=[{"event": "PodEvicted", "action": "RestartJob"}]))
    api.settle()
    api.evict("j-worker-1")
    api.settle()
    assert api.status()["retryCount"] == 1


def test_a_member_below_the_least_size_is_made_again() -> None:
    api = Api(nodes=1)
    api.apply(elastic(least=4, most=4))
    api.settle()
    api.evict("j-worker-3")
    api.settle()
    assert members(api) == "0-3"
    assert len(api.pods()) == 4


def test_another_scheduler_goes_on_with_the_members() -> None:
    api = Api(nodes=1)
    api.apply(elastic(most=6))
    api.settle()
    api.evict("j-worker-2")
    api.step()
    api.cordon("n0")
    api.settle()
    before, pods = members(api), api.pods()
    api.fall()
    api.settle()
    assert (members(api), api.pods()) == (before, pods) == ("0-1,3-5", pods)


def test_another_scheduler_makes_room_for_those_who_were_waiting() -> None:
    """It refuses them before it knows of any surplus."""
    api = Api(nodes=1)
    api.apply(elastic(most=6))
    api.settle()
    api.apply(job({"w": 4}, cpu="8", name="k"))
    while "k-w-3" not in api.pods():
        api.step()
    api.fall()
    api.settle()
    assert api.phase("k") == "Running"
    assert members(api) == "0-3"


@pytest.mark.long
def test_a_quota_below_the_least_sizes_evicts_nobody_and_lets_nobody_grow() -> None:
    api = Api(nodes=1)
    api.tell(QueueSeen("q", capability=(("cpu", 200_000),)))
    for name in ("j", "k"):
        api.apply(elastic(least=4, name=name, queue="q"))
        api.settle()
    api.tell(QueueSeen("q", capability=(("cpu", 32_000),)))
    api.tell(factories.node("n9", cpu=64_000, gpus=8))
    for _ in range(60):
        api.step(10.0)
    assert (members(api), members(api, "k")) == ("0-3", "0-3")
    assert not api.status()["retryCount"]
    api.tell(QueueSeen("q", capability=(("cpu", 200_000),)))
    for _ in range(60):
        api.step(10.0)
    assert (members(api), members(api, "k")) == ("0-7", "0-7")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--task=x"], 'spec.plugins.elastic: --task: the job has no task "x"'),
        (["--step=3"], "--step: 3 does not divide the 10 pods between minAvailable 2"),
        (["--step=0"], "--step: 0 does not divide"),
        (["--objective=most"], '--objective: "most" is not one of even, fill'),
        (["--hold=soon"], '--hold: "soon" is not a duration'),
    ],
)
def test_bad_arguments_name_the_field(arguments: list[str], told: str) -> None:
    api = Api()
    api.apply(elastic(arguments=arguments))
    api.settle()
    assert told in api.status()["state"]["message"]
    assert not api.pods()


@pytest.mark.parametrize("text", ["", "0", "0-5,8-15", "3,5,7"])
def test_member_numbers_are_read_as_they_are_written(text: str) -> None:
    assert member_numbers.to_text(member_numbers.from_text(text)) == text


@pytest.mark.parametrize("text", ["5-3", "a", "-1", "1,,2", "100000", "1-", "0-9999999"])
def test_bad_member_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        member_numbers.from_text(text)
