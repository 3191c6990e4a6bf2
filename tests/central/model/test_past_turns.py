"""The condition that says what a gang that shares time has run, as it is read back, and as strangers may write it."""

import pytest

from central.model import past_turns
from central.model.past_turns import PastTurns


def test_what_is_written_is_read_beside_other_conditions() -> None:
    for turns in (
        PastTurns(0, 1.0),
        PastTurns(2640, 2.25, 1_795_867_200, runs=True),
        PastTurns(10**9, 1234.5, 1_795_867_201),
    ):
        written = past_turns.condition(turns, 0.0)
        assert past_turns.read([{"type": "Unschedulable", "message": "ran out"}, written]) == turns


@pytest.mark.parametrize(
    "message",
    [
        "",
        "ran 5 s",
        "ran -5 s until 2026-11-28T12:00:00Z; contention 2.00",
        "ran 5 s until noon; contention 2.00",
        "ran 5 s before; contention 2.00",
        None,
        5,
        ["x"],
    ],
)
def test_another_message_says_nothing(message: object) -> None:
    assert past_turns.read([{"type": past_turns.CONDITION, "message": message}]) is None


def test_numbers_of_a_stranger_are_bounded() -> None:
    for message in (
        "ran 9999999999 s until 9999-99-99T99:99:99Z; contention 9999999.00",
        "ran 1 s until 0000-00-00T00:00:00Z and runs since; contention 0.00",
    ):
        found = past_turns.read([{"type": past_turns.CONDITION, "message": message}])
        assert found is not None
        assert 1 <= found.contention <= past_turns.CONTENTION_MOST
        assert found.ran_s < 4e9
