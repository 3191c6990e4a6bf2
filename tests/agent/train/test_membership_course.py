"""What a member says to its coordinator and what it waits for, answer by answer."""

from collections.abc import Iterator
from typing import Any

import pytest

from agent.train.client import Answer, RequestRefused, Stale, Unreachable
from agent.train.environment import PodPlace
from agent.train.generation import Generation, parse
from agent.train.generation_lease import SPAN_S, CutOff, GenerationLease
from agent.train.membership import Membership
from tests.agent.train.scripted_coordinator import Post, ScriptedCoordinator
from tests.agent.train.workers import wait_for

MEMBER, INCARNATION = 3, 70
IDENTITY = {"member": MEMBER, "incarnation": INCARNATION}
ME = (MEMBER, INCARNATION)
OVER = {"generation": 0, "state": "waiting", "over": True}
WITHIN_S = 20


def place() -> PodPlace:
    return PodPlace(MEMBER, INCARNATION, "p", "u", "10.0.0.3", 8, "", "n")


def generation(number: int, state: str, *members: tuple[int, int], **more: Any) -> dict[str, Any]:
    entries = [
        {"member": member, "incarnation": incarnation, "rank": rank, "address": "a"}
        for rank, (member, incarnation) in enumerate(members)
    ]
    return {"generation": number, "state": state, "members": entries, **more}


def live(number: int, *members: tuple[int, int]) -> dict[str, Any]:
    return generation(number, "live", *members)


def proposed(number: int, *members: tuple[int, int], acknowledged: bool = False) -> dict[str, Any]:
    return generation(number, "proposed", *members, acknowledged=acknowledged)


def ack(number: int, step: int | None) -> Post:
    return "/v1/ack", {**IDENTITY, "generation": number, "step": step}


def stale(**body: Any) -> Stale:
    return Stale(409, "/v1/x", body)


class OneByOne(Membership):
    """The next answer of the coordinator comes when the one before has been acted on."""

    def plan(self, *answers: Any) -> None:
        self._left = iter(answers)

    def wait_change(self, seen: Generation, timeout_s: float) -> Generation:
        assert 0 < timeout_s <= 1
        answer = next(self._left, None)
        assert answer is not None, f"waits after the last answer; newest: {self.newest}"
        assert isinstance(self.client, ScriptedCoordinator)
        take_in(self.client, answer)
        return super().wait_change(seen, 0.0)


def take_in(coordinator: ScriptedCoordinator, *answers: Any) -> None:
    """Returns when the watch has acted on the answers and asks again."""
    asked = len(coordinator.polled) + len(answers)
    coordinator.says(*answers)
    wait_for(lambda: len(coordinator.polled) >= asked, "the watch asks again")


@pytest.fixture
def coordinator() -> ScriptedCoordinator:
    return ScriptedCoordinator()


@pytest.fixture
def member(coordinator: ScriptedCoordinator) -> Iterator[OneByOne]:
    """Joined; the answers of its polls are those that the test says."""
    made = OneByOne(coordinator, place())
    made.start()
    wait_for(lambda: bool(coordinator.polled), "the watch asks")
    coordinator.posted.clear()
    yield made
    end(made, coordinator)


def end(member: Membership, coordinator: ScriptedCoordinator) -> None:
    member._closed.set()
    coordinator.says(OVER)
    member._thread.join(WITHIN_S)
    assert not member._thread.is_alive()


@pytest.mark.parametrize(
    ("above", "joined_with"), [(90, 91), (INCARNATION, INCARNATION + 1), (12, INCARNATION)]
)
def test_a_member_joins_above_all_incarnations_before_it(above: int, joined_with: int) -> None:
    coordinator = ScriptedCoordinator()
    said: list[Answer | Exception] = [stale(incarnation=above), {"silent_s": 12}]
    answers = iter(said)
    coordinator.on_post = lambda *_: next(answers)
    member = Membership(coordinator, place()).start()
    first, second = (body for _, body in coordinator.posted)
    assert first == place().join_request()
    assert second == {**first, "incarnation": joined_with}
    assert (member.place.incarnation, member.lease.span_s) == (joined_with, 12)
    end(member, coordinator)


@pytest.mark.parametrize("refused", [stale(), stale(incarnation="x"), RequestRefused(403, "", {})])
def test_who_may_not_join_does_not_watch(refused: RequestRefused) -> None:
    coordinator = ScriptedCoordinator()
    coordinator.on_post = lambda *_: refused
    with pytest.raises(type(refused)):
        Membership(coordinator, place()).start()
    assert len(coordinator.posted) == 1
    assert not coordinator.polled


def test_without_a_span_the_default_counts(member: Membership) -> None:
    assert member.lease.span_s == SPAN_S


WAITS = {**live(5, (0, 1)), "waiting": [MEMBER]}

# answers of the watch; the number after which a generation is wanted; which one comes; what was acknowledged
COURSES: dict[str, tuple[list[Any], int, int | None, list[Post]]] = {
    "live at once": ([live(1, ME)], 0, 1, []),
    "proposed, then live": ([proposed(1, ME), live(1, ME)], 0, 1, [ack(1, 5)]),
    "another one first": ([proposed(1, (0, 1)), live(1, (0, 1)), live(2, ME)], 0, 2, []),
    "an older process of this member": ([proposed(1, (MEMBER, 69)), live(2, ME)], 0, 2, []),
    "the one before does not count": ([live(4, ME), live(5, ME)], 4, 5, []),
    "superseded before it was live": (
        [proposed(5, ME), proposed(6, ME), live(6, ME)],
        4,
        6,
        [ack(5, 5), ack(6, 5)],
    ),
    "acknowledged already": ([proposed(5, ME, acknowledged=True), live(5, ME)], 4, 5, [ack(5, 5)]),
    "known again, not asked again": (
        [proposed(5, ME), proposed(5, ME, acknowledged=True), live(5, ME)],
        4,
        5,
        [ack(5, 5)],
    ),
    "forgotten by the coordinator": (
        [proposed(5, ME), proposed(5, ME, (0, 1)), live(5, ME)],
        4,
        5,
        [ack(5, 5), ack(5, 5)],
    ),
    "leaves with the proposal": ([proposed(5, (0, 1))], 4, None, [ack(5, 5)]),
    "was left out of a live one": ([live(5, (0, 1))], 4, None, []),
    "waits until its replica is whole": (
        [WAITS, {**WAITS, "generation": 6}, proposed(7, ME), live(7, ME)],
        4,
        7,
        [ack(7, 5)],
    ),
    "stops for it": (
        [{**WAITS, "state": "proposed"}, WAITS, proposed(6, ME), live(6, ME)],
        4,
        6,
        [ack(5, 5), ack(6, 5)],
    ),
    "waits and is not needed any more": ([WAITS, live(6, (0, 1))], 4, None, []),
    "the Job is over": ([OVER], 4, None, []),
    "older answers do not count": ([live(4, ME), live(3, ME), live(5, ME)], 4, 5, []),
}


@pytest.mark.parametrize("name", COURSES)
def test_the_next_generation(member: OneByOne, name: str) -> None:
    answers, after, number, acknowledged = COURSES[name]
    member.plan(*answers)
    found = member.next_live(after, 5)
    assert (found and found.number) == number
    assert isinstance(member.client, ScriptedCoordinator)
    assert member.client.posted == acknowledged


def test_a_step_that_was_not_counted_is_left_out(
    member: OneByOne, coordinator: ScriptedCoordinator
) -> None:
    """A late report raised the step that the coordinator counts on; nobody takes that one any more."""
    coordinator.on_post = lambda _, body: {"counted": body["step"] is None}
    member.plan(proposed(5, ME, acknowledged=True), live(5, ME))
    assert member.next_live(4, 9) is not None
    assert coordinator.posted == [ack(5, 9), ack(5, None)]


@pytest.mark.parametrize("answer", [{}, stale(), Unreachable("no answer")])
def test_a_question_is_asked_once_in_a_while(
    member: OneByOne, coordinator: ScriptedCoordinator, answer: Any
) -> None:
    coordinator.on_post = lambda *_: answer
    found = parse(live(7, ME))
    member.ask(found)
    member.ask(found)
    assert coordinator.posted == [("/v1/ask", {**IDENTITY, "generation": 7})]


def test_who_waits_for_its_replica_is_not_lost() -> None:
    before = parse(live(4, ME, (0, 1), (1, 1)))
    assert before.lost(parse(WAITS)) == [1]
    assert before.lost(parse({**WAITS, "waiting": []})) == [MEMBER, 1]


@pytest.mark.parametrize("answer", [stale(), Unreachable("no answer")])
def test_an_acknowledgement_without_an_answer_ends_nobody(
    member: OneByOne, coordinator: ScriptedCoordinator, answer: Exception
) -> None:
    coordinator.on_post = lambda *_: answer
    member.plan(proposed(5, ME), live(6, ME))
    found = member.next_live(4, 9)
    assert found is not None
    assert (found.number, coordinator.posted) == (6, [ack(5, 9)])


def test_who_is_cut_off_waits_no_longer(member: OneByOne) -> None:
    member.plan()
    now_s = member.client.answered_at
    member.lease = GenerationLease(member.client, lambda: now_s)
    now_s += SPAN_S
    with pytest.raises(CutOff, match="30 s"):
        member.next_live(1, None)
    member.plan(live(1, ME))  # who was in none yet has nothing to be cut off from
    assert member.next_live(0, None) is not None


def test_a_poll_names_what_is_known(member: OneByOne, coordinator: ScriptedCoordinator) -> None:
    """Of a generation that is not live yet the answer is awaited that it is."""
    member.lease.span_s = 12
    courses = [live(4, ME), proposed(5, ME), live(5, ME), live(5, ME, (0, 1))]
    take_in(coordinator, *courses)
    asked = [(each["after"], each["state"], each["wait"]) for each in coordinator.polled]
    assert asked[1:] == [(4, None, 4), (4, "live", 4), (5, None, 4), (5, None, 4)]
    assert (asked[0][:2], asked[0][2]) == ((0, None), 10)
    for each in coordinator.polled:
        assert {key: each[key] for key in IDENTITY} == IDENTITY
        assert each["path"] == "/v1/generation"
        assert each["timeout_s"] > each["wait"]


@pytest.mark.parametrize(("span_s", "wait"), [(0.5, 1), (9, 3), (29, 9), (600, 10)])
def test_a_poll_ends_before_silence_counts(
    member: OneByOne, coordinator: ScriptedCoordinator, span_s: float, wait: int
) -> None:
    member.lease.span_s = span_s
    take_in(coordinator, live(1, ME))
    assert coordinator.polled[-1]["wait"] == wait


def test_who_was_forgotten_joins_again(member: OneByOne, coordinator: ScriptedCoordinator) -> None:
    coordinator.on_post = lambda *_: {"silent_s": 7}
    take_in(coordinator, stale(join=True), live(2, ME))
    assert coordinator.posted == [("/v1/join", place().join_request())]
    assert (member.lease.span_s, member.newest.number) == (7, 2)


@pytest.mark.parametrize("answer", [stale(), Unreachable("no answer"), {"generation": "x"}, None])
def test_what_is_no_answer_is_asked_again(
    member: OneByOne, coordinator: ScriptedCoordinator, answer: Any
) -> None:
    take_in(coordinator, live(1, ME), answer, live(2, ME))
    assert (member.newest.number, coordinator.posted) == (2, [])


@pytest.mark.parametrize("by_join", [False, True])
def test_a_refusal_reaches_who_waits(coordinator: ScriptedCoordinator, *, by_join: bool) -> None:
    """A newer process speaks for this member, or its token is wrong: it ends."""
    member = Membership(coordinator, place()).start()
    coordinator.on_post = lambda *_: stale(incarnation=99)
    coordinator.says(stale(join=True) if by_join else RequestRefused(401, "/v1/generation", {}))
    with pytest.raises(Stale if by_join else RequestRefused):
        member.next_live(0, None)
    member._thread.join(WITHIN_S)
    assert not member._thread.is_alive()
    coordinator.posted.clear()
    member.join_again()  # the watch has ended
    assert not coordinator.posted


def test_the_end_is_said_with_the_last_part_of_the_message(
    member: OneByOne, coordinator: ScriptedCoordinator
) -> None:
    message = "".join(chr(0x100 + number % 1000) for number in range(5000))
    coordinator.on_post = lambda *_: Unreachable("no answer")
    member.leave(3, message)
    assert coordinator.posted == [
        ("/v1/leave", {**IDENTITY, "code": 3, "message": message[-4000:]})
    ]
    within_s = coordinator.waits_s[-1]
    assert within_s is not None
    assert within_s <= 10
    coordinator.says(live(1, ME))
    member._thread.join(WITHIN_S)
    assert not member._thread.is_alive()  # nobody watches any more


def test_who_follows_acknowledges_without_a_step(
    member: OneByOne, coordinator: ScriptedCoordinator
) -> None:
    take_in(coordinator, proposed(1, ME))
    assert not coordinator.posted
    member.follow()
    assert coordinator.posted == [ack(1, None)]
    others = [live(1, ME), proposed(2, (0, 1)), proposed(2, ME, acknowledged=True)]
    take_in(coordinator, *others, proposed(3, ME))
    assert coordinator.posted == [ack(1, None), ack(3, None)]
    member.unfollow()
    take_in(coordinator, proposed(4, ME))
    assert len(coordinator.posted) == 2


@pytest.mark.parametrize(
    ("answers", "number"),
    [
        ([proposed(1, ME), live(1, ME)], 1),
        ([live(1, (0, 1)), live(2, ME)], 2),
        ([live(1, (MEMBER, 69)), live(2, ME)], 2),
        ([proposed(1, ME), {**OVER, "generation": 1}], None),
    ],
)
def test_the_newest_live_generation(
    member: OneByOne, answers: list[Any], number: int | None
) -> None:
    member.plan(*answers)
    found = member.wait_live()
    assert (found and found.number) == number


@pytest.mark.parametrize(
    ("answer", "by_plan"),
    [
        (live(1, ME), False),
        (OVER, True),
        ({**live(1, (0, 1)), "leaving": [MEMBER]}, True),
        ({**live(1, (0, 1)), "leaving": [0]}, False),
    ],
)
def test_who_leaves_by_plan(
    member: OneByOne, coordinator: ScriptedCoordinator, answer: Any, *, by_plan: bool
) -> None:
    take_in(coordinator, {**answer, "generation": 1})
    assert member.left_by_plan is by_plan
