"""The tree from HyperNodes: what is wrong with one disables that one."""

import random
from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, SetStatus, UpdateGangStatus
from central.model.facts import (
    Answered,
    Fact,
    HyperNodeGone,
    HyperNodeSeen,
    Member,
    NodeGone,
    NodeSeen,
)
from central.scheduler.apply import apply
from central.scheduler.cycle import due, schedule_once
from central.scheduler.inventory.hypernode_tree import HyperNodeTree
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import seeds

NODES = [factories.node(name, labels={"row": name[0]}) for name in ("a1", "a2", "b1", "b2", "c1")]


def leaf(name: str, *nodes: str, tier: int = 1) -> HyperNodeSeen:
    return HyperNodeSeen(name, tier, tuple(Member("Node", exact=node) for node in nodes))


def over(name: str, *hypernodes: str, tier: int = 2) -> HyperNodeSeen:
    return HyperNodeSeen(name, tier, tuple(Member("HyperNode", exact=h) for h in hypernodes))


def tree(*hypernodes: HyperNodeSeen) -> tuple[object, ...]:
    return told_of(built(hypernodes, NODES))


def built(hypernodes: Iterable[HyperNodeSeen], nodes: Collection[NodeSeen]) -> HyperNodeTree:
    made = HyperNodeTree()
    made.rebuild({hypernode.name: hypernode for hypernode in hypernodes}, nodes)
    return made


def told_of(made: HyperNodeTree) -> tuple[object, ...]:
    return made.levels, {n: dict(d) for n, d in made.domains.items()}, dict(made.errors)


def test_tiers_from_the_widest_to_the_narrowest() -> None:
    levels, domains, troubles = tree(
        leaf("s0", "a1", "a2"), leaf("s1", "b1", "b2"), over("s2", "s0", "s1", tier=5)
    )
    assert levels == ("tier-5", "tier-1")
    assert domains == {
        "a1": {"tier-1": "s0", "tier-5": "s2"},
        "a2": {"tier-1": "s0", "tier-5": "s2"},
        "b1": {"tier-1": "s1", "tier-5": "s2"},
        "b2": {"tier-1": "s1", "tier-5": "s2"},
    }
    assert not troubles


def test_patterns_match_whole_names_and_labels_match_nodes() -> None:
    _, domains, _ = tree(
        HyperNodeSeen("rows", 1, (Member("Node", pattern="a."),)),
        HyperNodeSeen("labels", 1, (Member("Node", labels=(("row", "b"),)),)),
    )
    assert domains == {
        "a1": {"tier-1": "rows"},
        "a2": {"tier-1": "rows"},
        "b1": {"tier-1": "labels"},
        "b2": {"tier-1": "labels"},
    }


def test_what_is_wrong_with_one_disables_that_one() -> None:
    levels, domains, troubles = tree(
        leaf("good", "a1", "a2"),
        leaf("twice", "a2", "b1"),
        over("loop", "loop", tier=3),
        over("high", "good", tier=1),
        over("hole", "good", "nowhere"),
        HyperNodeSeen("bad", 1, (Member("Node", pattern="["),)),
        HyperNodeSeen("worse", 0, error="spec.tier: 'x' is not a whole number"),
    )
    assert levels == ("tier-2", "tier-1")
    assert domains == {
        "a1": {"tier-1": "good", "tier-2": "hole"},
        "a2": {"tier-1": "good", "tier-2": "hole"},
        "b1": {"tier-1": "twice"},
    }
    assert troubles == {
        "twice": "node a2 is in HyperNode good of tier 1 too",
        "loop": "member loop is of tier 3, not below 3",
        "high": "member good is of tier 1, not below 1",
        "hole": "member nowhere does not exist",
        "bad": "regexMatch [: missing ]: [",
        "worse": "spec.tier: 'x' is not a whole number",
    }


def drawn(dice: random.Random) -> HyperNodeSeen:
    """A HyperNode of a random kind, right or wrong, which may be in the way of others."""
    members = []
    for _ in range(dice.randint(1, 3)):
        digit = str(dice.randint(0, 5))
        kinds = [
            Member("Node", exact=f"n{digit}{digit}"),
            Member("Node", pattern=dice.choice((f"n{digit}.", f"n.{digit}|n00", "n(", "m.*"))),
            Member("Node", labels=(("row", digit),)),
            Member("Node", labels=(("row", digit), ("side", dice.choice("lr")))),
            Member("HyperNode", exact=f"h{digit}"),
            Member("HyperNode", pattern=f"h[0-{digit}]"),
            Member("HyperNode", labels=(("row", digit),)),
        ]
        members.append(dice.choice(kinds))
    return HyperNodeSeen(
        f"h{dice.randint(0, 9)}",
        dice.randint(1, 3),
        tuple(members),
        error="wrong" if dice.random() < 0.1 else "",
        tier_name=dice.choice(("", "", "leaf", "spine")),
    )


@pytest.mark.long
def test_events_one_by_one_make_the_tree_that_is_made_anew() -> None:
    for seed in seeds(300):
        _story(random.Random(seed))


def _story(dice: random.Random) -> None:
    made, hypernodes, nodes = HyperNodeTree(), dict[str, HyperNodeSeen](), dict[str, NodeSeen]()
    for _ in range(40):
        kind = dice.random()
        errors = dict(made.errors)
        if kind < 0.2:
            hypernode = drawn(dice)
            hypernodes[hypernode.name] = hypernode
            made.rebuild(hypernodes, list(nodes.values()))
        elif kind < 0.25 and hypernodes:
            del hypernodes[dice.choice(sorted(hypernodes))]
            made.rebuild(hypernodes, list(nodes.values()))
        elif kind < 0.4 and nodes:
            gone = dice.choice(sorted(nodes))
            del nodes[gone]
            concerned = made.drop(gone)
        else:
            name = f"n{dice.randint(0, 5)}{dice.randint(0, 5)}"
            labels = {"row": str(dice.randint(0, 5)), "side": dice.choice("lr")}
            nodes[name] = factories.node(name, labels=labels)
            sizes = dict(made.sizes)
            concerned = made.put(nodes[name])
            changed = {each for each in hypernodes if sizes.get(each, 0) != made.sizes.get(each, 0)}
            wrong = {each for each in hypernodes if errors.get(each) != made.errors.get(each)}
            assert changed | wrong <= concerned
        fresh = built(hypernodes.values(), list(nodes.values()))
        assert told_of(made) == told_of(fresh)
        assert (made.sizes, made.tiers) == (fresh.sizes, fresh.tiers)


def gang(name: str, pods: int, tier: int) -> list[Fact]:
    members = [factories.pod(f"{name}-{rank}", 8, name) for rank in range(pods)]
    return [factories.gang(name, pods, required_tier=tier), *members]


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(d.node for d in decisions if isinstance(d, Bind))


def test_a_gang_stays_within_its_tier_and_the_tree_changes_with_its_objects() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        *NODES,
        leaf("s0", "a1", "a2"),
        leaf("s1", "b1", "b2", "c1"),
        over("s2", "s0", "s1"),
    ]
    decisions = schedule_once(scheduler, [*facts, *gang("wide", 4, tier=1)], 0.0)
    check_invariants(scheduler)
    assert not bound(decisions)
    [told] = [d for d in decisions if isinstance(d, UpdateGangStatus)]
    assert told.reason.startswith(
        "needs 4 pods x 8 GPUs in one tier-1; best candidate s1 fits 3 of 4"
    )
    assert bound(schedule_once(scheduler, gang("three", 3, tier=1), 0.0)) == ["b1", "b2", "c1"]
    moved = leaf("s0", "a1")
    assert not bound(schedule_once(scheduler, [moved, *gang("two", 2, tier=1)], 0.0))
    check_invariants(scheduler)
    assert bound(schedule_once(scheduler, [leaf("s0", "a1", "a2")], 0.0)) == ["a1", "a2"]
    check_invariants(scheduler)


def test_without_hypernodes_tiers_are_the_labels_from_the_narrowest() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [
        factories.node(name, rack=f"r{name[1]}", block="b") for name in ("n1", "m1", "n2", "m2")
    ]
    assert not bound(schedule_once(scheduler, [*nodes, *gang("rack", 3, tier=1)], 0.0))
    assert len(bound(schedule_once(scheduler, gang("block", 3, tier=2), 0.0))) == 3
    node = schedule_once(scheduler, gang("node", 2, tier=0), 0.0)
    assert not bound(node)


def test_the_last_hypernode_that_goes_gives_the_tree_back_to_the_labels() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, rack="r1") for name in ("n1", "n2")]
    schedule_once(scheduler, [*nodes, leaf("s0", "n1")], 0.0)
    assert list(scheduler.state.snapshot.columns.domains.levels) == ["tier-1"]
    schedule_once(scheduler, [HyperNodeGone("s0")], 0.0)
    assert list(scheduler.state.snapshot.columns.domains.levels) == list(factories.LEVELS)
    assert bound(schedule_once(scheduler, gang("two", 2, tier=1), 0.0)) == ["n1", "n2"]
    check_invariants(scheduler)


def statuses(decisions: list[Decision]) -> dict[str, tuple[int, str, str]]:
    """Nodes, whether it can be used, and what is wrong."""
    found = {}
    for each in decisions:
        if isinstance(each, SetStatus):
            [condition] = each.status["conditions"]
            counted = each.status["nodeCount"]
            found[each.name] = (counted, condition["status"], condition["message"])
    return found


def told(scheduler: Scheduler, facts: list[Fact], now: float) -> dict[str, tuple[int, str, str]]:
    decisions = schedule_once(scheduler, facts, now)
    for each in decisions:
        if isinstance(each, SetStatus):
            apply(scheduler, Answered("SetStatus", "HyperNode", "", each.name))
    return statuses(decisions)


def test_its_object_says_how_many_nodes_it_holds_and_what_is_wrong() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    named = [
        replace(each, uid=each.name) for each in (leaf("s0", "a1", "a2"), over("s1", "s0", "x"))
    ]
    wrong = "member x does not exist"
    assert told(scheduler, [*NODES, *named], 0.0) == {
        "s0": (2, "True", ""),
        "s1": (2, "False", wrong),
    }
    assert told(scheduler, [factories.node("a3")], 10.0) == {}, "nothing is new"
    both = replace(leaf("s2", "a2", "b1"), uid="s2")
    assert told(scheduler, [both], 20.0) == {
        "s2": (1, "False", "node a2 is in HyperNode s0 of tier 1 too")
    }
    whole = replace(over("s1", "s0"), uid="s1")
    assert told(scheduler, [whole], 30.0) == {"s1": (2, "True", "")}
    assert told(scheduler, [NodeGone("a1")], 40.0) == {"s0": (1, "True", ""), "s1": (1, "True", "")}
    assert due(scheduler, 40.0) == 41.0  # the answers came: it looks whether anything moved on
    assert told(scheduler, [HyperNodeGone("s0")], 50.0)["s1"] == (
        0,
        "False",
        "member s0 does not exist",
    )


def test_a_gang_may_name_the_tier_that_it_stays_in() -> None:
    """Two pods of one node each: in one leaf, in one spine, or anywhere above the widest tier."""
    leaves = [replace(leaf(f"s-{n}", n), tier_name="leaf") for n in ("a1", "b1", "c1")]
    spine = replace(over("s-ab", "s-a1", "s-b1"), tier_name="spine")
    for needs, fits in (
        ({"topology_required": "leaf"}, False),
        ({"topology_required": "spine"}, True),
        ({"required_tier": 1}, False),
        ({"required_tier": 2}, True),
        ({"required_tier": 3}, True),
        ({"topology_required": "core"}, False),
    ):
        made = new_scheduler(factories.LEVELS)
        pods = [factories.pod(f"g-{i}", 8, "g") for i in range(2)]
        gang = factories.gang("g", 2, **needs)
        facts: list[Fact] = [*NODES, *leaves, spine, gang, *pods]
        decisions = schedule_once(made, facts, 0.0)
        assert any(isinstance(d, Bind) for d in decisions) == fits, needs
