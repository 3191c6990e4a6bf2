"""A gang that has started is known to have started when its completed members are collected, also after a restart."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, UpdateGangStatus
from central.model.facts import Fact, GangSeen, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories

NODES = [factories.node(f"n{i}") for i in range(3)]
GROUPS = {"PodGroup": (factories.gang("g", 3),), "label": ()}


def member(index: int, kind: str, **other: object) -> PodSeen:
    least = {} if kind == "PodGroup" else {"gang_min": 3}
    pod = factories.pod(f"g-{index}", 8, "g", **least)  # type: ignore[arg-type]  # a test's shorthand
    return replace(pod, **other)  # type: ignore[arg-type]  # a test's shorthand


def running(index: int, kind: str, phase: str = "Running") -> PodSeen:
    return member(index, kind, node=f"n{index}", phase=phase)


def bound(scheduler: Scheduler, *facts: Fact, now: float = 10.0) -> list[str]:
    decisions = schedule_once(scheduler, [*facts], now)
    return [each.name for each in decisions if isinstance(each, Bind)]


def started(kind: str) -> Scheduler:
    """With one member; the two others have completed and were collected."""
    scheduler = new_scheduler(factories.LEVELS)
    bound(scheduler, *NODES, *GROUPS[kind], *(member(i, kind) for i in range(3)), now=0.0)
    bound(scheduler, *(running(i, kind) for i in range(3)), now=1.0)
    for index in (0, 1):
        bound(scheduler, running(index, kind, "Succeeded"), now=2.0 + index)
        bound(scheduler, PodGone(f"uid-g-{index}"), now=2.5 + index)
    return scheduler


@pytest.mark.parametrize("kind", GROUPS)
def test_a_replacement_is_placed_after_completed_members_are_collected(kind: str) -> None:
    """Without an object the scheduler knows the gang only as long as it has members."""
    scheduler = started(kind)
    leaving = running(2, kind) if kind == "PodGroup" else replace(running(2, kind), deleting=True)
    bound(scheduler, leaving, *[PodGone("uid-g-2")] * (kind == "PodGroup"), now=5.0)
    assert bound(scheduler, member(3, kind), now=6.0) == ["g-3"]


@pytest.mark.parametrize("kind", GROUPS)
def test_a_replacement_beside_a_running_member_is_placed_after_a_restart(kind: str) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    group = tuple(replace(each, succeeded=1, phase="Running") for each in GROUPS[kind])
    assert bound(scheduler, *NODES, *group, running(1, kind), member(2, kind)) == ["g-2"]


@pytest.mark.parametrize("succeeded", [1, 2])
def test_the_last_member_is_placed_after_a_restart_as_the_status_says(succeeded: int) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    group = replace(factories.gang("g", 3), succeeded=succeeded)
    assert isinstance(group, GangSeen)
    found = bound(scheduler, *NODES, group, member(2, "PodGroup"))
    assert found == ["g-2"] * (succeeded == 2)


def test_the_status_counts_completed_members_that_were_collected() -> None:
    scheduler = started("PodGroup")
    decisions = schedule_once(scheduler, [running(2, "PodGroup", "Succeeded")], 5.0)
    [update] = [each for each in decisions if isinstance(each, UpdateGangStatus)]
    assert (update.phase, update.succeeded) == ("Completed", 3)


def test_members_that_all_exist_again_start_together() -> None:
    """Another run under the same PodGroup."""
    scheduler = started("PodGroup")
    bound(scheduler, running(2, "PodGroup", "Succeeded"), now=5.0)
    bound(scheduler, PodGone("uid-g-2"), now=6.0)
    again = [replace(member(i, "PodGroup"), uid=f"again-{i}") for i in range(3)]
    assert bound(scheduler, again[0], now=7.0) == []
    assert bound(scheduler, *again[1:], now=8.0) == ["g-0", "g-1", "g-2"]


def test_members_that_were_lost_start_together() -> None:
    """A gang whose running members are lost needs all of them."""
    scheduler = new_scheduler(factories.LEVELS)
    bound(scheduler, *NODES, *GROUPS["PodGroup"], *(member(i, "PodGroup") for i in range(3)))
    bound(scheduler, *(running(i, "PodGroup") for i in range(3)), now=11.0)
    bound(scheduler, *(PodGone(f"uid-g-{i}") for i in range(3)), now=12.0)
    again = [replace(member(i, "PodGroup"), uid=f"again-{i}") for i in range(3)]
    assert bound(scheduler, *again[:2], now=13.0) == []
    assert bound(scheduler, again[2], now=14.0) == ["g-0", "g-1", "g-2"]


def test_roles_need_what_has_not_completed() -> None:
    group = replace(factories.gang("g", 3), task_min=(("ps", 1), ("w", 2)), succeeded=2)
    scheduler = new_scheduler(factories.LEVELS)
    assert bound(scheduler, *NODES, group, replace(member(0, "PodGroup"), task="ps")) == ["g-0"]
