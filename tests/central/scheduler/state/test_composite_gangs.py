"""CompositePodGroups of scheduling.k8s.io in the scheduler, whose objects come, change and go in any order."""

import random
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.device_claims import PodDeviceClaim
from central.model.facts import Fact, GangGone, GangSeen
from central.scheduler import rebuild
from central.scheduler.cycle import schedule_once
from central.scheduler.state.composite_gangs import CompositeGangs
from tests import effort
from tests.central import factories
from tests.central.scheduler.small_cluster import World


def group(name: str, least: int, parent: str = "", **other: object) -> GangSeen:
    above = f"compositepodgroup/{parent}" if parent else ""
    own = {"queue": "", "native_version": "v1beta1", **other}
    return factories.gang(f"podgroup/{name}", least, parent=above, **own)


def composite(name: str, least: int, parent: str = "", **other: object) -> GangSeen:
    return replace(
        group(name, least, parent, **{"native_version": "v1alpha3", **other}),
        name=f"compositepodgroup/{name}",
    )


def pods(of: str, size: int) -> list[Fact]:
    return [factories.pod(f"{of}-{rank}", 8, f"podgroup/{of}", podgroup=of) for rank in range(size)]


def nodes(count: int) -> list[Fact]:
    return [factories.node(f"n{index}") for index in range(count)]


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(d.name for d in decisions if isinstance(d, Bind))


def updates(decisions: list[Decision]) -> dict[str, UpdateGangStatus]:
    return {d.gang: d for d in decisions if isinstance(d, UpdateGangStatus)}


def test_a_tree_that_comes_after_its_pods() -> None:
    world = World(*nodes(2))
    world.step(0.0, *pods("a", 1), *pods("b", 1), group("a", 1, "serve"), group("b", 1, "serve"))
    assert world.told["podgroup/a"] == (
        "spec.parentCompositePodGroupName: CompositePodGroup serve does not exist"
    )
    assert world.step(1.0, composite("serve", 2)) == ["a-0", "b-0"]
    assert [key[1] for key in world.cluster.state.gangs] == ["compositepodgroup/serve"]


def test_the_status_says_which_podgroups_are_placed() -> None:
    world = World(*nodes(2))
    groups = [group(name, 1, "serve") for name in "abc"]
    members = [pod for name in "abc" for pod in pods(name, 1)]
    world.step(0.0, composite("serve", 2), *groups, *members)
    update = updates(world.decisions)["compositepodgroup/serve"]
    assert (update.native_version, update.phase) == ("v1alpha3", "Running")
    assert sorted(placed for _, placed in update.podgroups) == [False, True, True]


def test_a_wrong_podgroup_does_not_stop_the_others() -> None:
    cluster = new_scheduler(factories.LEVELS)
    wrong = group("b", 1, "serve", error="spec.x: wrong")
    facts = [*nodes(2), composite("serve", 1), group("a", 1, "serve"), wrong]
    decisions = schedule_once(cluster, [*facts, *pods("a", 1), *pods("b", 1)], 0.0)
    assert bound(decisions) == ["a-0"]
    assert updates(decisions)["podgroup/b"].reason == "spec.x: wrong"
    assert bound(schedule_once(cluster, [group("b", 1, "serve")], 1.0)) == ["b-0"]


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ({"error": "spec.x: wrong"}, "CompositePodGroup in: spec.x: wrong"),
        (
            {"topology_required": "island"},
            "CompositePodGroup in: island is not a level around groups",
        ),
    ],
)
def test_a_wrong_inner_composite_stops_its_gang(inner: dict[str, str], reason: str) -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [composite("serve", 1), composite("in", 1, "serve", **inner), group("a", 1, "in")]
    decisions = schedule_once(cluster, [*nodes(1), *facts, *pods("a", 1)], 0.0)
    assert not bound(decisions)
    assert updates(decisions)["compositepodgroup/serve"].reason == reason


def test_too_many_kinds_of_groups_are_refused() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [composite("serve", 1), *(group(f"g{size}", size, "serve") for size in range(1, 66))]
    decisions = schedule_once(cluster, [*nodes(1), *facts, *pods("g1", 1)], 0.0)
    assert updates(decisions)["compositepodgroup/serve"].reason == (
        "65 PodGroups of 65 kinds are below it; at most 1000 of 64 kinds are accepted"
    )


def test_pods_of_a_podgroup_that_leaves_its_tree() -> None:
    world = World(*nodes(1))
    assert not world.step(0.0, composite("serve", 2), group("a", 1, "serve"), *pods("a", 1))
    assert world.step(1.0, GangGone("ns", "podgroup/a"), group("a", 1)) == ["a-0"]
    world.step(2.0, GangGone("ns", "compositepodgroup/serve"))
    state = world.cluster.state
    assert [key[1] for key in state.gangs] == ["podgroup/a"]
    assert not state.owners.composites.composed


def test_a_rebuilt_state_has_the_same_gangs() -> None:
    world = World(*nodes(3))
    groups = [group(name, 1, "serve") for name in "ab"]
    world.step(0.0, composite("serve", 2), *groups, *pods("a", 1), *pods("b", 2))
    before = {key: {*gang.members} for key, gang in world.cluster.state.gangs.items()}
    rebuild.rebuild(world.cluster)
    after = {key: {*gang.members} for key, gang in world.cluster.state.gangs.items()}
    assert after == before
    assert not world.step(1.0)


def test_each_podgroup_keeps_its_own_claims() -> None:
    cluster = new_scheduler(factories.LEVELS)
    claims = (PodDeviceClaim("shared", "c"),)
    facts = [composite("serve", 1), group("a", 1, "serve", device_claims=claims), *pods("a", 1)]
    schedule_once(cluster, [*nodes(1), *facts], 0.0)
    [pod] = cluster.state.pods.values()
    found = cluster.state.owners.composites.podgroup_of(pod.seen)
    assert found is not None
    assert (found.name, found.device_claims) == ("podgroup/a", claims)


def test_the_order_of_events_does_not_matter() -> None:
    """A tree of any shape is composed as if all its groups had come at once, circles included."""
    for seed in effort.seeds(60):
        rng = random.Random(seed)
        known = CompositeGangs()
        composites = [f"c{index}" for index in range(6)]
        for _ in range(rng.randint(1, 40)):
            parent = rng.choice(["", *composites])
            if rng.random() < 0.5:
                name, least = rng.choice(composites), rng.randint(0, 2)
                level = rng.choice(["", "rack"])
                fact = composite(name, least, parent, topology_required=level)
            else:
                fact = group(rng.choice("abcdefgh"), rng.randint(1, 2), parent)
            if rng.random() < 0.7:
                known.update(fact)
            else:
                known.remove((fact.namespace, fact.name))
            if rng.random() < 0.3:
                known.settle()
        known.settle()
        fresh = CompositeGangs()
        for fact in rng.sample([*known.groups.values()], len(known.groups)):
            fresh.update(fact)
        fresh.settle()
        alone = {
            key for key, fact in known.groups.items() if not fact.parent and "/c" not in key[1]
        }
        expected = {**fresh.composed, **{key: known.groups[key] for key in alone}}
        assert known.composed == expected, seed
        for name in "abcdefgh":
            pod = factories.pod("x", 1, f"podgroup/{name}", podgroup=name)
            assert known.of_pod(pod) == fresh.of_pod(pod), (seed, name)
