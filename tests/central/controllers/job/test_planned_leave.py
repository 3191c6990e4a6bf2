"""Members that leave by plan: their pods stay until the coordinator says that they train no more, as long as it may
take, and not at all while it is silent."""

from typing import Any

import pytest

from central.model.facts import CoordinatorReported, CoordinatorSilent
from central.scheduler.elastic.elastic_gang import LEAVE_FOR_NEEDS_S, LEAVE_S
from tests.central.controllers.job.job_api import NAMESPACE, Api
from tests.central.controllers.job.plan_stories import elastic_job
from tests.central.controllers.job.test_elastic import elastic

ALL = ["j-worker-0", "j-worker-1", "j-worker-2", "j-worker-3"]


class Training(Api):
    """A Job of four members, two at least, and a coordinator that follows its plan."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        raw = elastic_job()
        raw["spec"]["tasks"][1]["replicas"] = len(ALL)
        self.apply(raw)
        self.settle()
        assert self.workers() == ALL
        self.says(0, 1, 2, 3)

    def workers(self) -> list[str]:
        return [name for name in self.pods() if name.startswith("j-worker")]

    def says(self, *training: int, behind: int = 0) -> None:
        """The coordinator follows the newest plan but so many, and these members train."""
        generation = int(self.status()["elastic"]["worker"]["generation"]) - behind
        uid = self.job()["metadata"]["uid"]
        self.tell(CoordinatorReported(NAMESPACE, "j", uid, generation, training))
        self.step(0.1)

    def shrink(self, most: int) -> None:
        """Its owner allows fewer members."""
        raw = self.job()
        raw["spec"]["tasks"][1] |= {"replicas": most}
        self.apply(raw)
        for _ in range(3):
            self.step(0.1)
        assert self.members() == f"0-{most - 1}"

    def members(self) -> str:
        return str(self.status()["elastic"]["worker"]["members"])

    def left_after_s(self) -> float:
        """Seconds until the next worker is deleted."""
        begun, before = self.now, self.workers()
        while self.workers() == before:
            assert self.now - begun < 2 * LEAVE_S, "nobody has left"
            self.step(0.5)
        return self.now - begun


def test_they_stay_until_they_train_no_more() -> None:
    api = Training()
    api.shrink(2)
    api.says(0, 1, 2, 3)
    for _ in range(20):
        api.step(1.0)
    assert api.workers() == ALL
    api.says(0, 1, 3)
    api.step(0.1)
    assert api.workers() == [*ALL[:2], ALL[3]]
    api.says(0, 1)
    api.step(0.1)
    assert api.workers() == ALL[:2]


def test_a_coordinator_that_does_not_follow_the_plan_is_waited_for() -> None:
    """What it says about members is about an older plan."""
    api = Training()
    api.shrink(2)
    api.says(0, 1, behind=1)
    api.step(5.0)
    assert api.workers() == ALL
    api.says(0, 1)
    api.step(0.1)
    assert api.workers() == ALL[:2]


@pytest.mark.long
def test_at_the_latest_after_thirty_seconds() -> None:
    api = Training(nodes=2)
    api.shrink(2)
    api.says(0, 1, 2, 3)
    assert LEAVE_S - 2 < api.left_after_s() <= LEAVE_S + 1
    assert api.workers() == ALL[:2], "all in the same moment: each has the time of the plan"


def hurry(api: Training) -> None:
    """Others wait for a seat of this Job."""
    api.apply(elastic(name="k", least=4, most=4))
    while api.members() != "0-2":
        api.step(0.2)
    assert api.workers() == ALL
    assert api.left_after_s() <= LEAVE_FOR_NEEDS_S + 1


def test_five_seconds_if_others_wait_for_their_seats() -> None:
    hurry(Training(nodes=1))


@pytest.mark.long
@pytest.mark.parametrize("before", ["a hurry", "a restart of the scheduler"])
def test_each_plan_has_a_time_of_its_own(before: str) -> None:
    """What its owner changed is in no hurry, whatever was planned before or by another scheduler."""
    api = Training(nodes=1)
    if before == "a hurry":
        hurry(api)
    else:
        api.fall()
    api.settle()
    api.says(0, 1, 2, 3)
    api.shrink(2)
    api.says(0, 1, 2, 3)
    assert LEAVE_S - 2 < api.left_after_s() <= LEAVE_S + 1


@pytest.mark.parametrize("end", ["silent", "ended", "deleted"])
def test_nobody_is_waited_for_in_vain(end: str) -> None:
    """A silent coordinator, and a member that has ended or is being deleted."""
    api = Training()
    api.shrink(2)
    api.says(0, 1, 2, 3)
    if end == "silent":
        api.tell(CoordinatorSilent(NAMESPACE, "j", api.job()["metadata"]["uid"]))
        gone = {"j-worker-2", "j-worker-3"}
    elif end == "ended":
        api.end("j-worker-3")
        gone = {"j-worker-3"}
    else:
        api.grace_steps = 100
        api.evict("j-worker-3")
        gone = {"j-worker-3"}
    for _ in range(3):
        api.step(0.1)
    assert set(ALL) - set(api.workers()) == gone
