"""Events about what the coordinator of an elastic Job reports."""

from typing import Any

from central.controllers.job.training_notices import APART_S
from central.model.facts import CoordinatorReported, CoordinatorSilent
from tests.central.controllers.job.job_api import NAMESPACE, Api
from tests.central.controllers.job.test_saved_work import rigid

CHECKPOINT, RESTORED, SET_ASIDE = "CheckpointComplete", "Restored", "TaskSetAside"
HANGS = "TrainingHangs"


class Reported(Api):
    """A Job whose coordinator has reported once, without news."""

    def __init__(self, **first: Any) -> None:
        super().__init__(nodes=1)
        self.apply(rigid("j"))
        self.settle()
        self.report(**first)

    def report(self, **news: Any) -> None:
        uid = self.there["Job", "j"]["metadata"]["uid"]
        self.tell(CoordinatorReported(NAMESPACE, "j", uid, 0, (0, 1, 2), **news))
        self.step()

    def said(self, reason: str) -> list[tuple[str, str]]:
        found = [event for event in self.events() if event["reason"] == reason]
        assert all(event["involvedObject"]["kind"] == "Job" for event in found)
        return [(event["type"], event["message"]) for event in found]


def test_a_complete_checkpoint_at_most_once_a_minute() -> None:
    api = Reported()
    assert not api.said(CHECKPOINT)
    for step in range(1, 6):
        api.report(checkpoint_name=f"ckpt-{step}-1")
    assert api.said(CHECKPOINT) == [("Normal", "checkpoint ckpt-1-1 is complete")]
    api.wait(APART_S[CHECKPOINT])
    api.report(checkpoint_name="ckpt-5-1")
    assert len(api.said(CHECKPOINT)) == 1, "the same one is no news"
    api.report(checkpoint_name="ckpt-9-1")
    assert api.said(CHECKPOINT)[1:] == [("Normal", "checkpoint ckpt-9-1 is complete")]


def test_another_scheduler_repeats_nothing() -> None:
    api = Reported(
        checkpoint_name="ckpt-5-1",
        restored="ckpt-5-1 in generation 3",
        set_aside=1,
        set_aside_why="q",
    )
    api.report(
        checkpoint_name="ckpt-5-1",
        restored="ckpt-5-1 in generation 3",
        set_aside=1,
        set_aside_why="q",
    )
    assert not [each for reason in APART_S for each in api.said(reason)]


def test_a_silent_coordinator_that_speaks_again_repeats_nothing() -> None:
    api = Reported()
    api.report(restored="ckpt-5-1 in generation 3")
    uid = api.there["Job", "j"]["metadata"]["uid"]
    api.tell(CoordinatorSilent(NAMESPACE, "j", uid))
    api.wait(60.0)
    api.report(restored="ckpt-5-1 in generation 3")
    assert api.said(RESTORED) == [
        ("Normal", "its processes loaded checkpoint ckpt-5-1 in generation 3")
    ]


def test_a_hang_is_said_once_until_it_is_over() -> None:
    api = Reported()
    why = "no step for 63 s; rank 1 (member 1) waits for its loader"
    for text in (why, why, ""):
        api.report(standstill=text)
    assert api.said(HANGS) == [("Warning", why)]
    api.wait(APART_S[HANGS])
    api.report(standstill="no step for 70 s; rank 0 (member 0) is within a step")
    assert len(api.said(HANGS)) == 2


def test_tasks_that_are_set_aside() -> None:
    api = Reported()
    why = "queue q: task 3 (part-3): a torn file"
    api.report(set_aside=1, set_aside_why=why)
    api.report(set_aside=1, set_aside_why=why)
    assert api.said(SET_ASIDE) == [("Warning", f"{why}; 1 so far in this epoch")]
    api.report(set_aside=0)
    api.wait(APART_S[SET_ASIDE])
    api.report(set_aside=1, set_aside_why=why)
    assert len(api.said(SET_ASIDE)) == 1, "equal messages share one Event"
    for number in range(4, 90):
        api.report(set_aside=number, set_aside_why=f"queue q: task {number}: a torn file")
    assert 8 <= len(api.said(SET_ASIDE)) <= 11, "a report a second makes few Events"
