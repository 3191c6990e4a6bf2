"""A checkpoint of an elastic Job makes its pods cheaper victims: only the work since then is lost."""

from typing import Any

import pytest

from central.controllers.composite import jobs_of
from central.controllers.job import elastic_jobs
from central.controllers.job.training_view import describe
from central.model.facts import CoordinatorReported, PrioritySeen
from tests.central.controllers.job.job_api import NAMESPACE, Api, job

Json = dict[str, Any]


def rigid(name: str) -> Json:
    """An elastic Job of one size: what is taken of it ends it, so the harm decides between two."""
    raw = job({"coordinator": 1, "worker": 3}, name=name, cpu="8")
    raw["spec"]["tasks"][1]["minAvailable"] = 3
    raw["spec"]["minAvailable"] = 4
    raw["spec"]["plugins"] = {"svc": [], "elastic": ["--task=worker", "--coordinator=coordinator"]}
    return raw


def saved(api: Api, name: str, at: float) -> None:
    uid = api.there["Job", name]["metadata"]["uid"]
    api.tell(CoordinatorReported(NAMESPACE, name, uid, 0, (0, 1, 2), at))
    api.step()


@pytest.mark.parametrize(("saves", "goes"), [("", "young"), ("old", "old"), ("young", "young")])
def test_who_saved_last_loses_least(saves: str, goes: str) -> None:
    api = Api(nodes=1)
    api.tell(PrioritySeen("high", 1000))
    api.apply(rigid("old"))
    api.settle()
    api.wait(500.0)
    api.apply(rigid("young"))
    api.settle()
    api.wait(1000.0)
    if saves:
        saved(api, saves, api.now - 10.0)
    api.apply(job({"w": 4}, name="urgent", cpu="8", priorityClassName="high"))
    api.settle()
    running = {name.split("-")[0] for name, phase in api.pods().items() if phase == "Running"}
    assert running == {"urgent", "old", "young"} - {goes}, api.pods()


def test_a_silent_coordinator_takes_no_checkpoint_back() -> None:
    api = Api(nodes=1)
    api.apply(rigid("j"))
    api.settle()
    saved(api, "j", api.now - 10.0)
    (gang,) = (one for one in api.cluster.state.gangs.values() if one.members)
    at = api.now - 11.0
    assert {pod.checkpoint for pod in gang.members.values()} == {at}
    uid = api.there["Job", "j"]["metadata"]["uid"]
    api.tell(CoordinatorReported(NAMESPACE, "j", uid, 0, (0, 1, 2)))
    api.step()
    assert {pod.checkpoint for pod in gang.members.values()} == {at}


def test_each_newer_checkpoint_counts() -> None:
    api = Api(nodes=1)
    api.apply(rigid("j"))
    api.settle()
    (gang,) = (one for one in api.cluster.state.gangs.values() if one.members)
    saved(api, "j", api.now - 10.0)
    first = {pod.checkpoint for pod in gang.members.values()}
    api.wait(60.0)
    saved(api, "j", newest := api.now - 5.0)
    assert {pod.checkpoint for pod in gang.members.values()} == {newest} != first


@pytest.mark.parametrize(("measured", "cost_s", "hold_s"), [(None, 40.0, 800.0), (7.0, 7.0, 140.0)])
def test_what_changes_of_size_cost_is_measured(
    measured: float | None, cost_s: float, hold_s: float
) -> None:
    """What the Job says counts until then."""
    api = Api(nodes=1)
    raw = rigid("j")
    raw["metadata"]["annotations"] = {"lockstep.dev/resize-cost": "40s"}
    api.apply(raw)
    api.settle()
    uid = api.there["Job", "j"]["metadata"]["uid"]
    api.tell(CoordinatorReported(NAMESPACE, "j", uid, 0, (0, 1, 2), resize_cost_s=measured))
    api.step()
    [gang] = elastic_jobs.elastic_gangs(jobs_of(api.cluster), api.cluster.state)
    assert (gang.cost_s, gang.hold_s) == (cost_s, hold_s)


def test_measured_speeds_count_instead_of_wrong_ones() -> None:
    """The Job, which has three members on one node, says that each makes it twice as fast."""
    api = Api(nodes=1)
    raw = rigid("j")
    raw["metadata"]["annotations"] = {"lockstep.dev/speed": "1:1 2:2 3:3"}
    api.apply(raw)
    api.settle()
    uid = api.there["Job", "j"]["metadata"]["uid"]
    for measured, counts in (((3, 1, 6.0),), 3.0), (((1, 1, 4.0), (3, 1, 6.0)), 1.5):
        api.tell(CoordinatorReported(NAMESPACE, "j", uid, 0, (0, 1, 2), speeds=measured))
        api.step()
        jobs = jobs_of(api.cluster)
        [gang] = elastic_jobs.elastic_gangs(jobs, api.cluster.state)
        assert gang.task.speeds is not None
        found = gang.task.speeds.at(3, 1) / gang.task.speeds.at(1, 1)
        assert found == pytest.approx(counts, rel=0.1)
        [job] = jobs.elastic.values()
        said = "lockstep.dev/speed differs from what is measured" in describe(job, api.now)
        assert said == (counts == 1.5)
