"""A coordinator of another version takes over in the middle of a resize."""

import json
from typing import Any

import pytest

from central.controllers.training.generation import MembershipRules
from central.controllers.training.stored_state import SCHEMA, StoredState, UnreadableState
from tests.central.controllers.training.test_membership import ack_all, live, plan, process

RULES = MembershipRules(least=2)


def in_the_middle() -> dict[str, Any]:
    """Members 0 to 2 train, 3 comes in the place of 2, and 0 has acknowledged at step 12."""
    state = StoredState("a/b/c", RULES)
    members = state.membership
    members.set_plan(0.0, plan(1, range(3)))
    for number in range(3):
        members.join(0.0, process(number))
    ack_all(members, 0.0)
    members.join(1.0, process(3))
    members.report(1.0, 0, 1, 1, 10)
    members.set_plan(2.0, plan(2, (0, 1, 3)))
    members.ack(2.0, 0, 1, 2, 12)
    found: dict[str, Any] = json.loads(json.dumps(state.changes(3.0)))
    return found


def goes_on(sections: dict[str, Any]) -> None:
    state = StoredState("a/b/c", RULES)
    state.read(sections, 100.0)
    members = state.membership
    assert members.proposal is not None
    assert (members.number, members.proposal.leaving) == (2, (2,))
    assert members.proposal.stop_after_step == 12
    assert members.ack(101.0, 1, 1, 2, 11)["counted"] is False, "the agreed step stays"
    ack_all(members, 101.0, 12)
    assert live(members) == [0, 1, 3]


def test_the_same_version_goes_on() -> None:
    goes_on(in_the_middle())


def test_what_a_newer_version_added_is_passed_over() -> None:
    sections = in_the_middle()
    sections["another/section"] = {"x": 1}
    for generation in (sections["membership"]["live"], sections["membership"]["proposal"]):
        generation["colour"] = "blue"
        for one in generation["processes"]:
            one["colour"] = "blue"
    sections["membership"]["colour"] = sections["meta"]["colour"] = "blue"
    goes_on(sections)


def test_what_an_older_version_lacked_is_not_needed() -> None:
    sections = in_the_middle()
    for generation in (sections["membership"]["live"], sections["membership"]["proposal"]):
        for one in generation["processes"]:
            for name in ("island", "gpus", "node"):
                del one[name]
    goes_on(sections)


def test_a_schema_of_the_future_is_refused_with_its_number() -> None:
    sections = in_the_middle()
    sections["meta"]["schema"] = SCHEMA + 1
    with pytest.raises(UnreadableState, match=f"has schema {SCHEMA + 1}; this version reads"):
        StoredState("a/b/c", RULES).read(sections, 100.0)
