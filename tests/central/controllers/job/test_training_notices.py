"""Events about what the coordinator of an elastic Job reports."""

from dataclasses import replace
from typing import Any

import pytest

from central.controllers.job.desired import AVOIDED_S
from central.controllers.job.training_notices import APART_S
from central.model.facts import CoordinatorReported, CoordinatorSilent
from central.server.history.gang_records import GangRecords
from tests.central.controllers.job.job_api import NAMESPACE, Api
from tests.central.controllers.job.test_saved_work import rigid

CHECKPOINT, RESTORED, SET_ASIDE = "CheckpointComplete", "Restored", "TaskSetAside"
HANGS, WEAK_PAIRS, SLOW = "TrainingHangs", "WeakPairs", "SlowMembers"
WHY = {
    "pairs": "members 0 and 2 need 9.0 times as long as pairs like them (90 ms)",
    "slow": "the others wait 0.4 s of each step of 1 s for rank 2 (member 2) on node n2",
}


class Reported(Api):
    """A Job whose coordinator has reported once, without news."""

    def __init__(self, nodes: int = 1, cpu: int = 64_000, **first: Any) -> None:
        super().__init__(nodes=nodes, cpu=cpu)
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
        standstill="no step",
        pairs=WHY["pairs"],
        slow=WHY["slow"],
    )
    api.report(
        checkpoint_name="ckpt-5-1",
        restored="ckpt-5-1 in generation 3",
        set_aside=1,
        set_aside_why="q",
        standstill="no step",
        pairs=WHY["pairs"],
        slow=WHY["slow"],
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


@pytest.mark.parametrize(("reason", "field"), [(WEAK_PAIRS, "pairs"), (SLOW, "slow")])
@pytest.mark.parametrize("nodes", [4, 5])
def test_a_pod_of_weak_pairs_or_a_slow_member_is_replaced_on_another_node(
    nodes: int, reason: str, field: str
) -> None:
    """Its successor returns to the node where there is no other one for a while. Each node has one pod."""
    api = Reported(nodes=nodes, cpu=9_000)
    before = {name: api.there["Pod", name] for name in api.pods()}
    name, weak = next(iter(before.items()))
    records = GangRecords(api.cluster)
    why, replaced = WHY[field], frozenset((weak["metadata"]["uid"], "of-another-job"))
    uid = api.there["Job", "j"]["metadata"]["uid"]
    records.observe([], [])
    for _ in range(2):
        first = CoordinatorReported(
            NAMESPACE, "j", uid, 0, (0, 1, 2), None, "c-1-1", replaced=replaced
        )
        news = replace(first, pairs=why) if field == "pairs" else replace(first, slow=why)
        api.tell(news)
        records.observe([news], api.step())
    api.settle()
    record = records.find(NAMESPACE, "j")
    assert isinstance(record, dict)
    assert not [each for each in record["events"] if not each["what"]], "a checkpoint is not noted"
    noted = [each["text"] for each in record["events"] if each["text"].endswith(why)]
    assert noted == [why, f"1 pod: replaced by its coordinator: {why}"]
    if nodes == 4:
        assert "nodeName" not in api.there["Pod", name]["spec"]
        api.wait(AVOIDED_S)
        api.settle()
    assert api.said(reason) == [("Warning", why)]
    after = {each: api.there["Pod", each] for each in api.pods()}
    changed = [each for each in before if after[each]["metadata"] != before[each]["metadata"]]
    assert changed == [name]
    assert (after[name]["spec"]["nodeName"] == weak["spec"]["nodeName"]) == (nodes == 4)
    assert api.phase() == "Running"


@pytest.mark.long
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
