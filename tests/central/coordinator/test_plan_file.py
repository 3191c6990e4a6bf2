"""A plan of sizes from a file: read when it changes, and only what it says."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from central.controllers.training.generation import SizePlan
from central.coordinator.plan_file import PlanFile
from central.coordinator.request_fields import MOST_PLAN

FULL = {"members": [3, 0, 1, 3], "leave_in_s": 30, "reason": "why", "least": 2, "over": True}


class Written:
    def __init__(self, folder: Path) -> None:
        self.path, self.times = folder / "plan.json", 0
        self.plan = PlanFile(str(self.path))

    def write(self, content: Any) -> None:
        """At another time than before, however coarse the clock of the file system is."""
        self.times += 1
        self.path.write_text(content if isinstance(content, str) else json.dumps(content))
        os.utime(self.path, ns=(self.times, self.times * 10**9))


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_a_plan_is_read_once_for_each_change(written: Written) -> None:
    assert written.plan.changed(100.0) is None, "there is none yet"
    written.write(FULL)
    expected = SizePlan(1, (0, 1, 3), leave_by=130.0, reason="why", least=2, over=True)
    assert written.plan.changed(100.0) == expected
    assert written.plan.changed(101.0) is None
    written.write({"members": [0]})
    assert written.plan.changed(200.0) == SizePlan(2, (0,))
    written.path.unlink()
    assert written.plan.changed(201.0) is None
    written.write({"members": []})
    assert written.plan.changed(202.0) == SizePlan(3, ())


def test_no_more_is_read_than_a_plan_may_have(written: Written) -> None:
    written.write('{"members": [0]}'.ljust(MOST_PLAN) + "x")
    assert written.plan.changed(0.0) == SizePlan(1, (0,)), "what comes behind it is not looked at"


def test_another_file_of_the_same_time_is_a_change(written: Written) -> None:
    written.write({"members": [0]})
    assert written.plan.changed(0.0) is not None
    other = Written(written.path.parent)
    other.path = written.path.with_name("other")
    other.write({"members": [1]})
    other.path.rename(written.path)
    assert written.plan.changed(0.0) == SizePlan(2, (1,))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "body: not JSON"),
        ("[]", "body: not a JSON object"),
        ({}, "members"),
        ({"members": ["0"]}, "members"),
        ({"members": [-1]}, "members"),
        ({"members": [100_001]}, "members"),
        ({"members": [0], "leave_in_s": -1}, "leave_in_s"),
        ({"members": [0], "reason": 7}, "reason"),
        ({"members": [0], "least": -1}, "least"),
        ({"members": [0], "least": 100_001}, "least"),
        ({"members": [0], "over": 1}, "over"),
    ],
)
def test_one_that_cannot_be_read_is_reported_once(
    written: Written, content: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    written.write(content)
    assert [written.plan.changed(0.0) for _ in range(3)] == [None] * 3
    [message] = caplog.messages
    assert message.startswith(f"--plan {written.path}: {says}")
    assert message.endswith("the last plan stays in effect")
    written.write({"members": [1]})
    found = written.plan.changed(0.0)
    assert found is not None
    assert found.members == (1,)
