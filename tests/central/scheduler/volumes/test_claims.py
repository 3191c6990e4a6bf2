"""Pods with claims: they wait with the claim's own sentence, and go where their volumes are."""

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact
from central.model.pod_rules import Requirement
from central.model.volumes import (
    AttachLimits,
    CapacityGone,
    CapacitySeen,
    ClaimGone,
    ClaimSeen,
    DriverGone,
    DriverSeen,
    StorageClassSeen,
    VolumeSeen,
)
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

IN_R2 = ((Requirement(RACK, "In", ("r2",)),),)
WAITING = StorageClassSeen("fast", "disk", waits=True)


def bound(decisions: list[Decision]) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    return sorted((d.name, d.node, d.claims) for d in decisions if isinstance(d, Bind))


def told(decisions: list[Decision]) -> str:
    return next(d.reason for d in decisions if isinstance(d, UpdateGangStatus))


def racks() -> Scheduler:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [factories.node("a", rack="r1"), factories.node("b", rack="r2")], 0.0)
    return scheduler


def test_each_state_of_a_claim_has_its_sentence() -> None:
    scheduler = racks()
    pod = factories.pod("p", 1, claims=("data",))
    assert told(schedule_once(scheduler, [pod], 0.0)) == "claim data does not exist in namespace ns"
    claim = ClaimSeen("ns", "data", storage_class="now")
    assert told(schedule_once(scheduler, [claim], 0.0)) == "claim data is not bound to a volume yet"
    gone = ClaimSeen("ns", "data", "v", bound=True)
    expected = "claim data is bound to volume v, which does not exist"
    assert told(schedule_once(scheduler, [gone], 0.0)) == expected
    check_invariants(scheduler)
    volume = VolumeSeen("v", (IN_R2,))
    assert bound(schedule_once(scheduler, [volume], 0.0)) == [("p", "b", ())]
    check_invariants(scheduler)


def test_a_volume_that_waits_for_its_pod_is_asked_for_with_the_binding() -> None:
    scheduler = racks()
    claim = ClaimSeen("ns", "data", storage_class="fast")
    nowhere_but_r2 = StorageClassSeen("fast", "disk", waits=True, places=IN_R2)
    decisions = schedule_once(
        scheduler, [nowhere_but_r2, claim, factories.pod("p", 1, claims=("data",))], 0.0
    )
    assert bound(decisions) == [("p", "b", (("data", ""),))]


def test_a_node_attaches_so_many_volumes_and_no_more() -> None:
    scheduler = racks()
    pods = [factories.pod(f"p-{i}", 1, "g", gang_min=3, claims=(f"c{i}",)) for i in range(3)]
    claims = [ClaimSeen("ns", f"c{i}", storage_class="fast") for i in range(3)]
    limits = [AttachLimits("a", (("disk", 1),)), AttachLimits("b", (("disk", 1),))]
    reason = told(schedule_once(scheduler, [WAITING, *claims, *limits, *pods], 0.0))
    assert reason.startswith("needs 3 pods x 1 GPU; the cluster fits 2 of 3")
    check_invariants(scheduler)
    assert len(bound(schedule_once(scheduler, [AttachLimits("a", (("disk", 2),))], 0.0))) == 3
    check_invariants(scheduler)
    full: list[Fact] = [
        factories.pod("q", 1, claims=("more",)),
        ClaimSeen("ns", "more", storage_class="fast"),
    ]
    assert "2 nodes: volume attach limit" in told(schedule_once(scheduler, full, 0.0))


def test_nodes_that_attach_some_are_not_said_to_take_one() -> None:
    scheduler = racks()
    pods = [factories.pod(f"p-{i}", 1, "g", gang_min=6, claims=(f"c{i}",)) for i in range(6)]
    claims = [ClaimSeen("ns", f"c{i}", storage_class="fast") for i in range(6)]
    one, three = AttachLimits("a", (("disk", 1),)), AttachLimits("b", (("disk", 3),))
    reason = told(schedule_once(scheduler, [WAITING, *claims, one, three, *pods], 0.0))
    assert reason == (
        "needs 6 pods x 1 GPU; the cluster fits 4 of 6 (16 of 16 GPUs free on 2 nodes; "
        "nodes take only so many of them by anti-affinity, ports or volumes: enough for 4)"
    )
    reason = told(schedule_once(scheduler, [AttachLimits("b", (("disk", 1),))], 1.0))
    assert reason.endswith(
        "at most one of them per node by their anti-affinity, ports or volumes: enough for 2)"
    )


def test_a_claim_for_one_pod_is_used_by_one() -> None:
    scheduler = racks()
    claim = ClaimSeen("ns", "data", "v", bound=True, one_pod=True)
    pods = [factories.pod(f"p{i}", 1, claims=("data",), created=float(i)) for i in range(2)]
    decisions = schedule_once(scheduler, [claim, VolumeSeen("v"), *pods], 0.0)
    assert [name for name, *_ in bound(decisions)] == ["p0"]
    assert "2 nodes: ReadWriteOncePod claim in use" in told(
        [d for d in decisions if isinstance(d, UpdateGangStatus) and d.gang == "p1"]
    )
    check_invariants(scheduler)


def test_a_claim_that_goes_takes_nobody_with_it() -> None:
    scheduler = racks()
    claim = ClaimSeen("ns", "data", "v", bound=True)
    schedule_once(
        scheduler,
        [claim, VolumeSeen("v", driver="disk"), factories.pod("p", 1, claims=("data",))],
        0.0,
    )
    schedule_once(scheduler, [ClaimGone("ns", "data")], 0.0)
    check_invariants(scheduler)
    assert scheduler.state.pods["uid-p"].node


def test_where_there_is_room_for_a_volume_so_large() -> None:
    scheduler = racks()
    claim = ClaimSeen("ns", "data", storage_class="fast", size=5 * 2**30)
    small = CapacitySeen("kube", "in-r2", "fast", IN_R2, 2**30)
    pod = factories.pod("p", 1, claims=("data",))
    facts: list[Fact] = [WAITING, DriverSeen("disk", tells_capacity=True), small, claim, pod]
    why = "claim data asks for 5Gi, and driver disk has no node with that capacity"
    assert told(schedule_once(scheduler, facts, 0.0)) == why
    check_invariants(scheduler)
    assert bound(
        schedule_once(scheduler, [CapacitySeen("kube", "in-r2", "fast", IN_R2, 5 * 2**30)], 1.0)
    ) == [("p", "b", (("data", ""),))]
    check_invariants(scheduler)


def test_a_driver_that_tells_nothing_has_room_everywhere() -> None:
    scheduler = racks()
    claim = ClaimSeen("ns", "data", storage_class="fast", size=5 * 2**30)
    pod = factories.pod("p", 1, claims=("data",))
    facts: list[Fact] = [WAITING, DriverSeen("disk", tells_capacity=True), claim, pod]
    assert not bound(schedule_once(scheduler, facts, 0.0))
    assert not bound(schedule_once(scheduler, [CapacityGone("kube", "in-r2")], 1.0))
    assert bound(schedule_once(scheduler, [DriverGone("disk")], 2.0))
    check_invariants(scheduler)


def test_a_volume_that_two_pods_share_counts_once_before_it_is_attached() -> None:
    scheduler = racks()
    pods = [factories.pod(f"p-{i}", 4, "g", gang_min=2, claims=("data",)) for i in range(2)]
    claim = ClaimSeen("ns", "data", "v", bound=True)
    volume = VolumeSeen("v", driver="disk")
    limits = [AttachLimits(name, (("disk", 1),)) for name in "ab"]
    assert len(bound(schedule_once(scheduler, [claim, volume, *limits, *pods], 0.0))) == 2
    check_invariants(scheduler)


def test_claims_that_are_gone_leave_nothing() -> None:
    """Each claim has a volume of a name of its own."""
    scheduler = racks()
    bound_claim = ClaimSeen("ns", "data", "v", bound=True, storage_class="fast")
    for fact in (ClaimSeen("ns", "data", storage_class="fast"), bound_claim):
        schedule_once(scheduler, [fact], 0.0)
    storage = scheduler.state.podclasses.storage
    assert storage._naming == {"v": {("ns", "data")}, "fast": {("ns", "data")}}
    schedule_once(scheduler, [ClaimGone("ns", "data")], 1.0)
    assert storage._naming == {}
