"""What a coordinator's plan says beside the members: the cause of the last change, the queue, and what a member
holds."""

from typing import Any

import pytest

from central.controllers.composite import jobs_of
from central.controllers.job import training_plan
from central.controllers.job.training_plan import TrainingPlan
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.plan_stories import elastic_job
from tests.central.controllers.job.test_elastic import elastic


class Planned(Api):
    """An API whose scheduler publishes the plan of one Job's coordinator."""

    def __init__(self, gpus: int = 0, **spec: Any) -> None:
        super().__init__(nodes=2)
        self.latest: TrainingPlan | None = None
        self.causes: list[str] = []
        raw = elastic_job()
        raw["spec"] |= spec
        if gpus:
            container = raw["spec"]["tasks"][1]["template"]["spec"]["containers"][0]
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        self.apply(raw)
        self.settle()

    def step(self, seconds: float = 1.0) -> Any:
        decisions = super().step(seconds)
        scheduler = self.cluster
        jobs, currency = jobs_of(scheduler), scheduler.queues.currency
        for by_pod in training_plan.changed(jobs, scheduler.state, currency).values():
            for plan in by_pod.values():
                if self.latest is None or plan.generation > self.latest.generation:
                    self.causes.append(plan.cause)
                self.latest = plan
        return decisions

    @property
    def plan(self) -> TrainingPlan:
        assert self.latest is not None
        return self.latest


@pytest.mark.long
def test_members_hold_gpus() -> None:
    api = Planned(gpus=4)
    assert api.plan.members == (0, 1, 2, 3)
    assert (api.plan.gpus, api.plan.queue) == (4.0, "default")
    assert Planned().plan.gpus == 0


@pytest.mark.long
def test_growth_and_needs() -> None:
    api = Planned()
    assert api.causes[-1] == "room"
    other = elastic(name="k", least=12, most=12)
    api.apply(other)
    api.settle()
    assert (api.causes[-1], len(api.plan.members)) == ("need", 3)


def test_a_loss_a_drained_node_and_a_range() -> None:
    api = Planned()
    api.grace_steps = 3
    for cause in ("loss", "drain"):
        name = next(one for one in api.pods() if one.startswith("j-worker-"))
        if cause == "drain":
            api.cordon(api.there["Pod", name]["spec"]["nodeName"])
        api.evict(name)
        api.step()
        api.step()
        assert api.causes[-1] == cause
    api.settle()
    raw = api.job()
    raw["spec"]["tasks"][1]["replicas"] = 2
    raw["spec"]["tasks"][1]["minAvailable"] = 2
    api.apply(raw)
    api.step()
    api.step()
    assert (api.causes[-1], api.plan.members) == ("range", (0, 1))


def test_the_next_scheduler_does_not_know_the_cause() -> None:
    api = Planned()
    api.fall()
    api.latest, api.causes = None, []
    api.step()
    assert (api.plan.cause, api.plan.reason) == ("", "there is room for more")
