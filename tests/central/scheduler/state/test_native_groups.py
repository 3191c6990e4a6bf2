"""PodGroups of scheduling.k8s.io in the scheduler: beside Volcano's of the same name, and beside kube-scheduler's."""

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact, GangGone, PodGone, QueueSeen
from central.scheduler.cycle import schedule_once
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import World


def native(name: str, minimum: int, **other: object) -> Fact:
    return factories.gang(f"podgroup/{name}", minimum, queue="", native_version="v1alpha2", **other)


def pods(name: str, size: int, priority: int = 0) -> list[Fact]:
    return [
        factories.pod(f"{name}-{rank}", 8, f"podgroup/{name}", priority=priority)
        for rank in range(size)
    ]


def updates(decisions: list[Decision]) -> dict[str, UpdateGangStatus]:
    return {d.gang: d for d in decisions if isinstance(d, UpdateGangStatus)}


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(d.name for d in decisions if isinstance(d, Bind))


def test_a_group_that_comes_after_its_pods() -> None:
    cluster = new_scheduler(factories.LEVELS)
    decisions = schedule_once(cluster, [factories.node("a"), *pods("g", 1)], 0.0)
    assert updates(decisions)["podgroup/g"].reason == (
        "PodGroup g of scheduling.k8s.io does not exist in namespace ns"
    )
    decisions = schedule_once(cluster, [native("g", 1)], 1.0)
    assert bound(decisions) == ["g-0"]
    assert updates(decisions)["podgroup/g"].native_version == "v1alpha2"


def test_the_minimum_may_change() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [factories.node("a"), native("g", 3), *pods("g", 1)]
    assert not bound(schedule_once(cluster, facts, 0.0))
    assert bound(schedule_once(cluster, [native("g", 1)], 1.0)) == ["g-0"]


def test_two_groups_of_one_name_are_two_gangs() -> None:
    cluster = new_scheduler(factories.LEVELS)
    other = factories.pod("v-0", 0, "g")
    facts = [factories.node("a"), native("g", 2), factories.gang("g", 1), *pods("g", 1), other]
    decisions = schedule_once(cluster, facts, 0.0)
    assert bound(decisions) == ["v-0"]
    assert updates(decisions)["podgroup/g"].reason == "needs 2 pods to start, 1 exist"
    assert updates(decisions)["g"].native_version == ""


def test_a_group_without_pods_of_ours_is_left_alone() -> None:
    """kube-scheduler's, or one whose pods are still to come: no status, no place in a queue."""
    cluster = new_scheduler(factories.LEVELS)
    full = QueueSeen("default", capability=(("nvidia.com/gpu", 0),))
    decisions = schedule_once(cluster, [full, factories.node("a"), native("theirs", 2)], 0.0)
    check_invariants(cluster)
    assert not updates(decisions)
    assert not cluster.admission.groups
    gang = cluster.state.gangs["ns", "podgroup/theirs", True]
    assert gang.account is None

    decisions = schedule_once(cluster, pods("theirs", 2), 1.0)
    check_invariants(cluster)
    assert updates(decisions)["podgroup/theirs"].phase == "Pending"
    gone = [PodGone(f"uid-theirs-{rank}") for rank in range(2)]
    assert not updates(schedule_once(cluster, gone, 2.0))
    assert gang.account is None
    check_invariants(cluster)
    schedule_once(cluster, [GangGone("ns", "podgroup/theirs")], 3.0)
    assert not cluster.state.gangs


def test_a_group_that_is_disrupted_together_loses_no_single_pod() -> None:
    for whole, evicted in ((False, 1), (True, 3)):
        world = World(*(factories.node(name) for name in "abc"))
        world.step(0.0, native("old", 2, evicted_whole=whole), *pods("old", 3))
        world.step(1.0, native("urgent", 1, created=1.0), *pods("urgent", 1, priority=3))
        assert len(world.evicted) == evicted
