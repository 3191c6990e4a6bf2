"""Gangs without a PodGroup: settings of controllers for their pods."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, OwnerGone, OwnerSeen, PodGone, PodSeen
from central.scheduler.cycle import due, schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.owner_gangs import HOLD_S
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

OLD, NEW = "replicaset/web-old", "replicaset/web-new"


def one(index: int, owner: str = OLD, **other: object) -> PodSeen:
    name = f"{owner.partition('/')[2]}-{index}"
    return replace(factories.pod(name, 8), owner=f"uid-{owner}", owner_name=owner, **other)  # type: ignore[arg-type]  # a test's shorthand


def owner(owner: str = OLD, **other: object) -> OwnerSeen:
    fields: dict[str, object] = {"above": "deployment/web", "gang_min": 3, **other}
    return OwnerSeen(f"uid-{owner}", owner, **fields)  # type: ignore[arg-type]  # a test's shorthand


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(d.name for d in decisions if isinstance(d, Bind))


def scheduler(nodes: int) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node(f"n{i}", rack="r1") for i in range(nodes)], 0.0)
    return made


def test_a_deployments_pods_start_together_or_not_at_all() -> None:
    world = scheduler(2)
    facts: list[Fact] = [owner(), *(one(i) for i in range(3))]
    assert bound(schedule_once(world, facts, 0.0)) == []
    gang = world.state.gangs["ns", "deployment/web", True]
    assert "3 pods" in gang.attempt.reason
    assert len(bound(schedule_once(world, [factories.node("n2", rack="r1")], 1.0))) == 3
    check_invariants(world)


def test_a_rolling_update_is_the_same_gang() -> None:
    """The new ReplicaSet's first pod takes the place of one that leaves: it waits for no others."""
    world = scheduler(3)
    schedule_once(world, [owner(), *(one(i) for i in range(3))], 0.0)
    assert bound(schedule_once(world, [owner(NEW), one(0, NEW)], 1.0)) == []
    assert bound(schedule_once(world, [PodGone(one(0).uid)], 2.0)) == ["web-new-0"]
    check_invariants(world)


def test_without_a_minimum_pods_are_scheduled_one_by_one() -> None:
    world = scheduler(1)
    assert bound(schedule_once(world, [owner(gang_min=None), one(0), one(1)], 0.0)) == ["web-old-0"]
    assert ("ns", "web-old-1", False) in world.state.gangs


def test_pods_set_the_minimum_if_their_controller_is_not_watched() -> None:
    """As operators' pods do: their controllers are not watched."""
    world = scheduler(1)
    pods = [one(i, "pytorchjob/bert", gang_min=2) for i in range(2)]
    assert bound(schedule_once(world, [owner(), *pods], 0.0)) == []
    assert world.state.gangs["ns", "pytorchjob/bert", True].minimum == 2


def test_a_pod_is_held_a_moment_for_its_controller() -> None:
    world = scheduler(3)
    schedule_once(world, [owner()], 0.0)
    assert bound(schedule_once(world, [one(i, NEW) for i in range(2)], 1.0)) == []
    check_invariants(world)
    assert due(world, 1.0) == 1.0 + HOLD_S
    assert bound(schedule_once(world, [owner(NEW)], 1.1)) == []  # a third is missing
    assert len(bound(schedule_once(world, [one(2, NEW)], 1.2))) == 3
    check_invariants(world)


def test_a_held_pod_is_released_without_its_controller_in_time() -> None:
    world = scheduler(3)
    schedule_once(world, [owner(), one(0, NEW)], 0.0)
    assert bound(schedule_once(world, [], HOLD_S)) == ["web-new-0"]
    assert due(world, HOLD_S) is None
    check_invariants(world)


def test_a_pod_that_goes_while_it_is_held_leaves_nothing() -> None:
    world = scheduler(1)
    schedule_once(world, [owner(), one(0, NEW)], 0.0)
    schedule_once(world, [PodGone(one(0, NEW).uid), OwnerGone("uid-" + OLD)], 0.1)
    check_invariants(world)
    assert not world.state.owners.pods
    assert not world.state.owners.seen


def test_settings_of_a_deleted_controller_last_as_long_as_its_pods() -> None:
    world = scheduler(3)
    schedule_once(world, [owner(), *(one(i) for i in range(3))], 0.0)
    schedule_once(world, [OwnerGone("uid-" + OLD), replace(one(0), deleting=True)], 1.0)
    assert len(world.state.gangs["ns", "deployment/web", True].members) == 3
    schedule_once(world, [PodGone(one(i).uid) for i in range(3)], 2.0)
    check_invariants(world)
    assert not world.state.owners.seen


def test_a_change_of_the_controller_changes_the_gang() -> None:
    world = scheduler(2)
    schedule_once(world, [owner(), *(one(i) for i in range(3))], 0.0)
    assert len(bound(schedule_once(world, [owner(gang_min=2)], 1.0))) == 2
    check_invariants(world)


def test_queue_and_closeness_come_from_the_controller_unless_the_pod_says_its_own() -> None:
    world = scheduler(1)
    web = owner(gang_min=None, queue="ml", required_tier=1)
    schedule_once(world, [web, one(0), one(1, queue="own", topology_required="node")], 0.0)
    seen = [world.state.pods[one(i).uid].seen for i in range(2)]
    assert [(s.queue, s.required_tier, s.topology_required) for s in seen] == [
        ("ml", 1, ""),
        ("own", None, "node"),
    ]


def test_an_invalid_annotation_is_the_reason_of_its_pods() -> None:
    world = scheduler(3)
    why = "replicaset/web-old: annotation x is wrong"
    assert bound(schedule_once(world, [owner(error=why), one(0)], 0.0)) == []
    assert world.state.gangs["ns", "web-old-0", False].attempt.reason.endswith(why)
