"""Members for which the others wait: who is named, when its pod is replaced, and that noise never looks like one."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from central.controllers.training.generation import MembershipRules, SizePlan
from central.controllers.training.slow_members import ROUNDS
from central.controllers.training.standstills import REPLACED_PER_HOUR
from central.controllers.training.stored_state import StoredState
from tests.central.controllers.training.test_membership import ack_all, process
from tests.effort import seeds

DAY_S = 86_400.0


class Compared:
    """Members that train together, member N on node nN; a step takes a second, of which each works 0.5 s."""

    def __init__(self, size: int = 4, replace_after_s: float = 0.0) -> None:
        self.state = StoredState("ns/job/uid", MembershipRules(least=1, most=size))
        self.state.slow.replace_after_s = replace_after_s
        members = self.state.membership
        members.set_plan(0.0, SizePlan(1, tuple(range(size))))
        for member in range(size):
            self.join(member, 1, f"n{member}")
        ack_all(members, 0.0)
        self.size, self.now = size, 0.0

    def join(self, member: int, incarnation: int, node: str) -> None:
        one = process(member, incarnation, node)
        self.state.membership.join(0.0, replace(one, uid=f"u{member}-{incarnation}"))

    def move(self, member: int, incarnation: int, node: str) -> None:
        """Another pod takes the member's place."""
        self.join(member, incarnation, node)
        ack_all(self.state.membership, 0.0)
        self.state.advance(0.0)

    def steps(self, count: int, own: Mapping[int, float] | None = None) -> None:
        for _ in range(count):
            self.now += 1.0
            for member in range(self.size):
                self.state.compare(self.now, member, (own or {}).get(member, 0.5), 1.0)

    def named(self) -> list[int]:
        return [*self.state.slow.members]

    @property
    def replaced(self) -> list[str]:
        return list(self.state.pairs.replaced.values())


def test_a_member_for_which_the_others_wait_is_named_with_its_node() -> None:
    made = Compared()
    made.steps(ROUNDS - 1, {2: 0.9})
    assert (made.named(), made.state.slow.sentence) == ([], "")
    made.steps(1, {2: 0.9})
    assert made.named() == [2]
    why = "the others wait 0.4 s of each step of 1 s for rank 2 (member 2) on node n2"
    assert made.state.slow.sentence == why
    made.steps(500, {2: 0.8})
    assert made.state.slow.sentence == why, "no news while it lasts"
    made.steps(ROUNDS // 3 - 1)
    assert made.named() == [2]
    made.steps(1)
    assert (made.named(), made.state.slow.sentence) == ([], "")
    made.steps(500, {2: 0.9})
    assert made.replaced == [], "nothing is replaced unless the policy says so"


@pytest.mark.parametrize(
    ("size", "own"),
    [
        (2, {1: 0.99}),
        (4, {1: 0.73}),  # above the median by 0.23 s of a step that may be 1.3 times faster
        (4, {0: 0.95, 1: 0.95}),  # two of four: nothing says what is usual
        (4, {0: 0.0, 1: 0.9}),  # one does not say it
    ],
)
def test_who_is_not_named(size: int, own: Mapping[int, float]) -> None:
    made = Compared(size, replace_after_s=1.0)
    made.steps(300, own)
    assert (made.named(), made.replaced) == ([], [])


def test_rounds_in_which_it_is_as_fast_count_three_times() -> None:
    made = Compared()
    for _ in range(100):
        made.steps(3, {1: 0.9})
        made.steps(1)
    assert made.named() == []
    for _ in range(ROUNDS):
        made.steps(4, {1: 0.9})
        made.steps(1)
    assert made.named() == [1]


def test_a_member_that_is_slow_for_fifty_steps_is_not_named() -> None:
    """It copies a checkpoint, or its records are long, one after another."""
    made = Compared(replace_after_s=1.0)
    for turn in range(12):
        made.steps(50, {turn % 4: 0.9})
    assert (made.named(), made.replaced) == ([], [])


NOISES: dict[str, Callable[[random.Random], float]] = {
    "even": lambda dice: dice.uniform(0.1, 1.0),
    "few long ones": lambda dice: 0.1 if dice.random() < 0.9 else 0.95,
    "mostly long ones": lambda dice: 0.95 if dice.random() < 0.4 else 0.1,
    "heavy tails": lambda dice: min(1.0, 0.05 * dice.paretovariate(0.7)),
    "steady": lambda dice: dice.gauss(0.5, 0.02),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("size", [3, 8, 31])
def test_members_that_are_alike_are_never_replaced(noise: str, size: int) -> None:
    """Hours of steps, whose times vary by ten."""
    for seed in seeds(9):
        dice, made = random.Random(f"{noise} {size} {seed}"), Compared(size, replace_after_s=1.0)
        for _ in range(12_000 // size):
            made.steps(1, {member: NOISES[noise](dice) for member in range(size)})
            assert made.named() == []
        assert made.replaced == []


@pytest.mark.parametrize("after_s", [1.0, 300.0])
def test_its_pod_is_replaced_after_the_time_of_the_policy(after_s: float) -> None:
    """It trains until the scheduler has deleted its pod: none of the others waits for that."""
    made = Compared(replace_after_s=after_s)
    due = max(ROUNDS, int(after_s) + 1)
    made.steps(due - 1, {2: 0.9})
    assert made.replaced == []
    made.steps(1, {2: 0.9})
    assert made.replaced == ["u2-1"]
    assert sorted(made.state.membership.present()) == [0, 1, 2, 3]
    assert made.state.membership.proposal is None
    made.steps(2000, {2: 0.9})
    assert made.replaced == ["u2-1"], "once, whatever the scheduler does"


def test_a_number_that_is_slow_on_another_node_too_is_not_replaced_again() -> None:
    made = Compared(replace_after_s=1.0)
    made.steps(ROUNDS, {2: 0.9})
    made.move(2, 2, "n9")
    assert made.named() == [], "in another generation all are compared again"
    made.steps(500, {2: 0.9})
    assert made.named() == [2]
    assert made.replaced == ["u2-1"]
    made.now += DAY_S
    made.steps(ROUNDS, {2: 0.9})
    assert made.replaced == ["u2-1", "u2-2"]


def test_a_node_is_left_once() -> None:
    """The scheduler had no other one for the successor of its next pod."""
    made = Compared(replace_after_s=1.0)
    made.steps(ROUNDS, {2: 0.9})
    made.move(2, 2, "n9")
    made.move(3, 2, "n2")
    made.steps(500, {3: 0.9})
    assert made.named() == [3]
    assert made.replaced == ["u2-1"]
    made.move(1, 2, "n8")
    made.steps(ROUNDS, {1: 0.9})
    assert made.replaced == ["u2-1", "u1-2"]


def test_replacements_share_the_budget_of_hangs() -> None:
    made = Compared(replace_after_s=1.0)
    for _ in range(REPLACED_PER_HOUR - 1):
        assert made.state.standstills.budget.allows(0.0)
    made.steps(ROUNDS, {2: 0.9})
    made.move(1, 2, "n8")
    made.steps(ROUNDS, {1: 0.9})
    assert made.replaced == ["u2-1"]
    made.now = 3601.0
    made.steps(1, {1: 0.9})
    assert made.replaced == ["u2-1", "u1-2"], "an hour later"


def test_nothing_is_compared_while_the_size_changes() -> None:
    made = Compared(replace_after_s=1.0)
    made.join(1, 2, "n1")
    assert made.state.membership.proposal is not None
    made.steps(500, {2: 0.9})
    assert made.named() == []
