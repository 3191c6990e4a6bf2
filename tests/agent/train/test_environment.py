"""What the variables of a pod say."""

import pytest

from agent.train.environment import BadVariable, pod_place, seconds


def test_gpus_are_the_indices_that_the_agent_gives() -> None:
    assert pod_place({"LOCKSTEP_MEMBER": "3", "LOCKSTEP_GPUS": "4,5,6,7"}).gpus == 4
    assert pod_place({"LOCKSTEP_MEMBER": "3", "LOCKSTEP_GPUS": "0"}).gpus == 1
    assert pod_place({"LOCKSTEP_MEMBER": "3"}).gpus == 0


def test_each_process_has_a_higher_incarnation_unless_its_launcher_says_one() -> None:
    first, second = (pod_place({"LOCKSTEP_MEMBER": "0"}).incarnation for _ in range(2))
    assert 1_600_000_000_000 < first <= second < 2**53
    assert pod_place({"LOCKSTEP_MEMBER": "0", "LOCKSTEP_INCARNATION": "7"}).incarnation == 7


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_seconds_that_are_none(text: str) -> None:
    with pytest.raises(BadVariable, match=r"LOCKSTEP_HANG_AFTER=.*must be a number of seconds"):
        seconds("LOCKSTEP_HANG_AFTER", 60.0, {"LOCKSTEP_HANG_AFTER": text})


def test_seconds() -> None:
    assert seconds("LOCKSTEP_HANG_AFTER", 60.0, {}) == 60.0
    assert seconds("LOCKSTEP_HANG_AFTER", 60.0, {"LOCKSTEP_HANG_AFTER": "0"}) == 0.0
