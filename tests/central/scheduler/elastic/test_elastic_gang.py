"""The sizes of an elastic gang, its members, and what of a pool's shares there are seats for now."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import pytest

from central.model.jobspec import ElasticTask, JobMember
from central.scheduler.elastic.elastic_gang import ElasticGang, with_more
from central.scheduler.elastic.granted_seats import within_seats
from central.scheduler.elastic.resize_history import START_S, ResizeHistory
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.time_sharing import CHURN
from central.scheduler.state.gangs import Gang
from tests.central import factories


def member(number: int, node: str = "n", task: str = "w", **fields: object) -> Pod:
    seen = factories.pod(f"p-{number}", 1, "g", part=JobMember("j", "u", task, number))
    pod = Pod(replace(seen, **fields), seen.spec)  # type: ignore[arg-type]  # a test's shorthand
    pod.node, pod.charged_spec = node, seen.spec if node else None
    return pod


def elastic(
    placed: Iterable[int] = (), least: int = 2, most: int = 8, **task: object
) -> ElasticGang:
    pods = {number: member(number) for number in placed}
    terms = ElasticTask("w", least, most, **task)  # type: ignore[arg-type]  # a test's shorthand
    return ElasticGang(Gang(("ns", "g", True)), terms, frozenset(pods), placed=pods)


@pytest.mark.parametrize(
    ("size", "allowed"), [(0, 2), (2, 2), (3, 2), (4, 2), (5, 5), (7, 5), (8, 8), (9, 8), (20, 8)]
)
def test_sizes_go_in_steps_from_the_least(size: int, allowed: int) -> None:
    assert elastic(least=2, most=8, step=3).allowed(size) == allowed


def test_useful_sizes_take_the_place_of_steps() -> None:
    gang = elastic(useful=(2, 4, 7))
    assert [gang.useful(size) for size in (1, 2, 3, 4, 6, 7, 9)] == [2, 2, 2, 4, 4, 7, 7]
    assert gang.most_useful == 7
    assert elastic(step=3).useful(7) == 5
    assert elastic().most_useful == 8


def test_surplus_is_what_is_above_the_least() -> None:
    gang = elastic(least=2, most=8)
    assert [gang.surplus(size) for size in (0, 2, 3, 8)] == [0, 0, 1, 6]
    assert (elastic(range(5)).spare, elastic(range(1)).spare) == (3, 0)


def test_a_gang_that_can_use_no_more_is_not_the_lowest() -> None:
    assert elastic(range(5), least=2, most=8).level == 3
    assert elastic(range(5), least=5, most=5).level == inf


def test_members_are_read_from_the_pods_of_the_task() -> None:
    gang = Gang(("ns", "g", True))
    pods = [
        member(0),
        member(1, node=""),
        member(2, phase="Succeeded"),
        member(3, deleting=True),
        member(4, phase="Pending", stuck="no image"),
        member(5, phase="Running", stuck="restarts"),
        member(6, task="ps"),
        member(9),
    ]
    gang.members = {pod.seen.uid: pod for pod in pods}
    terms = ElasticTask("w", 1, 12)
    found = ElasticGang.of(gang, terms, range(8), settled=False, why="there is room for more")
    assert sorted(found.placed) == [0, 4, 5]
    assert found.pending == {1, 2, 3, 6, 7}
    assert found.used == {0, 1, 2, 3, 4, 5, 9}
    assert found.unready == {4: "no image"}
    assert found.ending
    assert not found.settled
    gang.members.pop(pods[2].seen.uid)
    assert not ElasticGang.of(gang, terms, range(8), settled=True).ending


def test_a_controller_that_deletes_the_highest_numbers_gives_those() -> None:
    gang = elastic(range(5))
    assert len(gang.may_leave()) == 5
    gang.highest_first = True
    assert [gang.number(pod) for pod in gang.may_leave()] == [4, 3, 2]
    assert [gang.number(pod) for pod in gang.with_higher([gang.placed[3]])] == [3, 4]
    assert gang.with_higher([]) == []
    assert ElasticGang.of(
        gang.gang, ElasticTask("w", 2, 6, 2, replica=2), (), settled=True
    ).highest_first
    gang.highest_first = False
    assert gang.with_higher([gang.placed[3]]) == [gang.placed[3]]


def test_new_members_take_the_lowest_numbers_without_a_pod_first() -> None:
    assert with_more({0, 2}, {1, 2}, 2, 6) == {0, 2, 3, 4}
    assert with_more({0, 2}, {1, 2}, 4, 6) == {0, 1, 2, 3, 4, 5}
    assert with_more({0, 2}, {1, 2}, 9, 5) == {0, 1, 2, 3, 4}
    assert with_more({0}, (), 0, 5) == {0}


def test_costs_and_holds_have_defaults() -> None:
    assert elastic(cost_s=10.0).hold_s == 200.0
    assert elastic(cost_s=0.4).hold_s == 10.0
    assert elastic().hold_s == 20.0
    assert elastic(cost_s=10.0, hold_s=5.0).hold_s == 5.0


# --- seats that there are now -------------------------------------------------------


def sizes(
    goals: dict[str, int],
    present: dict[str, int],
    free: int,
    *,
    more_follows: bool = False,
    step: int = 1,
) -> dict[str, int]:
    gangs = {name: elastic(range(size), step=step) for name, size in present.items()}
    wanted = {gangs[name]: goal for name, goal in goals.items()}
    found = within_seats(wanted, list(gangs.values()), free, more_follows=more_follows)
    return {name: found[gang] for name, gang in gangs.items()}


def test_seats_of_those_above_their_goals_are_taken_as_far_as_others_grow() -> None:
    assert sizes({"a": 6, "b": 4}, {"a": 2, "b": 8}, 0) == {"a": 6, "b": 4}
    assert sizes({"a": 6, "b": 4}, {"a": 2, "b": 8}, 1) == {"a": 6, "b": 5}
    assert sizes({"a": 2, "b": 4}, {"a": 2, "b": 8}, 3) == {"a": 2, "b": 8}, "nobody grows"
    assert sizes({"a": 3, "b": 3}, {"a": 8, "b": 6}, 0) == {"a": 8, "b": 6}


def test_those_furthest_above_give_first() -> None:
    assert sizes({"a": 4, "b": 2, "c": 2}, {"a": 2, "b": 5, "c": 8}, 0) == {"a": 4, "b": 5, "c": 6}


def test_the_lowest_grow_first_and_the_last_seats_may_be_less() -> None:
    grown = sizes({"a": 8, "b": 8}, {"a": 4, "b": 2}, 7)
    assert grown == {"a": 5, "b": 8}
    waits = sizes({"a": 8, "b": 8}, {"a": 4, "b": 2}, 7, more_follows=True)
    assert waits == {"a": 4, "b": 8}
    assert sizes({"a": 8}, {"a": 2}, 4, step=3) == {"a": 5}, "in whole steps"
    assert sizes({"a": 8}, {"a": 2}, 2, step=3) == {"a": 2}


# --- what changes cost --------------------------------------------------------------


def test_a_change_is_paid_by_its_share_of_the_running_time() -> None:
    gang = elastic(cost_s=10.0, hold_s=60.0)
    history = ResizeHistory(100.0)
    assert history.starting(100.0 + START_S)
    history.record(gang, 100.0 + START_S)
    history.record_gift(gang, 100.0 + START_S)
    history.record_arrival(100.0 + START_S)
    assert history == ResizeHistory(100.0), "what happens at the start costs nothing"
    now = 100.0 + START_S
    assert history.allowed_at(gang, now) == now, "nor does it wait"
    now += 0.5
    assert history.allowed_at(gang, now) == 100.0 + 10.0 / CHURN
    assert history.allowed_at(gang, now, 2) == 100.0 + 20.0 / CHURN
    history.record(gang, now)
    assert (history.last, history.cost_s) == (now, 10.0)
    assert history.allowed_at(gang, now) == 100.0 + 20.0 / CHURN
    assert history.allowed_at(gang, now, 2) == 100.0 + 30.0 / CHURN
    long_hold = elastic(cost_s=10.0, hold_s=6000.0)
    assert [history.allowed_at(long_hold, now, n) for n in (1, 2)] == [now + 6000.0] * 2
    history.record_gift(gang, now + 5.0)
    assert (history.last, history.cost_s) == (now, 20.0)
    history.record_arrival(now + 7.0)
    assert history.last == now + 7.0
