"""Where volumes are reachable, against a scan of all nodes, while both come and go."""

import random

import pytest

from central.model import selectors
from central.model.facts import NodeSeen
from central.model.pod_rules import NodeTerms, Requirement
from central.scheduler.volumes.reach import Places, VolumeReach
from tests.central import factories
from tests.central.scheduler import recounts


def node(name: str, **labels: str) -> NodeSeen:
    found = factories.node(name, labels=labels)
    assert isinstance(found, NodeSeen)
    return found


def terms(*alternatives: tuple[Requirement, ...]) -> NodeTerms:
    return alternatives


ZONE = Requirement("zone", "In", ("a", "b"))
DISK = Requirement("disk", "In", ("fast",))
HAS_DISK = Requirement("disk", "Exists", ())
NAMED = Requirement("metadata.name", "In", ("n1",), field=True)
PLACES: list[Places] = [
    (),
    (terms((ZONE,)),),
    (terms((NAMED,)),),
    (terms((ZONE, HAS_DISK), (NAMED,)),),
    (terms((HAS_DISK,)),),
    (terms((HAS_DISK,), (ZONE,)),),
    (terms((HAS_DISK,)), terms((ZONE, DISK))),
    (terms((Requirement("zone", "NotIn", ("a",)),)),),
]
NODES = [
    node(f"n{number}", **labels)
    for number in range(3)
    for labels in ({}, {"zone": "a"}, {"zone": "b", "disk": "fast"}, {"disk": "slow"})
]


@pytest.mark.parametrize("seed", range(8))
def test_rows_follow_nodes_and_affinities(seed: int) -> None:
    dice, reach = random.Random(seed), VolumeReach()
    nodes: dict[int, NodeSeen] = {}
    for _ in range(150):
        kind = dice.random()
        if kind < 0.25:
            places = dice.choice(PLACES)
            rows = reach.track(places)
            assert rows is reach.track(places)
        elif kind < 0.4:
            reach.untrack(dice.choice(PLACES))
        else:
            row = dice.randrange(4)
            seen = dice.choice([None, *NODES])
            before = {each: set(rows) for each, rows in reach.rows.items()}
            affected = reach.affected(row, seen)
            reach.update(row, seen, affected)
            nodes.pop(row, None)
            if seen is not None:
                nodes[row] = seen
            changed = [each for each, rows in reach.rows.items() if rows != before[each]]
            assert sorted(changed, key=repr) == affected
        for each, rows in reach.rows.items():
            assert rows == {at for at, seen in nodes.items() if selectors.inside(each, seen)}
        recounts.check_reach(reach)


def test_a_node_that_says_the_same_affects_nothing() -> None:
    reach = VolumeReach()
    reach.track((terms((ZONE,)),))
    first = node("n0", zone="a")
    reach.update(0, first, reach.affected(0, first))
    assert reach.affected(0, node("n0", zone="a")) == []
    assert reach.affected(0, node("n1", zone="c")) == [(terms((ZONE,)),)]
