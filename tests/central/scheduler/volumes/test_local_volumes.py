"""Claims that get volumes that exist: counted by node, taken once, given back when a pod loses its seat."""

from itertools import permutations
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import BindFailed, Fact, PodGone
from central.model.pod_rules import Expression, Requirement
from central.model.volumes import (
    ClaimSeen,
    StorageClassSeen,
    VolumeGone,
    VolumeRequest,
    Volumes,
    VolumeSeen,
)
from central.scheduler import placement
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.filters.interpod import describe_requests
from central.scheduler.placement import PlacementRequest
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler import recounts
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS, seeds

LOCAL = StorageClassSeen("local", "kubernetes.io/no-provisioner", waits=True)
GI = 2**30


def volume(name: str, *nodes: str, size: int = 1, rack: str = "", **other: object) -> VolumeSeen:
    """On one of the nodes, or in a rack, or anywhere."""
    key, values = (RACK, (rack,)) if rack else (factories.HOST, nodes)
    places = (((Requirement(key, "In", values),),),) if any(values) else ()
    fields = {"storage_class": "local", "modes": ("ReadWriteOnce",), "phase": "Available", **other}
    return VolumeSeen(name, places, size=size * GI, **fields)  # type: ignore[arg-type]  # a test's shorthand


def claim(name: str, size: int = 1, **other: object) -> ClaimSeen:
    fields = {"storage_class": "local", "modes": ("ReadWriteOnce",), "uid": f"u-{name}", **other}
    return ClaimSeen("ns", name, size=size * GI, **fields)  # type: ignore[arg-type]  # a test's shorthand


def binds(decisions: list[Decision]) -> dict[str, tuple[str, dict[str, str]]]:
    return {d.name: (d.node, dict(d.claims)) for d in decisions if isinstance(d, Bind)}


def told(decisions: list[Decision], gang: str = "g") -> str:
    return next(d.reason for d in decisions if isinstance(d, UpdateGangStatus) and d.gang == gang)


def racks() -> Scheduler:
    cluster = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, rack="r0" if name in "ab" else "r1") for name in "abcd"]
    schedule_once(cluster, [LOCAL, *nodes], 0.0)
    return cluster


def gang(size: int, gpus: int = 1, each: int = 1, of: int = 1) -> list[Fact]:
    """Pods with so many claims of their own, of so many Gi."""
    names = {i: tuple(f"c{i}-{n}" for n in range(each)) for i in range(size)}
    claims = [claim(name, of) for own in names.values() for name in own]
    pods = [factories.pod(f"g-{i}", gpus, "g", gang_min=size, claims=names[i]) for i in range(size)]
    return [*claims, *pods]


def test_each_pod_gets_a_volume_of_its_node() -> None:
    cluster = racks()
    there = [volume("a1", "a"), volume("a2", "a"), volume("b1", "b"), volume("c1", "c")]
    found = binds(schedule_once(cluster, [*there, *gang(3)], 0.0))
    check_invariants(cluster)
    assert sorted(node for node, _ in found.values()) == ["a", "a", "b"]
    given = [name for _, claims in found.values() for name in claims.values()]
    assert sorted(given) == ["a1", "a2", "b1"]
    assert all(name.startswith(node) for node, claims in found.values() for name in claims.values())


def test_a_gang_that_gets_volumes_frees_nothing() -> None:
    """Nobody who waits is asked again for that."""
    cluster = racks()
    schedule_once(cluster, [volume("a1", "a"), *gang(1)[:1]], 0.0)
    freed = cluster.state.snapshot.freed
    assert binds(schedule_once(cluster, gang(1)[1:], 1.0))
    assert cluster.state.snapshot.freed == freed


def test_where_they_are_too_few_the_sentence_says_so() -> None:
    cluster = racks()
    reason = told(schedule_once(cluster, [volume("a1", "a"), volume("b1", "b"), *gang(3)], 0.0))
    assert reason == (
        "needs 3 pods x 1 GPU; the cluster fits 2 of 3 (16 of 16 GPUs free on 2 nodes; "
        "short of volumes: enough for 2; 2 nodes: no free volumes (1 of class local with 1Gi))"
    )
    check_invariants(cluster)
    assert len(binds(schedule_once(cluster, [volume("d1", "d")], 1.0))) == 3
    check_invariants(cluster)


def test_the_volume_of_a_claim_that_a_pod_no_longer_names_is_free_again() -> None:
    """As after a restored etcd. The claim that it keeps keeps its volume."""
    cluster = racks()
    there = [volume("a1", "a"), volume("a2", "a")]
    assert binds(schedule_once(cluster, [*there, *gang(1, each=2)], 0.0))
    other = factories.pod("h-0", 1, "h", gang_min=1, claims=("other",))
    assert not binds(schedule_once(cluster, [claim("other"), other], 1.0))
    changed = factories.pod("g-0", 1, "g", gang_min=1, claims=("c0-1",))
    found = binds(schedule_once(cluster, [changed], 2.0))
    check_invariants(cluster)
    assert set(found) == {"h-0"}
    assert found["h-0"][0] == "a"
    more = factories.pod("i-0", 1, "i", gang_min=1, claims=("more",))
    assert not binds(schedule_once(cluster, [claim("more"), more], 3.0))
    check_invariants(cluster)


def test_a_pod_with_two_claims_needs_two_volumes_of_one_node() -> None:
    cluster = racks()
    there = [volume("a1", "a"), volume("b1", "b"), volume("c1", "c"), volume("c2", "c")]
    found = binds(schedule_once(cluster, [*there, *gang(1, each=2)], 0.0))
    assert found["g-0"][0] == "c"
    assert set(found["g-0"][1].values()) == {"c1", "c2"}


def test_the_smallest_that_does_is_taken() -> None:
    cluster = racks()
    there = [volume("a9", "a", size=9), volume("a5", "a", size=5), volume("a1", "a", size=1)]
    assert binds(schedule_once(cluster, [*there, *gang(1, of=4)], 0.0)) == {
        "g-0": ("a", {"c0-0": "a5"})
    }


def test_what_a_claim_asks_of_its_volume() -> None:
    cluster = racks()
    fast = (Expression("disk", "In", ("fast",)),)
    wrong = [
        volume("small", "a"),
        volume("slow", "a", size=2, labels=(("disk", "slow"),)),
        volume("device", "a", size=2, labels=(("disk", "fast"),), block=True),
        volume("read", "a", size=2, labels=(("disk", "fast"),), modes=("ReadOnlyMany",)),
        volume("other", "a", size=2, labels=(("disk", "fast"),), storage_class="shared"),
        volume("used", "a", size=2, labels=(("disk", "fast"),), claim=("ns", "another")),
        volume("going", "a", size=2, labels=(("disk", "fast"),), deleting=True),
        volume("dirty", "a", size=2, labels=(("disk", "fast"),), phase="Released"),
    ]
    pod = factories.pod("p", 1, claims=("data",))
    decisions = schedule_once(cluster, [*wrong, claim("data", 2, selector=fast), pod], 0.0)
    why = "4 nodes: no free volumes (1 of class local with 2Gi, chosen by labels)"
    assert why in told(decisions, "p")
    right = volume("right", "a", size=2, labels=(("disk", "fast"),))
    assert binds(schedule_once(cluster, [right], 1.0)) == {"p": ("a", {"data": "right"})}
    check_invariants(cluster)


def test_a_volume_is_not_given_twice_and_comes_back() -> None:
    cluster = racks()
    pods = [factories.pod(f"p{i}", 1, claims=(f"c{i}",), created=float(i)) for i in range(2)]
    facts: list[Fact] = [volume("a1", "a"), claim("c0"), claim("c1"), *pods]
    assert binds(schedule_once(cluster, facts, 0.0)) == {"p0": ("a", {"c0": "a1"})}
    check_invariants(cluster)
    schedule_once(cluster, [BindFailed("uid-p0", "a", "no"), PodGone("uid-p0")], 1.0)
    check_invariants(cluster)
    assert cluster.state.pods["uid-p1"].node == "a"


def test_only_the_volumes_of_the_pods_that_are_planned_are_handed_over() -> None:
    """Two equal pods on a node. One is planned, and then counted without its requests; the other keeps its volume."""
    cluster = racks()
    schedule_once(cluster, [volume("v0", "a"), volume("v1", "a")], 1.0)
    snapshot = cluster.state.snapshot
    assignment, row = snapshot.pod_counts.volumes, snapshot.columns.row["a"]
    volumes = Volumes(wants=((VolumeRequest("local", GI, ("ReadWriteOnce",)), 1),))
    assignment.count(row, volumes, 2)
    (lot,), _ = assignment.confirm(row, volumes, 1)
    assignment.count(row, volumes, -1)
    assert recounts.pods_assigned(assignment) == {(row, volumes): 1}
    assert assignment.assigned() | {*lot} == assignment.free.reserved == {"v0", "v1"}
    assignment.count(row, volumes, -1)
    assert assignment.free.reserved == {*lot}


def test_what_the_api_server_says_goes_before_the_plan() -> None:
    """The volume names the claim, then the claim its volume; the pod is seen last."""
    cluster = racks()
    pod = factories.pod("p", 1, claims=("data",))
    schedule_once(cluster, [volume("a1", "a"), claim("data"), pod], 0.0)
    kept = volume("a1", "a", claim=("ns", "data"), claim_uid="u-data", phase="Bound")
    for fact in (kept, claim("data", volume="a1", bound=True)):
        schedule_once(cluster, [fact], 1.0)
        check_invariants(cluster)
    assert cluster.state.pods["uid-p"].node == "a"
    schedule_once(
        cluster, [factories.pod("p", 1, claims=("data",), node="a"), PodGone("uid-p")], 2.0
    )
    check_invariants(cluster)
    again = factories.pod("q", 1, claims=("data",))
    assert binds(schedule_once(cluster, [again], 3.0)) == {"q": ("a", {})}


def test_who_waits_for_the_node_of_its_volume_reads_which_it_is() -> None:
    cluster = racks()
    bound = volume("c1", "c", claim=("ns", "data"), phase="Bound")
    full = factories.pod("full", 8, node="c")
    pod = factories.pod("p", 1, claims=("data",))
    facts: list[Fact] = [bound, claim("data", volume="c1", bound=True), full, pod]
    assert "3 nodes: volumes only on node c" in told(schedule_once(cluster, facts, 0.0), "p")


@pytest.mark.parametrize("spare", [False, True])
def test_volumes_are_kept_for_the_gang_that_room_is_kept_for(spare: bool) -> None:
    """A pod that would be gone in time would still have the volume."""
    cluster = new_scheduler(factories.LEVELS)
    nodes = [factories.node("a", rack="r0"), factories.node("b", rack="r0")]
    busy = factories.pod("busy", 8, node="a", runs_for_s=100.0, started=0.0, phase="Running")
    schedule_once(cluster, [LOCAL, *nodes, busy, volume("a1", "a"), volume("b1", "b")], 0.0)
    schedule_once(cluster, gang(2, gpus=8), 1.0)
    assert cluster.reservations
    check_invariants(cluster)
    late = factories.pod("late", 1, claims=("late",), runs_for_s=20.0)
    facts: list[Fact] = [claim("late"), late]
    if spare:
        facts.append(volume("b2", "b", size=2))
    decisions = schedule_once(cluster, facts, 2.0)
    check_invariants(cluster)
    assert binds(decisions) == ({"late": ("b", {"late": "b2"})} if spare else {})
    if not spare:
        assert "excluding volumes reserved for ns/g" in told(decisions, "late")
    done = factories.pod("busy", 8, node="a", phase="Succeeded")
    over = [PodGone("uid-late")] if spare else []
    assert len(binds(schedule_once(cluster, [done, *over], 100.0))) >= 2
    check_invariants(cluster)


def test_a_volume_that_names_the_claim_is_the_one() -> None:
    """As after a restart in the middle: it is waited for where it is."""
    cluster = racks()
    kept = volume("b1", "b", claim=("ns", "data"), claim_uid="u-data")
    pod = factories.pod("p", 1, claims=("data",))
    found = binds(schedule_once(cluster, [volume("a1", "a"), kept, claim("data"), pod], 0.0))
    assert found == {"p": ("b", {"data": "b1"})}
    other = racks()
    stale = volume("b1", "b", claim=("ns", "data"), claim_uid="before")
    found = binds(schedule_once(other, [volume("a1", "a"), stale, claim("data"), pod], 0.0))
    assert found == {"p": ("a", {"data": "a1"})}


def test_a_volume_that_goes_before_it_was_given() -> None:
    cluster = racks()
    pod = factories.pod("p", 1, claims=("data",))
    schedule_once(cluster, [volume("a1", "a"), claim("data"), pod], 0.0)
    schedule_once(cluster, [VolumeGone("a1")], 1.0)
    check_invariants(cluster)
    schedule_once(cluster, [BindFailed("uid-p", "a", "volume a1 is gone")], 2.0)
    check_invariants(cluster)
    schedule_once(cluster, [volume("c1", "c")], 100.0)
    check_invariants(cluster)
    assert cluster.state.pods["uid-p"].node == "c"


def test_a_class_that_makes_volumes_is_given_those_that_exist_first() -> None:
    cluster = racks()
    in_r1 = ((Requirement(RACK, "In", ("r1",)),),)
    made = StorageClassSeen("made", "disk", waits=True, places=in_r1)
    there = volume("a1", "a", storage_class="made")
    pods = [factories.pod(f"p{i}", 8, claims=(f"c{i}",), created=float(i)) for i in range(4)]
    claims = [claim(f"c{i}", storage_class="made") for i in range(4)]
    found = binds(schedule_once(cluster, [made, there, *claims, *pods], 0.0))
    check_invariants(cluster)
    given = {node: volume for node, claims in found.values() for volume in claims.values()}
    assert given == {"a": "a1", "c": "", "d": ""}


def test_volumes_that_several_nodes_reach_are_each_given_once() -> None:
    cluster = racks()
    there = [volume("r0", rack="r0"), volume("r1", rack="r1"), volume("b1", "b")]
    found = binds(schedule_once(cluster, [*there, *gang(3, gpus=8)], 0.0))
    check_invariants(cluster)
    assert sorted(v for _, claims in found.values() for v in claims.values()) == ["b1", "r0", "r1"]
    reason = told(schedule_once(racks(), [*there, *gang(4, gpus=8)], 0.0))
    assert reason.startswith("needs 4 pods x 8 GPUs; 3 of 4 fit together under")


def test_a_claim_that_a_gang_shares_gets_one_volume() -> None:
    cluster = racks()
    pods = [factories.pod(f"g-{i}", 8, "g", gang_min=2, claims=("data",)) for i in range(2)]
    there = [volume("a1", "a"), volume("r1", rack="r1")]
    found = binds(schedule_once(cluster, [*there, claim("data"), *pods], 0.0))
    check_invariants(cluster)
    assert found == {"g-0": ("c", {"data": "r1"}), "g-1": ("d", {"data": "r1"})}
    late = factories.pod("g-2", 8, "g", gang_min=2, claims=("data",))
    schedule_once(cluster, [late], 1.0)
    check_invariants(cluster)
    assert not cluster.state.pods["uid-g-2"].node, "the volume is in the other rack"


def test_a_shared_claim_whose_volume_was_made_for_another_node() -> None:
    """Both are bound, the volume turns out to be of one rack: who can't use it there is placed anew."""
    cluster = racks()
    made = StorageClassSeen("made", "disk", waits=True)
    pods = [factories.pod(f"g-{i}", 8, "g", gang_min=3, claims=("data",)) for i in range(3)]
    found = binds(schedule_once(cluster, [made, claim("data", storage_class="made"), *pods], 0.0))
    check_invariants(cluster)
    there = {name: node for name, (node, _) in found.items()}
    assert set(there.values()) == {"a", "b", "c"}
    bound = claim("data", storage_class="made", volume="v", bound=True, selected_node="a")
    lost = next(name for name, node in there.items() if node == "c")
    facts: list[Fact] = [
        bound,
        volume("v", "a", "b", "d", storage_class="made", phase="Bound", claim=("ns", "data")),
        BindFailed(f"uid-{lost}", "c", "it can't be used on node c"),
    ]
    schedule_once(cluster, facts, 1.0)
    check_invariants(cluster)
    assert binds(schedule_once(cluster, [], 5.0)) == {lost: ("d", {})}
    check_invariants(cluster)


def test_kinds_of_one_gang_that_want_volumes_of_one_class() -> None:
    cluster = racks()
    there = [volume("a1", "a"), volume("a2", "a", size=2), volume("b1", "b")]
    server = factories.pod("g-0", 1, "g", gang_min=3, claims=("big",))
    workers = [factories.pod(f"g-{i}", 2, "g", gang_min=3, claims=(f"c{i}",)) for i in (1, 2)]
    claims = [claim("big", 2), claim("c1"), claim("c2")]
    found = binds(schedule_once(cluster, [*there, *claims, server, *workers], 0.0))
    check_invariants(cluster)
    assert found["g-0"] == ("a", {"big": "a2"})
    assert sorted(node for name, (node, _) in found.items() if name != "g-0") == ["a", "b"]


def test_nodes_that_come_go_and_change_their_labels_take_their_volumes_along() -> None:
    cluster = racks()
    schedule_once(cluster, [volume("e1", "e"), volume("r9", rack="r9"), *gang(2, gpus=8)], 0.0)
    check_invariants(cluster)
    schedule_once(cluster, [factories.node("e", rack="r8")], 1.0)
    check_invariants(cluster)
    assert not cluster.state.pods["uid-g-0"].node
    schedule_once(cluster, [factories.node("d", rack="r9")], 2.0)
    check_invariants(cluster)
    assert {cluster.state.pods[f"uid-g-{i}"].node for i in range(2)} == {"d", "e"}


@pytest.mark.long
def test_the_answer_is_that_of_trying_everything() -> None:
    """Volumes of one node each: pods of a kind with up to three unlike claims."""
    yes = 0
    for seed in seeds(600):
        dice = Random(seed)
        nodes = "abc"[: dice.randint(1, 3)]
        cluster = new_scheduler(factories.LEVELS)
        there = [
            volume(
                f"v{i}",
                dice.choice(nodes),
                size=dice.randint(1, 3),
                modes=dice.choice((("RWO",), ("ROX", "RWO"))),
                labels=(("disk", dice.choice("xy")),),
            )
            for i in range(dice.randint(2, 7))
        ]
        wishes = [
            {
                "size": dice.randint(1, 3),
                "modes": dice.choice((("RWO",), ("ROX", "RWO"), ("ROX",))),
                "selector": dice.choice(((), (), (Expression("disk", "In", ("x",)),))),
            }
            for _ in range(dice.randint(1, 3))
        ]
        count = dice.randint(1, 3)
        names = {i: tuple(f"c{i}-{n}" for n in range(len(wishes))) for i in range(count)}
        claims = [
            claim(name, **wish)  # type: ignore[arg-type]  # a test's shorthand
            for own in names.values()
            for name, wish in zip(own, wishes, strict=True)
        ]
        pods = [factories.pod(f"p{i}", 1, claims=names[i]) for i in range(count)]
        schedule_once(cluster, [LOCAL, *there, *claims], 0.0)
        schedule_once(cluster, [factories.node(name, gpus=8) for name in nodes], 0.0)
        for pod in pods:
            apply(cluster, pod)
        draft = Draft(cluster.state.snapshot)
        try:
            placement.fit(draft, PlacementRequest(((cluster.state.pods["uid-p0"].spec, count),)))
            fits = True
        except DoesNotFit:
            fits = False
        taken = cluster.state.snapshot.pod_counts.volumes.assigned()
        assert len(taken) == fits * count * len(wishes), f"seed {seed}"
        assert fits == _some_way(there, claims[: len(wishes)], nodes, count), f"seed {seed}"
        draft.undo()
        assert not cluster.state.snapshot.pod_counts.volumes.assigned()
        recounts.check_free_volumes(cluster.state.snapshot.pod_counts.volumes.free)
        yes += fits
    assert not ALL_SEEDS or 80 < yes < 520


def _some_way(there: list[VolumeSeen], claims: list[ClaimSeen], nodes: str, count: int) -> bool:
    """Pod by pod, every node and every choice of volumes for it."""
    if not count:
        return True
    for node in nodes:
        own = [v for v in there if v.places[0][0][0].values == (node,)]
        for some in permutations(own, len(claims)):
            if all(_does(v, c) for v, c in zip(some, claims, strict=True)):
                rest = [v for v in there if v not in some]
                if _some_way(rest, claims, nodes, count - 1):
                    return True
    return False


def _does(volume: VolumeSeen, claim: ClaimSeen) -> bool:
    labels = dict(volume.labels)
    return (
        volume.size >= claim.size
        and all(mode in volume.modes for mode in claim.modes)
        and all(labels.get(e.key) in e.values for e in claim.selector)
    )


def test_a_planned_volume_that_moves_changes_the_class_of_its_pod() -> None:
    made = racks()
    pod = factories.pod("p", 1, claims=("p",))
    [bind] = binds(schedule_once(made, [volume("v", "a"), claim("p"), pod], 0.0)).values()
    assert bind == ("a", {"p": "v"})
    apply(made, volume("v", "b"))
    check_invariants(made)


def test_the_sentence_counts_volumes_that_pods_share() -> None:
    want = VolumeRequest("local", GI)
    assert describe_requests(Volumes(wants=((want, 2),), shared=(("ns/data", want),))) == (
        "3 of class local with 1Gi"
    )


def test_a_volume_whose_claim_is_bound_is_no_others_before_it_says_so() -> None:
    """Claims and volumes come by two watches."""
    cluster = racks()
    first = factories.pod("p", 1, claims=("c",))
    found = schedule_once(cluster, [volume("a1", "a"), claim("c"), first], 1.0)
    assert binds(found) == {"p": ("a", {"c": "a1"})}
    bound = claim("c", bound=True, volume="a1")
    second = factories.pod("q", 1, claims=("d",))
    assert binds(schedule_once(cluster, [bound, claim("d"), second], 2.0)) == {}
    older = volume("a1", "a", labels=(("a", "b"),))
    assert binds(schedule_once(cluster, [older], 3.0)) == {}
    check_invariants(cluster)
    assert binds(schedule_once(cluster, [volume("a2", "b")], 4.0)) == {"q": ("b", {"d": "a2"})}
