"""PodGroups that have no pods yet: whoever makes these may wait until the group is let in."""

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact, GangGone, GangSeen, QueueSeen
from central.scheduler import cycle
from central.scheduler.cycle import schedule_once
from central.scheduler.queues.group_admission import MAX_CHECKED
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

NODE = factories.node("a", gpus=0, cpu=8_000)


def group(name: str, cpu: int = 5_000, **fields: object) -> GangSeen:
    return factories.gang(name, 1, min_resources=(("cpu", cpu),), **fields)


def told(decisions: list[Decision]) -> dict[str, tuple[str, str]]:
    return {d.gang: (d.phase, d.reason) for d in decisions if isinstance(d, UpdateGangStatus)}


def played(*facts: Fact) -> tuple[Scheduler, dict[str, tuple[str, str]]]:
    scheduler = new_scheduler(factories.LEVELS)
    found = told(schedule_once(scheduler, facts, 0.0))
    check_invariants(scheduler)
    return scheduler, found


def test_they_are_let_in_one_after_the_other() -> None:
    scheduler, found = played(NODE, group("one", created=1.0), group("two", created=2.0))
    assert found == {
        "one": ("Inqueue", "admitted: pods may be created"),
        "two": (
            "Pending",
            "needs 5 cpu (spec.minResources); the cluster has 8 free, of which 5 are reserved for "
            "PodGroups admitted before",
        ),
    }
    pod = factories.pod("one-0", 0, "one", cpu=5_000)
    decisions = schedule_once(scheduler, [pod], 2.0)
    assert [d.name for d in decisions if isinstance(d, Bind)] == ["one-0"]
    assert told(decisions)["one"][0] == "Running"
    check_invariants(scheduler)
    ended = factories.pod("one-0", 0, "one", cpu=5_000, node="a", phase="Succeeded")
    assert told(schedule_once(scheduler, [ended], 4.0))["two"][0] == "Inqueue"
    check_invariants(scheduler)


def test_a_closed_queue_lets_nobody_in_until_it_opens() -> None:
    scheduler, found = played(NODE, QueueSeen("q", closed=True), group("g", queue="q"))
    assert found["g"] == ("Pending", "queue q is closed")
    assert told(schedule_once(scheduler, [QueueSeen("q")], 5.0))["g"][0] == "Inqueue"


def test_who_is_let_in_stays_so() -> None:
    scheduler, _ = played(NODE, group("g"))
    assert not told(schedule_once(scheduler, [factories.node("a", gpus=0, cpu=1_000)], 5.0))
    restarted, found = played(factories.node("a", gpus=0, cpu=1_000), group("g", phase="Inqueue"))
    assert found["g"][0] == "Inqueue"
    assert cycle.due(restarted, 0.0) is None


def test_those_who_wait_are_looked_at_once_a_second() -> None:
    scheduler, found = played(factories.node("a", gpus=0, cpu=1_000), group("g"))
    assert found["g"][0] == "Pending"
    again = told(schedule_once(scheduler, [factories.node("a", gpus=0, cpu=2_000)], 1.0))
    assert again["g"] == ("Pending", "needs 5 cpu (spec.minResources); the cluster has 2 free")
    assert not told(schedule_once(scheduler, [NODE], 1.5))
    assert cycle.due(scheduler, 1.5) == 2.0
    assert told(schedule_once(scheduler, [], 2.0))["g"][0] == "Inqueue"
    assert cycle.due(scheduler, 2.0) is None


def test_a_group_that_goes_is_forgotten() -> None:
    scheduler, _ = played(NODE, group("one", created=1.0), group("two", created=2.0))
    assert told(schedule_once(scheduler, [GangGone("ns", "one")], 5.0))["two"][0] == "Inqueue"
    check_invariants(scheduler)


def test_groups_beyond_those_of_one_cycle_are_checked_in_the_next_ones() -> None:
    """None of them is refused for that, and none forgotten: new ones, and those that may be admitted now."""
    count, small = MAX_CHECKED // 2 + 1, factories.node("a", gpus=0, cpu=1)
    groups = [group(f"g{number:03}", cpu=2, created=float(number)) for number in range(3 * count)]
    scheduler = new_scheduler(factories.LEVELS)
    found = told(schedule_once(scheduler, [small, *groups[:count]], 0.0))
    found |= told(schedule_once(scheduler, groups[count:], 1.0))
    assert cycle.due(scheduler, 1.0) == 1.0
    found |= told(schedule_once(scheduler, [], 1.0))
    assert {phase for phase, _ in found.values()} == {"Pending"}
    assert len(found) == len(groups)
    found |= told(schedule_once(scheduler, [factories.node("a", gpus=0, cpu=8_000)], 5.0))
    while (due := cycle.due(scheduler, 5.0)) is not None:
        found |= told(schedule_once(scheduler, [], due))
    assert {phase for phase, _ in found.values()} == {"Inqueue"}
    check_invariants(scheduler)
