"""What has not changed and is not due is not looked at again, and nothing is missed by that."""

from dataclasses import replace

import pytest

from central.controllers.training.generation import MembershipRules, Place
from central.controllers.training.membership import Membership
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import LeaseKey
from central.controllers.training.task_source import QueueSettings, TaskSource
from tests.central.controllers.training.stories import Story
from tests.central.controllers.training.test_membership import plan, process

RULES = MembershipRules(least=1, silent_s=1e6)
MINE = (0, 1)


class Anew(Story):
    """The core looks at everything before and after each step."""

    def advance(self) -> None:
        for _ in range(2):
            self.state._quiet = (None, 0.0)
            self.state.membership._quiet = (-1, 0.0)
            super().advance()
        self.state.membership._quiet = (-1, 0.0)


def outcome(story: Story) -> object:
    story.run(400)
    return story.counts, story.members, story.state.membership.snapshot(), story.stored


@pytest.mark.parametrize("seed", range(12))
def test_stories_end_as_if_everything_were_looked_at_in_each_step(seed: int) -> None:
    assert outcome(Story(seed)) == outcome(Anew(seed))


def with_lease(failures: int = 3) -> tuple[StoredState, LeaseKey]:
    """Member 0 is there, and has leased the only task at 0 s."""
    state = StoredState("ns/train/u", RULES)
    state.membership.join(0.0, process(0))
    queue = state.tasks.create(
        "q", QueueSettings(seed=1, failures=failures), TaskSource.of_range(1, 1)
    )
    (task,) = queue.lease(0.0, MINE, 0, 1)["tasks"]
    return state, LeaseKey(MINE, 0, task["task"], task["attempt"])


def leased(state: StoredState) -> int:
    found: int = state.tasks["q"].summary()["leased"]
    return found


def test_a_lease_ends_at_its_time_though_nothing_else_changes() -> None:
    state, _ = with_lease()
    state.advance(0.0)
    ends = state.tasks["q"].next_time()
    assert ends is not None
    state.advance(ends - 1)
    assert leased(state) == 1
    state.advance(ends)
    assert leased(state) == 0


def test_a_lease_ends_with_its_owner() -> None:
    state, _ = with_lease()
    state.advance(0.0)
    state.membership.leave(1.0, *MINE, 137, "killed")
    state.advance(1.0)
    assert leased(state) == 0


def test_a_job_fails_with_the_task_that_is_one_too_many() -> None:
    state, key = with_lease(failures=0)
    state.advance(0.0)
    state.tasks["q"].fail(key, "broken record")
    state.advance(1.0)
    assert state.membership.failed


def test_a_member_whose_new_pod_has_ended_is_lost_when_it_is_silent() -> None:
    made = Membership(MembershipRules(least=1, ended_s=10, silent_s=30))
    made.set_plan(0.0, plan(1, (0,), places={0: Place(uid="u")}))
    made.join(0.0, process(0))
    made.advance(13.0)  # the next look is due when it was silent for 30 s
    made.join(14.0, replace(process(0), uid="another"))
    made.advance(23.9)
    assert made.present()
    made.advance(24.0)
    assert not made.present()
