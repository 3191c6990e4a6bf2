"""Whose members leave for pending gangs, and for whom nobody leaves."""

from collections.abc import Iterable

from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic import needs
from central.scheduler.elastic.needs import Need, NeedsPlan
from central.scheduler.placement.request import PlacementRequest
from tests.central import factories
from tests.central.scheduler.elastic.test_pools import Rig, running


def rig(*facts: Fact) -> Rig:
    """Two nodes of 8 GPUs, each full of members of one gang."""
    nodes = (factories.node(name, gpus=8) for name in "nm")
    return Rig(*nodes, *running("a", 8, "n"), *running("b", 8, "m"), *facts)


def pending(world: Rig, name: str, pods: int, gpus: int, **request: object) -> Need:
    facts: list[Fact] = [
        factories.gang(name, pods),
        *(factories.pod(f"{name}-{rank}", gpus, name) for rank in range(pods)),
    ]
    schedule_once(world.made, facts, 1.0)
    wanted = PlacementRequest(((factories.spec(gpus), pods),), **request)  # type: ignore[arg-type]  # a test's shorthand
    return Need(world.made.state.gangs["ns", name, True], wanted)


def planned(world: Rig, *wanted: Need, least: Iterable[int] = (2, 2)) -> NeedsPlan:
    donors = [world.elastic(name, least=size) for name, size in zip("ab", least, strict=True)]
    for donor in donors:
        donor.numbers = {pod.seen.uid: number for number, pod in donor.placed.items()}
    freed = world.made.state.snapshot.freed
    found = needs.plan(world.context, donors, wanted, 1.0)
    assert world.made.state.snapshot.freed == freed
    return found


def leaving(found: NeedsPlan) -> dict[int, int]:
    return {index: len(pods) for index, pods in found.leaving.items()}


def unserved(found: NeedsPlan) -> list[str]:
    return [gang.name for gang in found.unserved]


def test_as_many_members_leave_on_each_node_as_a_gang_needs_there() -> None:
    world = rig()
    found = planned(world, pending(world, "g", 2, 4))
    assert leaving(found) == {0: 4, 1: 4}
    assert unserved(found) == []
    ((_, plan),) = found.plans
    assert len(plan.victims) == 8


def test_nobody_leaves_for_a_gang_that_would_not_fit_as_a_whole() -> None:
    """Six members of each may leave, and no pod of 7 GPUs fits beside two."""
    world = rig()
    for gang in (pending(world, "g", 2, 7), pending(world, "h", 3, 6)):
        found = planned(world, gang)
        assert leaving(found) == {}
        assert unserved(found) == [gang.gang.name]
        assert found.plans == []


def test_what_one_gang_takes_is_not_given_to_the_next() -> None:
    world = rig()
    first, second, third = (pending(world, name, 2, 3) for name in "ghi")
    found = planned(world, first, second, third)
    assert leaving(found) == {0: 6, 1: 6}
    assert unserved(found) == ["i"]


def test_equal_single_pods_are_served_together_as_far_as_members_may_leave() -> None:
    world = rig()
    singles = [pending(world, f"s{number}", 1, 1) for number in range(14)]
    found = planned(world, *singles)
    assert leaving(found) == {0: 6, 1: 6}
    assert unserved(found) == ["s12", "s13"]


def test_a_gang_that_must_be_close_takes_members_of_one_domain() -> None:
    world = rig()
    need = pending(world, "g", 2, 2, required="node")
    found = planned(world, need, least=(8, 2))
    assert leaving(found) == {1: 4}
    assert [taker.gang for taker, _ in found.plans] == [need.gang]
    assert unserved(planned(world, need, least=(8, 6))) == ["g"]


def test_members_that_leave_already_are_as_good_as_gone() -> None:
    world = rig()
    going = [
        factories.pod(f"a-{number}", 1, "a", node="n", phase="Running", deleting=True)
        for number in range(3)
    ]
    schedule_once(world.made, going, 1.0)
    found = planned(world, pending(world, "g", 1, 4), least=(2, 8))
    assert leaving(found) == {0: 1}
